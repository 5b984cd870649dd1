//! Negative controls of counting: a step that does less than its program was priced for is noticed, by every kind of run.

use quadrille_engine::{
    GenerateOptions, GenerationPrograms, TrainOptions, evaluate_on_cpu, generate_on_cpu, train_on_cpu,
};
use quadrille_proofs::{
    SEED, drawn, edited_stage, forward_options, hyper, layout_with, model, program, program_with, prove, random_samples,
};
use quadrille_spec::{Activations, Axis, CollectiveKind, LedgerDifference, Overlap};
use quadrille_step::{Operation, StepProgram, When};

const BROADCAST: CollectiveKind = CollectiveKind::Broadcast;

/// `program` without one operation of a stage's update, which its prediction still has: what is to be done once in the passes
/// over microbatches is left out after the first of them.
fn with_less(program: &StepProgram, stage: usize, is_left_out: impl Fn(&Operation) -> bool) -> StepProgram {
    edited_stage(program, stage, |stage| {
        stage.update.ops.iter_mut().find(|op| is_left_out(&op.operation)).unwrap().when = When::First;
    })
}

/// On two ranks of each of two stages, of which the last does less.
fn pipelined() -> [StepProgram; 2] {
    let whole = program_with(&model(2), "x=2,pipe=2", 8, |request| request.microbatch = Some(2));
    let less = with_less(&whole, 1, |operation| matches!(operation, Operation::AdamW(_)));
    [whole, less]
}

fn assert_names_the_update(difference: &LedgerDifference, program: &StepProgram) {
    assert_eq!(difference.what, "elements of adamw");
    assert!(difference.counted < difference.predicted, "{difference}");
    assert_eq!(program.layout.grid.coordinate(difference.rank).on(Axis::Pipe), 1, "{difference}");
}

#[test]
fn training_names_what_was_not_counted_as_predicted() {
    let [whole, less] = pipelined();
    let options = TrainOptions::new(2, hyper(None), SEED);
    let differs = |program: &StepProgram| {
        train_on_cpu(program, &options, &random_samples(program), None, &mut |_| Ok(())).unwrap().difference
    };
    assert_eq!(differs(&whole), None);
    assert_names_the_update(&differs(&less).unwrap(), &less);
}

#[test]
fn verification_names_what_was_not_counted_as_predicted() {
    let [whole, less] = pipelined();
    assert!(prove(&whole, 1).unwrap().ok);
    let report = prove(&less, 1).unwrap();
    assert!(!report.ok && !report.ledger_equal);
    let named = |failure: &String| failure.starts_with("counted and predicted ledgers differ: rank ");
    assert!(report.failures.iter().any(named), "{:?}", report.failures);
}

#[test]
fn evaluation_names_what_was_not_counted_as_predicted() {
    let training = program(&model(1), "x=2,data=2", Activations::Scattered, Overlap::NONE, 8, 2);
    let whole = StepProgram::evaluation(&training.model, &training.layout).unwrap();
    let less = with_less(&whole, 0, |operation| matches!(operation, Operation::ReduceScalar(_)));
    let differs = |program: &StepProgram| {
        let batch = random_samples(program);
        let samples = program.layout.global_batch as u64;
        evaluate_on_cpu(program, &forward_options(1), &drawn(SEED), samples, &batch, &|_| ()).unwrap().difference
    };
    assert_eq!(differs(&whole), None);
    let difference = differs(&less).unwrap();
    assert!(difference.what.contains("all-reduce over ") && difference.counted < difference.predicted, "{difference}");
}

#[test]
fn generation_tells_of_what_was_not_counted_as_predicted() {
    let model = model(2);
    let run = forward_options(1);
    let layout = layout_with(&model, "x=2,pipe=2", 8, |_| ());
    let options = GenerateOptions::greedy(1);
    let prompts = [vec![1], vec![2]];
    let whole = GenerationPrograms::new(&model, &layout, &options, &prompts).unwrap();
    // Neither stage takes part in the broadcast of the logits.
    let prefill = [0, 1].into_iter().fold(whole.prefill.clone(), |program, stage| {
        let issued = |operation: &Operation| matches!(operation, Operation::Issue(each) if each.kind == BROADCAST);
        let awaited = |operation: &Operation| matches!(operation, Operation::Wait(each) if each.kind == BROADCAST);
        with_less(&with_less(&program, stage, issued), stage, awaited)
    });
    let less = GenerationPrograms { prefill, decode: whole.decode.clone() };
    let differs = |programs: &GenerationPrograms| {
        let outcome = generate_on_cpu(programs, &options, &run, &drawn(SEED), &prompts, &mut |_, _| Ok(()));
        outcome.unwrap().difference
    };
    assert_eq!(differs(&whole), None);
    let difference = differs(&less).unwrap();
    assert!(difference.counted < difference.predicted, "{difference}");
}
