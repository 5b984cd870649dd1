//! Short runs: against the serial model, and for their bits.

use std::time::Duration;

use proptest::test_runner::TestCaseError;
use quadrille_engine::{
    Device, EngineError, Held, Hyper, ObserveOptions, Observed, ObservedStep, Samples, observe_on_cpu, random_batch,
};
use quadrille_spec::{Algorithm, Choice, ElementType, RankLedger};
use quadrille_step::{Practice, StepProgram};
use quadrille_verify::{Reference, VerifyOptions, VerifyReport, verify_on, verify_on_cpu};

use crate::Case;

/// How long a collective may wait: much longer than any of these runs.
const TIMEOUT: Duration = Duration::from_secs(120);
/// Keys weights and tokens of [`prove`] and [`trajectory`].
pub const SEED: u64 = 11;

/// Full learning rate from the first step, so that the second step sees moved weights. AdamW divides a gradient near
/// zero, and its rounding error, by epsilon: the usual 1e-8 would let the second step differ by more than rounding.
pub fn hyper(clip: Option<f64>) -> Hyper {
    Hyper { learning_rate: 1e-3, warmup_steps: 0, steps: 10, epsilon: 1e-6, clip, ..Hyper::default() }
}

/// Holds `program` against the serial model over `steps` steps, with the tolerance of its element type.
///
/// # Errors
/// A rank that failed.
pub fn prove(program: &StepProgram, steps: u64) -> Result<VerifyReport, EngineError> {
    prove_within(program, steps, TIMEOUT)
}

/// [`prove`] where no rank may wait for others longer than `timeout`.
///
/// # Errors
/// A rank that failed.
pub fn prove_within(program: &StepProgram, steps: u64, timeout: Duration) -> Result<VerifyReport, EngineError> {
    verify_as(program, VerifyOptions { timeout, ..options(steps) })
}

/// Compares `program` with the serial model of another program, trained with other constants of the optimizer. Both have
/// tensors of the same names and shapes.
///
/// # Errors
/// A rank that failed.
pub fn prove_against(
    program: &StepProgram,
    expected: &StepProgram,
    constants: Hyper,
    steps: u64,
) -> Result<VerifyReport, EngineError> {
    let options = options(steps);
    let mut reference = Reference::new(expected, &VerifyOptions { hyper: constants, ..options.clone() });
    verify_on_cpu(program, &options, &mut reference)
}

/// Options of [`prove`].
fn options(steps: u64) -> VerifyOptions {
    VerifyOptions {
        steps,
        seed: SEED,
        sparsity: None,
        hyper: hyper(Some(0.1)),
        states: None,
        threads: 1,
        timeout: TIMEOUT,
        collectives: Choice::Always(Algorithm::Native),
        world: None,
    }
}

/// Holds a random case against the serial model over two steps.
///
/// # Errors
/// The difference, for proptest to report and make smaller.
pub fn holds(case: &Case, dtype: ElementType) -> Result<(), TestCaseError> {
    judge(&case.program(dtype), case)
}

/// The same for the case's program by another practice.
///
/// # Errors
/// As [`holds`].
pub fn holds_by(case: &Case, practice: Practice, dtype: ElementType) -> Result<(), TestCaseError> {
    judge(&case.program_by(practice, dtype), case)
}

fn judge(program: &StepProgram, case: &Case) -> Result<(), TestCaseError> {
    match verified(program, case) {
        Ok(report) if report.ok => Ok(()),
        Ok(report) => Err(TestCaseError::fail(format!("{report:?}"))),
        Err(error) => Err(TestCaseError::fail(error.to_string())),
    }
}

/// Holds a program of a random case against the serial model over two steps.
///
/// # Errors
/// A rank that failed.
pub fn verified(program: &StepProgram, case: &Case) -> Result<VerifyReport, EngineError> {
    verify_as(program, options_of(program, case))
}

/// The same on another device.
///
/// # Errors
/// A rank that failed.
pub fn verified_on(device: &dyn Device, program: &StepProgram, case: &Case) -> Result<VerifyReport, EngineError> {
    let options = options_of(program, case);
    verify_on(device, program, &options, &mut Reference::new(program, &options))
}

/// Two steps of a random case.
fn options_of(program: &StepProgram, case: &Case) -> VerifyOptions {
    VerifyOptions {
        steps: 2,
        seed: case.seed,
        sparsity: case.sparsity.filter(|_| !program.kept.is_empty()),
        hyper: hyper(case.clip),
        states: None,
        threads: case.threads,
        timeout: TIMEOUT,
        collectives: case.collectives.clone(),
        world: None,
    }
}

fn verify_as(program: &StepProgram, options: VerifyOptions) -> Result<VerifyReport, EngineError> {
    verify_on_cpu(program, &options, &mut Reference::new(program, &options))
}

/// The batches of [`prove`] and [`trajectory`].
pub fn random_samples(program: &StepProgram) -> impl Fn(u64, usize, Samples) -> Result<(), EngineError> + Sync + use<> {
    random_batch(&program.model, SEED, program.layout.seq_len)
}

/// The bits of a step's loss and gradient norm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    /// Mean loss.
    pub loss: u64,
    /// Global gradient norm.
    pub norm: u64,
}

/// What a rank went through.
#[derive(Debug, Clone, PartialEq)]
pub struct Trajectory {
    /// By step.
    pub outcomes: Vec<Outcome>,
    /// The bits of its shards before the first step, by parameter.
    pub start: Vec<Vec<u64>>,
    /// The same after the last step.
    pub weights: Vec<Vec<u64>>,
    /// The bits of its gradient shards of the last step.
    pub gradients: Vec<Vec<u64>>,
    /// The counted ledger of the last step; empty after none.
    pub ledger: Option<RankLedger>,
}

/// Runs `steps` steps on every rank with `threads` threads each and keeps every bit.
///
/// # Errors
/// A rank that failed.
pub fn trajectory(program: &StepProgram, steps: u64, threads: usize) -> Result<Vec<Trajectory>, EngineError> {
    trajectory_with(program, steps, threads, hyper(Some(0.1)))
}

/// [`trajectory`] with another optimizer.
///
/// # Errors
/// A rank that failed.
pub fn trajectory_with(
    program: &StepProgram,
    steps: u64,
    threads: usize,
    hyper: Hyper,
) -> Result<Vec<Trajectory>, EngineError> {
    let options = ObserveOptions {
        steps,
        every_step: false,
        evaluation: None,
        seed: SEED,
        masks: None,
        hyper,
        states: None,
        threads,
        timeout: TIMEOUT,
        collectives: Choice::Always(Algorithm::Native),
        world: None,
    };
    Ok(observe_on_cpu(program, &options)?.into_iter().map(Trajectory::from).collect())
}

impl From<Observed> for Trajectory {
    fn from(run: Observed) -> Self {
        let bits = |held: &[Held]| -> Vec<Vec<u64>> {
            held.iter().map(|held| held.numbers.iter().map(|element| element.to_bits()).collect()).collect()
        };
        let outcome = |step: &ObservedStep| Outcome {
            loss: step.outcome.loss.to_bits(),
            norm: step.outcome.gradient_norm.to_bits(),
        };
        let last = run.steps.last();
        Self {
            outcomes: run.steps.iter().map(outcome).collect(),
            start: bits(&run.start),
            weights: bits(last.map_or(&run.start, |last| &last.weights)),
            gradients: last.map_or_else(Vec::new, |last| bits(&last.gradients)),
            ledger: last.map(|last| last.ledger.clone()),
        }
    }
}

/// What a run of two steps computed, without what it counted.
///
/// # Panics
/// If a rank failed.
pub fn bits(program: &StepProgram) -> Vec<Trajectory> {
    let ranks = trajectory(program, 2, 1).unwrap_or_else(|error| panic!("{:?}: {error}", program.layout));
    ranks.into_iter().map(|rank| Trajectory { ledger: None, ..rank }).collect()
}
