//! Programs of evaluation: the serial model's loss in every layout, ledgers as predicted, and training that does not notice
//! evaluations between its steps.

use proptest::test_runner::TestCaseError;
use quadrille_comm::{JobOptions, run_ranks};
use quadrille_engine::{
    Cpu, EngineError, Evaluation, ForwardOptions, InitialValues, RankEngine, Samples, evaluate_on_cpu, random_batch,
};
use quadrille_oracle as oracle;
use quadrille_proofs::{
    Case, SEED, cases, combined_cases, drawn, edited_stage, for_random, hyper, layout_with, llama, model, vit,
};
use quadrille_spec::{
    Activations, IGNORED, KeepWeights, Layout, LayoutRequest, MemoryClass, Model, RankLedger, Recompute, Schedule, Zero,
};
use quadrille_step::{Operation, StepProgram, predict};
use quadrille_verify::SerialBatch;

/// Random samples by their number alone, whatever batches of `global_batch` they are read in.
fn numbered(
    model: &Model,
    seed: u64,
    seq_len: usize,
    global_batch: usize,
) -> impl Fn(u64, usize, Samples) -> Result<(), EngineError> + Sync + use<> {
    let source = random_batch(model, seed, seq_len);
    let elements = seq_len * model.patch_values.unwrap_or(1);
    move |step: u64, first: usize, samples: Samples| {
        let first = (step - 1) * global_batch as u64 + first as u64;
        (first..).zip(samples.sequences(elements)).try_for_each(|(number, sample)| source(number + 1, 0, sample))
    }
}

/// The serial model's mean loss over those samples, one by one, and how many targets it is of.
fn serial(program: &StepProgram, seed: u64, samples: u64) -> (f64, u64) {
    let model = &program.model;
    let seq_len = program.layout.seq_len;
    let source = numbered(model, seed, seq_len, 1);
    let sample = |step| SerialBatch::new(model, 1, seq_len, |sample| source(step, 0, sample).unwrap());
    let batches: Vec<SerialBatch> = (1..=samples).map(sample).collect();
    oracle::mean_loss(model, &oracle::initial(model, seed, true), batches.iter().map(SerialBatch::get))
}

/// Whether the program's loss is the serial model's, over the same targets, and its ledgers are the predicted ones.
fn holds(program: &StepProgram, run: &ForwardOptions, seed: u64, samples: u64) -> Result<(), String> {
    let layout = &program.layout;
    let batch = numbered(&program.model, seed, layout.seq_len, layout.global_batch);
    let outcome = evaluate_on_cpu(program, run, &drawn(seed), samples, &batch, &|_| ());
    let outcome = outcome.map_err(|error| error.to_string())?;
    let expected = serial(program, seed, samples);
    let Evaluation { loss, targets, .. } = outcome.evaluation;
    if targets != expected.1 || (loss - expected.0).abs() > 1e-11 * expected.0 {
        return Err(format!("{:?} instead of {expected:?}", outcome.evaluation));
    }
    outcome.difference.map_or(Ok(()), |difference| Err(difference.to_string()))
}

/// Two batches, the last of which may be incomplete.
fn two_batches(program: &StepProgram, seed: u64) -> u64 {
    let batch = program.layout.global_batch as u64;
    batch + 1 + seed % batch
}

fn case_holds(case: Case) -> Result<(), TestCaseError> {
    let program = StepProgram::evaluation(&case.model, &case.layout).unwrap();
    let collectives = case.collectives;
    let run = ForwardOptions { threads: case.threads, collectives, ..ForwardOptions::default() };
    let samples = two_batches(&program, case.seed);
    holds(&program, &run, case.seed, samples).map_err(TestCaseError::fail)
}

#[test]
fn layouts_give_the_serial_models_loss() {
    for_random(60, cases(), case_holds);
}

#[test]
fn combined_layouts_give_the_serial_models_loss() {
    for_random(60, combined_cases(), case_holds);
}

/// Batches that divide the samples or not, that are larger than all of them, of several microbatches, and cut over every
/// axis: the loss is that of the samples.
#[test]
fn no_sample_is_lost_or_counted_twice_in_any_batch() {
    let layouts: [(&str, usize, Option<usize>); 10] = [
        ("x=1", 1, None),
        ("x=1", 5, None),
        ("x=1", 12, Some(4)),
        ("x=2,y=2", 8, None),
        ("data=4", 8, Some(1)),
        ("data=4", 32, None),
        ("z=2,pipe=2", 8, Some(2)),
        ("context=2,data=2", 6, Some(3)),
        ("expert=2,data=2", 8, Some(1)),
        ("x=2,z=2,data=2,pipe=2", 16, Some(4)),
    ];
    for model in [model(2), llama(2), vit(2)] {
        for (grid, global_batch, microbatch) in layouts {
            let layout = layout_with(&model, grid, global_batch, |request| request.microbatch = microbatch);
            let program = StepProgram::evaluation(&model, &layout).unwrap();
            for samples in [13, 12] {
                let held = holds(&program, &ForwardOptions::default(), SEED, samples);
                held.unwrap_or_else(|error| panic!("{samples} samples on {grid} by {global_batch}: {error}"));
            }
        }
    }
}

/// A layout with everything that concerns the backward pass.
fn everything(request: &mut LayoutRequest) {
    (request.recompute, request.keep_communicated) = (Recompute::Full { every: 1 }, true);
    (request.zero, request.keep_weights) = (Zero::Gradients, KeepWeights::Step);
}

#[test]
fn what_concerns_the_backward_pass_changes_nothing_but_padding() {
    let model = Model { dropout: 0.3, ..model(2) };
    for schedule in [Schedule::Gpipe, Schedule::ZeroBubble, Schedule::MessageDriven] {
        let with = layout_with(&model, "z=2,data=2,pipe=2", 16, |request| {
            everything(request);
            (request.schedule, request.keep_weights) = (schedule, KeepWeights::Use);
        });
        let without = Layout {
            recompute: Recompute::None,
            keep_communicated: false,
            schedule: Schedule::OneForwardOneBackward,
            ..with.clone()
        };
        let programs = [with, without].map(|layout| StepProgram::evaluation(&model, &layout).unwrap());
        let ledgers = programs.each_ref().map(predict);
        assert_eq!(ledgers[0], ledgers[1], "{schedule}");
        holds(&programs[0], &ForwardOptions::default(), 3, two_batches(&programs[0], 3)).unwrap();
    }
}

#[test]
fn an_evaluation_holds_parameters_and_little_else() {
    let program = |evaluates: bool| {
        let layout = layout_with(&model(2), "x=2,data=2", 8, |request| request.zero = Zero::Optimizer);
        if evaluates { StepProgram::evaluation(&model(2), &layout) } else { StepProgram::new(&model(2), &layout) }
    };
    let [evaluation, training] = [true, false].map(|evaluates| predict(&program(evaluates).unwrap()));
    for (evaluation, training) in evaluation.ranks.iter().zip(&training.ranks) {
        let bytes = |ledger: &RankLedger, class| ledger.memory.peak_of[&class];
        assert_eq!(bytes(evaluation, MemoryClass::Parameters), bytes(training, MemoryClass::Parameters));
        assert_eq!(bytes(evaluation, MemoryClass::Gradients) + bytes(evaluation, MemoryClass::Optimizer), 0);
        assert!(bytes(evaluation, MemoryClass::Activations) * 2 < bytes(training, MemoryClass::Activations));
        assert_eq!(evaluation.flops.gemm_forward, training.flops.gemm_forward);
        assert_eq!(evaluation.flops.gemm_forward + evaluation.flops.attention_forward, evaluation.flops.total());
    }
}

/// What a rank went through in three steps: bits of losses and weights, whether its ledgers were as predicted, and the
/// losses of evaluations.
type Steps = (Vec<u64>, Vec<Vec<u64>>, bool, Vec<f64>);

fn train(program: &StepProgram, evaluation: Option<&StepProgram>) -> Vec<Steps> {
    let batch = random_batch(&program.model, SEED, program.layout.seq_len);
    let predicted = predict(program);
    let of_evaluation = evaluation.map(predict);
    let samples = evaluation.map_or(0, |program| program.layout.global_batch as u64);
    let job = JobOptions::new(program.layout.grid.ranks());
    run_ranks(&job, |context| {
        let rank = context.rank();
        let mut engine = RankEngine::<Cpu<f64>>::new(program, context, 2, hyper(None), SEED, InitialValues::Perturbed)?;
        let mut evaluator = evaluation.map(|program| engine.evaluator(program)).transpose()?;
        let mut losses = Vec::new();
        let mut equal = true;
        let mut evaluated = Vec::new();
        for _ in 0..3 {
            if let Some(evaluator) = &mut evaluator {
                evaluated.push(engine.evaluate(evaluator, samples, &batch)?.loss);
                equal &= evaluator.counted().map(|(ledger, _)| ledger)
                    == of_evaluation.as_ref().map(|ledger| &ledger.ranks[rank]);
            }
            losses.push(engine.step(&batch)?.loss.to_bits());
            if let Some(evaluator) = &mut evaluator {
                // Before the step's ledger is taken.
                engine.evaluate(evaluator, 2 * samples, &batch)?;
            }
            equal &= engine.take_ledger() == predicted.ranks[rank];
        }
        let weights =
            engine.weights()?.iter().map(|held| held.numbers.iter().map(|each| each.to_bits()).collect()).collect();
        Ok((losses, weights, equal, evaluated))
    })
    .unwrap()
}

/// A grid, and choices of its layout.
type Choices = (&'static str, fn(&mut LayoutRequest));

#[test]
fn evaluations_between_steps_change_no_bit_of_training() {
    let layouts: [Choices; 5] = [
        ("x=1", |_| ()),
        ("x=2,y=2,z=2", |request| request.keep_weights = KeepWeights::Step),
        ("context=2,data=2", |request| request.zero = Zero::Gradients),
        ("z=2,data=2,pipe=2", everything),
        ("x=2,pipe=2", |request| {
            (request.schedule, request.activations) = (Schedule::MessageDriven, Activations::Replicated);
        }),
    ];
    for model in [model(2), llama(2), vit(2)] {
        for (grid, choose) in layouts {
            let layout = layout_with(&model, grid, 16, choose);
            let program = StepProgram::new(&model, &layout).unwrap();
            let evaluation = StepProgram::evaluation(&model, &layout).unwrap();
            let plain = train(&program, None);
            let evaluated = train(&program, Some(&evaluation));
            for (plain, evaluated) in plain.iter().zip(&evaluated) {
                assert!(plain.2 && evaluated.2, "{grid}: ledgers");
                assert_eq!((&plain.0, &plain.1), (&evaluated.0, &evaluated.1), "{grid}");
                // Without dropout: of the first batch, which each evaluation reads, the first step's loss.
                let first = f64::from_bits(evaluated.0[0]);
                assert!((evaluated.3[0] - first).abs() <= 1e-13 * first, "{grid}: {} {first}", evaluated.3[0]);
                assert!(evaluated.3.windows(2).all(|losses| losses[0] != losses[1]), "{grid}: {:?}", evaluated.3);
            }
        }
    }
}

#[test]
fn another_batch_size_evaluates_the_same_weights() {
    let model = model(2);
    let layout = layout_with(&model, "x=2,data=2", 8, |_| ());
    let program = StepProgram::new(&model, &layout).unwrap();
    let small = layout_with(&model, "x=2,data=2", 4, |_| ());
    let evaluation = StepProgram::evaluation(&model, &small).unwrap();
    assert!(train(&program, Some(&evaluation)).iter().all(|rank| rank.2));
}

#[test]
fn an_evaluation_reads_its_own_batches() {
    let model = model(1);
    let layout = layout_with(&model, "x=2,data=2", 4, |_| ());
    let program = StepProgram::new(&model, &layout).unwrap();
    let evaluation = StepProgram::evaluation(&model, &layout).unwrap();
    let batches = [1, 2].map(|seed| random_batch(&model, seed, layout.seq_len));
    let losses = run_ranks(&JobOptions::new(layout.grid.ranks()), |context| {
        let mut engine =
            RankEngine::<Cpu<f64>>::new(&program, context, 1, hyper(None), SEED, InitialValues::Perturbed)?;
        let mut evaluator = engine.evaluator(&evaluation)?;
        Ok([0, 1, 0].map(|which| engine.evaluate(&mut evaluator, 1, &batches[which]).map(|found| found.loss.to_bits())))
    });
    for losses in losses.unwrap() {
        let [first, second, again] = losses.map(Result::unwrap);
        assert!(first == again && first != second, "{first} {second} {again}");
    }
}

/// What is wrong without the operations that are meant.
type Left = (&'static str, fn(&Operation) -> bool);

#[test]
fn a_broken_program_does_not_pass() {
    let model = Model { dropout: 0.5, ..llama(2) };
    let layout = layout_with(&model, "x=2,data=2", 8, |request| request.zero = Zero::Optimizer);
    let program = StepProgram::evaluation(&model, &layout).unwrap();
    let run = ForwardOptions::default();
    assert_eq!(holds(&program, &run, SEED, 13), Ok(()));
    let broken: [Left; 3] = [
        ("the loss is not summed over ranks", |operation| matches!(operation, Operation::ReduceScalar(_))),
        ("queries and keys are not turned", |operation| matches!(operation, Operation::Rotate(_))),
        ("attention is left out", |operation| matches!(operation, Operation::Attention(_))),
    ];
    for (what, dropped) in broken {
        let program = edited_stage(&program, 0, |stage| {
            let forward = &mut stage.chunks[0].forward.ops;
            let at = forward.iter().position(|op| dropped(&op.operation));
            match at {
                Some(at) => drop(forward.remove(at)),
                None => stage.update.ops.retain(|op| !dropped(&op.operation)),
            }
        });
        assert!(holds(&program, &run, SEED, 13).is_err(), "{what}");
    }
}

/// Samples of which those from number `from` on have targets, on one rank in batches of two.
fn with_targets_from(from: u64, samples: u64) -> Result<u64, EngineError> {
    let layout = layout_with(&model(1), "x=1", 2, |_| ());
    let program = StepProgram::evaluation(&model(1), &layout).unwrap();
    let source = random_batch(&model(1), SEED, layout.seq_len);
    let batch = |step: u64, first: usize, samples: Samples| -> Result<(), EngineError> {
        let (inputs, targets) = samples.tokens()?;
        source(step, first, Samples::Tokens { inputs: &mut *inputs, targets: &mut *targets })?;
        let number = (step - 1) * 2 + first as u64;
        for (number, targets) in (number..).zip(targets.chunks_mut(layout.seq_len)) {
            targets.fill(if number < from { IGNORED } else { 1 });
        }
        Ok(())
    };
    let outcome = evaluate_on_cpu(&program, &ForwardOptions::default(), &drawn(1), samples, &batch, &|_| ())?;
    Ok(outcome.evaluation.targets)
}

#[test]
fn batches_without_a_target_are_passed_over() {
    let seq_len = model(1).seq_len as u64;
    assert_eq!(with_targets_from(3, 5).unwrap(), 2 * seq_len);
}

#[test]
fn evaluations_without_a_target_are_refused() {
    let error = with_targets_from(9, 5).unwrap_err();
    assert!(error.to_string().contains("no target of 5 samples counts"), "{error}");
}
