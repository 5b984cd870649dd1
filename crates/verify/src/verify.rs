//! The proof: a layout's losses, gradients, norms and updated weights held against the serial model's.

use std::time::Duration;

use half::{bf16, f16};
use quadrille_comm::{JobOptions, World, run_job};
use quadrille_engine::{
    Backend, Cpu, EngineError, Evaluation, Hyper, InitialValues, RankEngine, StepOutcome, random_batch,
};
use quadrille_spec::{Activation, Algorithm, Block, Choice, ElementType, LedgerDifference, Routing, SpecError};
use quadrille_step::{StepProgram, predict_routed};
use serde::{Deserialize, Serialize};

use crate::comparison::Comparison;
use crate::{Reference, VerifyReport};

/// How a layout is verified.
#[derive(Debug, Clone)]
pub struct VerifyOptions {
    /// Optimizer steps.
    pub steps: u64,
    /// Keys weights, tokens and dropout.
    pub seed: u64,
    /// Optimizer and schedule.
    pub hyper: Hyper,
    /// Threads of each rank.
    pub threads: usize,
    /// How long a collective may wait for a rank.
    pub timeout: Duration,
    /// By which algorithms collectives run.
    pub collectives: Choice,
    /// Where ranks are processes; `None`: they are threads of this one.
    pub world: Option<World>,
}

impl VerifyOptions {
    /// A step length and an epsilon with which AdamW does not blow up rounding: with an epsilon near the size of the
    /// gradients' rounding, two correct runs part after few steps.
    pub const HYPER: Hyper = Hyper { learning_rate: 1e-3, epsilon: 1e-6, ..Hyper::DEFAULT };

    /// So many steps, at least one, with [`HYPER`](Self::HYPER), on ranks that are threads. Four have the warm-up, the peak,
    /// the decay and the end of the learning rate's schedule.
    pub fn new(steps: u64, seed: u64) -> Self {
        let warmup_steps = Self::HYPER.warmup_steps.min(steps / 2);
        Self {
            steps,
            seed,
            hyper: Hyper { steps, warmup_steps, ..Self::HYPER },
            threads: 1,
            timeout: Duration::from_secs(300),
            collectives: Choice::Always(Algorithm::Native),
            world: None,
        }
    }
}

/// The largest differences allowed, and what a layout is held against.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tolerance {
    /// For the loss of a step and of an evaluation.
    pub loss: f64,
    /// For every parameter's gradient.
    pub gradients: f64,
    /// Whether gradients are measured by the root of their squares, at least by a tenth of that of the whole gradient; else
    /// by their largest element. An element that is the difference of large numbers, or on the other side of a kink, is no
    /// measure of what they were rounded to.
    pub by_norm: bool,
    /// For their norm.
    pub norm: f64,
    /// For what the optimizer has updated: masters, where weights are stored in 16 bits.
    pub weights: f64,
    /// Whether the serial model takes each step from the layout's own weights, and updates them by the layout's own
    /// gradients; else it goes its own way.
    pub steps_apart: bool,
}

impl Tolerance {
    /// 1e-11 for everything: f64 runs.
    pub const F64: Self =
        Self { loss: 1e-11, gradients: 1e-11, by_norm: false, norm: 1e-11, weights: 1e-11, steps_apart: false };
    /// 5e-5 for loss, gradients and norm, 1e-6 for what the update makes of the gradients: f32 runs. AdamW divides small
    /// gradients by their own size, so that weights after a few steps are no measure there.
    pub const F32: Self =
        Self { loss: 5e-5, gradients: 5e-5, by_norm: false, norm: 5e-5, weights: 1e-6, steps_apart: true };
    /// Of values stored in bf16, computed in f32: the serial model has the layout's rounded weights, and nothing else of it is
    /// rounded. Four times the worst of a thousand random layouts of models so small that rounding is largest in them
    /// (7.7e-4, 1.6e-1 and 1.6e-2).
    pub const BF16: Self = Self { loss: 3e-3, gradients: 6e-1, by_norm: true, norm: 6e-2, ..Self::F32 };
    /// The same in f16, without functions that have a kink (1.1e-4, 2.2e-2 and 8.5e-3).
    pub const F16: Self = Self { loss: 5e-4, gradients: 1e-1, by_norm: true, norm: 3.5e-2, ..Self::F32 };

    /// For gradients in 16 bits of functions with a kink: an input near zero may be rounded to its other side, where the
    /// gradient is another.
    const KINKED: f64 = 6e-1;

    /// For layouts of a program's type of values.
    pub fn of(program: &StepProgram) -> Self {
        let kinked = |block: &Block| matches!(block.perceptron.activation, Activation::Relu | Activation::Reglu);
        let narrow = match program.layout.dtype {
            ElementType::F32 => return Self::F32,
            ElementType::F64 => return Self::F64,
            ElementType::Bf16 => Self::BF16,
            ElementType::F16 => Self::F16,
        };
        match program.model.blocks.kinds().iter().any(kinked) {
            true => Self { gradients: Self::KINKED, ..narrow },
            false => narrow,
        }
    }
}

/// What a rank found in one step.
#[derive(Serialize, Deserialize)]
pub(crate) struct RankStep {
    pub outcome: StepOutcome,
    pub gradients: Vec<Vec<f64>>,
    pub weights: Vec<Vec<f64>>,
    /// Of the parameters that have any.
    pub masters: Vec<Option<Vec<f64>>>,
    pub difference: Option<LedgerDifference>,
}

/// What a rank found.
#[derive(Serialize, Deserialize)]
pub(crate) struct RankRun {
    pub steps: Vec<RankStep>,
    /// After the last step.
    pub evaluation: Evaluation,
    pub evaluation_difference: Option<LedgerDifference>,
}

/// Runs the layout for some steps and compares each with the serial model, as `tolerance` says; then the loss of an
/// evaluation.
///
/// # Errors
/// No step; a rank that failed.
pub fn verify<B: Backend>(
    program: &StepProgram,
    options: &VerifyOptions,
    tolerance: Tolerance,
    reference: &mut Reference,
) -> Result<VerifyReport, EngineError> {
    if options.steps == 0 {
        return Err(SpecError::invalid("steps", 0, "a proof takes at least one step", "give a positive number").into());
    }
    let runs = run_layout::<B>(program, options)?;
    let mut comparison = Comparison::new(program, tolerance);
    let mut beside = tolerance.steps_apart.then(|| reference.beside(program.layout.dtype));
    for step in 1..=options.steps {
        let ranks: Vec<&RankStep> = runs.iter().map(|run| &run.steps[step as usize - 1]).collect();
        if let Some(beside) = &mut beside {
            let gradients = comparison.gradients(&ranks);
            comparison.step(&ranks, &reference.step_beside(step, beside, &gradients));
            (beside.weights, beside.masters) = (comparison.weights(&ranks), comparison.masters(&ranks));
        } else {
            comparison.step(&ranks, reference.step(step));
        }
    }
    let samples = samples_to_evaluate(program);
    let evaluation = match beside {
        Some(beside) => reference.evaluate(&beside.weights, samples),
        None => reference.evaluation(options.steps, samples),
    };
    runs.iter().for_each(|run| comparison.evaluation(run, evaluation));
    Ok(comparison.report())
}

/// [`verify`] on the processor, in the layout's own type of elements and with its tolerance.
///
/// # Errors
/// As there.
pub fn verify_on_cpu(
    program: &StepProgram,
    options: &VerifyOptions,
    reference: &mut Reference,
) -> Result<VerifyReport, EngineError> {
    let tolerance = Tolerance::of(program);
    match program.layout.dtype {
        ElementType::F32 => verify::<Cpu<f32>>(program, options, tolerance, reference),
        ElementType::F64 => verify::<Cpu<f64>>(program, options, tolerance, reference),
        ElementType::Bf16 => verify::<Cpu<bf16>>(program, options, tolerance, reference),
        ElementType::F16 => verify::<Cpu<f16>>(program, options, tolerance, reference),
    }
}

/// A batch and one sample more: the mean goes over several batches, and the last one is incomplete if it can be.
fn samples_to_evaluate(program: &StepProgram) -> u64 {
    program.layout.global_batch as u64 + 1
}

/// Takes part in a [`verify_on_cpu`] that runs in the process of another rank, which compares.
///
/// # Errors
/// A rank that failed.
pub fn take_part_on_cpu(program: &StepProgram, options: &VerifyOptions) -> Result<(), EngineError> {
    match program.layout.dtype {
        ElementType::F32 => run_layout::<Cpu<f32>>(program, options).map(|_| ()),
        ElementType::F64 => run_layout::<Cpu<f64>>(program, options).map(|_| ()),
        ElementType::Bf16 => run_layout::<Cpu<bf16>>(program, options).map(|_| ()),
        ElementType::F16 => run_layout::<Cpu<f16>>(program, options).map(|_| ()),
    }
}

fn run_layout<B: Backend>(program: &StepProgram, options: &VerifyOptions) -> Result<Vec<RankRun>, EngineError> {
    let routing = Routing::of(&program.layout, &options.collectives);
    let forward = StepProgram::evaluation(&program.model, &program.layout)?;
    let [predicted, of_evaluation] = [program, &forward].map(|program| predict_routed(program, &routing));
    let batch = random_batch(&program.model, options.seed, program.layout.seq_len);
    let ranks = program.layout.grid.ranks();
    let world = options.world.clone();
    let job = JobOptions { timeout: options.timeout, routing, world, ..JobOptions::new(ranks) };
    Ok(run_job(&job, |context| {
        let initial = InitialValues::Perturbed;
        let mut engine = RankEngine::<B>::new(program, context, options.threads, options.hyper, options.seed, initial)?;
        let mut steps = Vec::new();
        for _ in 0..options.steps {
            let outcome = engine.step(&batch)?;
            let difference = predicted.ranks[context.rank()].difference(&engine.take_ledger());
            let (gradients, weights, masters) = (engine.gradients()?, engine.weights()?, engine.masters()?);
            steps.push(RankStep { outcome, gradients, weights, masters, difference });
        }
        let mut evaluator = engine.evaluator(&forward)?;
        let evaluation = engine.evaluate(&mut evaluator, samples_to_evaluate(program), &batch)?;
        let predicted = &of_evaluation.ranks[context.rank()];
        let evaluation_difference = evaluator.ledger().and_then(|counted| predicted.difference(counted));
        Ok(RankRun { steps, evaluation, evaluation_difference })
    })?)
}

#[cfg(test)]
mod tests {
    use quadrille_spec::{Layout, LayoutRequest, Model};

    use super::*;

    #[test]
    fn four_steps_see_the_whole_schedule_and_none_prove_nothing() {
        let VerifyOptions { hyper, .. } = VerifyOptions::new(4, 1);
        let rates: Vec<f64> = (1..=4).map(|step| quadrille_engine::schedule(&hyper, step)).collect();
        assert!(rates[0] < rates[1] && rates[1] > rates[2] && rates[2] > rates[3], "{rates:?}");

        let model = Model::preset("gpt-tiny").unwrap();
        let layout = Layout::new(&model, &LayoutRequest::new("x=2".parse().unwrap(), 2)).unwrap();
        let program = StepProgram::new(&model, &layout).unwrap();
        let options = VerifyOptions::new(0, 1);
        let error = verify_on_cpu(&program, &options, &mut Reference::new(&program, &options)).unwrap_err();
        assert!(error.to_string().contains("a proof takes at least one step"), "{error}");
    }
}
