//! Whoever compares ledgers says so when they differ: programs whose layout says f64 are run in f32, and send half the bytes
//! that are predicted.

use quadrille_engine::{
    GenerateOptions, GenerationPrograms, Reference, Tolerance, VerifyOptions, evaluate, generate, logits,
    logits_program, random_batch, verify,
};
use quadrille_proofs::{SEED, drawn, forward_options, hyper, layout_with, model, program};
use quadrille_spec::{Activations, Algorithm, Choice, Overlap};
use quadrille_step::StepProgram;

#[test]
fn verification_fails_for_its_ledgers_alone() {
    let program = program(&model(1), "x=2,data=2", Activations::Scattered, Overlap::NONE, 8, 4);
    let forward = forward_options(1);
    let options = VerifyOptions {
        steps: 1,
        seed: SEED,
        hyper: hyper(None),
        threads: 1,
        timeout: forward.timeout,
        collectives: Choice::Always(Algorithm::Native),
        world: None,
    };
    let report = verify::<f32>(&program, &options, Tolerance::F32, &mut Reference::new(&program, &options)).unwrap();
    assert!(!report.ledger_equal && !report.ok, "{report:?}");
    assert_eq!(report.failures, ["counted and predicted ledgers differ"]);
}

#[test]
fn evaluation_and_generation_tell_of_unequal_ledgers() {
    let (model, run) = (model(1), forward_options(1));
    let layout = layout_with(&model, "x=2,data=2", 8, |_| ());
    let evaluation = StepProgram::evaluation(&model, &layout).unwrap();
    let batch = random_batch(&model, SEED, layout.seq_len);
    let outcome = evaluate::<f32>(&evaluation, &run, &drawn(SEED), 1, &batch, &|_| ()).unwrap();
    assert!(!outcome.ledger_equal, "{:?}", outcome.counted);

    let (options, prompts) = (GenerateOptions::greedy(1), [vec![1]]);
    let programs = GenerationPrograms::new(&model, &layout, &options, &prompts).unwrap();
    let outcome = generate::<f32>(&programs, &options, &run, &drawn(SEED), &prompts, &mut |_, _| Ok(())).unwrap();
    assert!(!outcome.ledger_equal, "{:?}", outcome.ledger);

    let program = logits_program(&model, &layout, 2, 2).unwrap();
    assert!(!logits::<f32>(&program, &run, &drawn(SEED), &[1, 2]).unwrap().ledger_equal);
}
