//! A rank that fails or is late ends the job, and the error names it, its layer and its operation.
//!
//! Where the timeout is ten minutes, the end of the test itself shows that no rank waited for it.

use std::thread::sleep;
use std::time::Duration;

use quadrille_engine::{BatchSource, EngineError, Samples, TrainOptions, train_on_cpu};
use quadrille_proofs::{edited, hyper, model, program, random_samples, vit};
use quadrille_spec::{Activations, Overlap};
use quadrille_step::{Layer, Operation, StepProgram};

const NO_WAITING: Duration = Duration::from_secs(600);

/// Four ranks in two microbatches: rank 0 reads sequences 0 and 2, rank 1 1 and 3, rank 2 4 and 6, rank 3 5 and 7.
fn four_ranks() -> StepProgram {
    program(&model(1), "z=2,data=2", Activations::Scattered, Overlap::ALL, 8, 2)
}

/// The error of three steps.
fn failure(program: &StepProgram, timeout: Duration, batch: &BatchSource) -> String {
    let options = TrainOptions { timeout, ..TrainOptions::new(3, hyper(None), 1) };
    train_on_cpu(program, &options, batch, None, &mut |_| Ok(())).unwrap_err().to_string()
}

fn assert_contains(message: &str, parts: &[&str]) {
    for part in parts {
        assert!(message.contains(part), "{part:?} is not in: {message}");
    }
}

#[test]
fn a_rank_without_data_is_named() {
    let program = four_ranks();
    let tokens = random_samples(&program);
    let batch = |step: u64, first: usize, samples: Samples| match (step, first) {
        (2, 7) => Err(EngineError::Diverged { step, quantity: "loss", value: f64::NAN, origin: String::new() }),
        _ => tokens(step, first, samples),
    };
    let message = failure(&program, NO_WAITING, &batch);
    assert_contains(&message, &["rank 3", "embedding", "read tokens", "the loss of step 2 is NaN"]);
}

#[test]
fn tokens_outside_the_vocabulary_are_refused() {
    let program = four_ranks();
    let tokens = random_samples(&program);
    let vocab = program.model.vocab;
    let batch = |step: u64, first: usize, samples: Samples| {
        let (inputs, targets) = samples.tokens()?;
        tokens(step, first, Samples::Tokens { inputs, targets: &mut *targets })?;
        targets[0] = vocab as u32;
        Ok(())
    };
    let message = failure(&program, NO_WAITING, &batch);
    assert_contains(&message, &["embedding", "read tokens", &format!("token {vocab} is not below the vocabulary")]);
}

#[test]
fn samples_of_another_kind_are_refused() {
    let program = program(&vit(1), "data=2", Activations::Scattered, Overlap::NONE, 4, 2);
    let batch = |_: u64, _: usize, samples: Samples| samples.tokens().map(|_| ());
    let message = failure(&program, NO_WAITING, &batch);
    assert_contains(&message, &["embedding", "read patches", "the model reads patches, and its data are tokens"]);
}

#[test]
fn a_rank_that_panics_is_named() {
    let program = four_ranks();
    let tokens = random_samples(&program);
    let batch = |step: u64, first: usize, samples: Samples| {
        assert!((step, first) != (2, 3), "the disk of sequence {first} is gone");
        tokens(step, first, samples)
    };
    let message = failure(&program, NO_WAITING, &batch);
    assert_contains(&message, &["rank 1", "embedding", "read tokens", "panicked", "the disk of sequence 3 is gone"]);
}

#[test]
fn a_late_rank_is_named() {
    let program = four_ranks();
    let tokens = random_samples(&program);
    let batch = |step: u64, first: usize, samples: Samples| {
        if (step, first) == (2, 4) {
            sleep(Duration::from_secs(2));
        }
        tokens(step, first, samples)
    };
    let message = failure(&program, Duration::from_millis(300), &batch);
    assert_contains(&message, &["rank 2 failed", "has waited", "late: rank 2 at embedding, read tokens"]);
}

/// Every rank fails in the same operation; whichever is first is named, with the value that is not there.
#[test]
fn an_operation_that_cannot_run_is_named() {
    let program = four_ranks();
    let forgets_to_wait = edited(&program, |forward, _, _| {
        let at =
            forward.iter().position(|op| op.layer == Layer::Block(0) && matches!(op.operation, Operation::Wait(_)));
        forward.remove(at.unwrap());
    });
    let message = failure(&forgets_to_wait, NO_WAITING, &random_samples(&program));
    assert_contains(&message, &["rank ", "block 0", "block.0.qkv.weight gathered", "in flight without a wait"]);
}
