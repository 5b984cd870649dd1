//! The proof: a layout's losses, gradients, norms and updated weights held against the serial model's.

use std::path::PathBuf;
use std::time::Duration;

use quadrille_comm::World;
use quadrille_engine::{
    Backend, Device, EngineError, Hyper, Masks, ObserveOptions, Observed, ObservedStep, Predictions, Processor, observe,
};
use quadrille_spec::{Activation, Algorithm, Block, Choice, ElementType, Perceptron, Routing, Sparsity, SpecError};
use quadrille_step::{StepProgram, Verdict};

use crate::comparison::Comparison;
use crate::{Reference, VerifyReport};

/// How a layout is verified.
#[derive(Debug, Clone)]
pub struct VerifyOptions {
    /// Optimizer steps.
    pub steps: u64,
    /// Keys weights, tokens, dropout and masks.
    pub seed: u64,
    /// How much of matrices and tables is pruned, by chance; `None`: nothing is. The program is one of
    /// [`VerifyOptions::pruned`].
    pub sparsity: Option<Sparsity>,
    /// Optimizer and schedule.
    pub hyper: Hyper,
    /// The folder in which every rank has a file of the states that the layout offloads; `None`: they lie in the host's memory.
    pub states: Option<PathBuf>,
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
            sparsity: None,
            hyper: Hyper { steps, warmup_steps, ..Self::HYPER },
            states: None,
            threads: 1,
            timeout: Duration::from_secs(300),
            collectives: Choice::Always(Algorithm::Native),
            world: None,
        }
    }

    /// By which masks the model is pruned, if it is.
    fn masks(&self) -> Option<Masks> {
        self.sparsity.map(|sparsity| Masks::Drawn { seed: self.seed, sparsity })
    }

    /// The program that is verified for a program of the whole model: as long as nothing is pruned, the same.
    ///
    /// # Errors
    /// A tile too large for its indices.
    pub fn pruned(&self, program: StepProgram) -> Result<StepProgram, EngineError> {
        match self.masks() {
            None => Ok(program),
            Some(masks) => Ok(StepProgram::pruned(&program.model, &program.layout, masks.counts(&program)?)?),
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
    /// by their largest element, at least by 1e-4 of that norm. An element that is the difference of large numbers, or on the
    /// other side of a kink, is no measure of what they were rounded to.
    pub by_norm: bool,
    /// For their norm.
    pub norm: f64,
    /// By how much, as a part of the largest key of a block, a key that was chosen may be below one that was not.
    pub margin: f64,
    /// For what the optimizer has updated: masters, where weights are stored in 16 bits.
    pub weights: f64,
    /// Whether the serial model takes each step from the layout's own weights, and updates them by the layout's own
    /// gradients; else it goes its own way.
    pub steps_apart: bool,
}

impl Tolerance {
    /// 1e-11 for everything: f64 runs.
    pub const F64: Self = Self {
        loss: 1e-11,
        gradients: 1e-11,
        by_norm: false,
        norm: 1e-11,
        margin: 1e-12,
        weights: 1e-11,
        steps_apart: false,
    };
    /// 5e-5 for loss, gradients and norm, 1e-6 for what the update makes of the gradients: f32 runs. AdamW divides small
    /// gradients by their own size, so that weights after a few steps are no measure there.
    pub const F32: Self = Self {
        loss: 5e-5,
        gradients: 5e-5,
        by_norm: false,
        norm: 5e-5,
        margin: 1e-5,
        weights: 1e-6,
        steps_apart: true,
    };
    /// Of values stored in bf16, computed in f32: the serial model has the layout's rounded weights, and nothing else of it is
    /// rounded. About four times the worst of a thousand random layouts of models so small that rounding is largest in them
    /// (7.7e-4, 1.6e-1 and 1.6e-2).
    pub const BF16: Self = Self { loss: 3e-3, gradients: 6e-1, by_norm: true, norm: 6e-2, margin: 1e-1, ..Self::F32 };
    /// The same in f16, without functions that have a kink (1.1e-4, 2.2e-2 and 8.5e-3).
    pub const F16: Self = Self { loss: 5e-4, gradients: 1e-1, by_norm: true, norm: 3.5e-2, margin: 1e-2, ..Self::F32 };

    /// For gradients in 16 bits of functions with a kink: an input near zero may be rounded to its other side, where the
    /// gradient is another.
    const KINKED: f64 = 6e-1;

    /// How many times what a rounding of its weights does to the serial model a layout may differ by: all that it computes
    /// is rounded, and not the weights alone.
    const ROUNDINGS: f64 = 10.0;

    /// With what roundings of the weights have done to the loss, the gradients and their norm: a model that magnifies them
    /// is no worse in parallel.
    pub(crate) fn or_moved(self, [loss, gradients, norm]: [f64; 3]) -> Self {
        let or = |limit: f64, moved: f64| limit.max(Self::ROUNDINGS * moved);
        Self { loss: or(self.loss, loss), gradients: or(self.gradients, gradients), norm: or(self.norm, norm), ..self }
    }

    /// For layouts of a program's type of values.
    pub fn of(program: &StepProgram) -> Self {
        let has_kink = |perceptron: &Perceptron| matches!(perceptron.activation, Activation::Relu | Activation::Reglu);
        let kinked = |block: &Block| block.feed_forward.perceptrons().any(has_kink);
        let narrow = match program.layout.dtype {
            ElementType::F32 => return Self::F32,
            ElementType::F64 => return Self::F64,
            ElementType::Bf16 => Self::BF16,
            ElementType::F16 => Self::F16,
        };
        if program.model.blocks.kinds().iter().any(kinked) {
            Self { gradients: Self::KINKED, ..narrow }
        } else {
            narrow
        }
    }
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
    let forward = forward(program, options)?;
    let runs = observe::<B>(program, &observed(program, options, &forward))?;
    Ok(judge([program, &forward], options, tolerance, reference, &runs))
}

/// Compares what was observed of every rank in training, and then in an evaluation.
fn judge(
    [program, forward]: [&StepProgram; 2],
    options: &VerifyOptions,
    tolerance: Tolerance,
    reference: &mut Reference,
    runs: &[Observed],
) -> VerifyReport {
    let routing = Routing::of(&program.layout, &options.collectives);
    let [trained, evaluated] = [program, forward].map(|program| Predictions::new(program, &routing));
    let mut comparison = Comparison::new(program, tolerance);
    let mut beside = tolerance.steps_apart.then(|| reference.beside(program.layout.dtype));
    for step in 1..=options.steps {
        let ranks: Vec<&ObservedStep> = runs.iter().map(|run| &run.steps[step as usize - 1]).collect();
        let verdict = ranks.first().map_or(Verdict::Kept, |rank| rank.outcome.verdict());
        comparison.ledgers(&trained, verdict, ranks.iter().map(|rank| Some((&rank.ledger, &rank.loads))));
        let decisions = comparison.decisions(&reference.present(step), &ranks);
        if let Some(beside) = &mut beside {
            let gradients = comparison.gradients(&ranks);
            let serial = reference.step_beside(step, beside, &gradients, decisions.as_ref());
            comparison.step(&ranks, &serial, decisions.as_ref());
            let others = reference.other_roundings(step, beside, program.layout.dtype, decisions.as_ref());
            comparison.roundings(&serial, &others);
            (beside.weights, beside.masters) = (comparison.weights(&ranks), comparison.masters(&ranks));
        } else {
            comparison.step(&ranks, reference.step(step), decisions.as_ref());
        }
    }
    let samples = samples_to_evaluate(program);
    let evaluation = match beside {
        Some(beside) => reference.evaluate(&beside.weights, samples),
        None => reference.evaluation(options.steps, samples),
    };
    runs.iter().for_each(|run| comparison.evaluation(run.evaluation.as_ref().map(|(found, _)| *found), evaluation));
    let counted = runs.iter().map(|run| run.evaluation.as_ref().and_then(|(_, counted)| counted.as_ref()));
    let counted = counted.map(|counted| counted.map(|(ledger, loads)| (ledger, loads)));
    comparison.ledgers(&evaluated, Verdict::Kept, counted);
    comparison.report()
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
    verify_on(&Processor, program, options, reference)
}

/// The same on any device.
///
/// # Errors
/// As there.
pub fn verify_on(
    device: &dyn Device,
    program: &StepProgram,
    options: &VerifyOptions,
    reference: &mut Reference,
) -> Result<VerifyReport, EngineError> {
    let forward = forward(program, options)?;
    let runs = device.observe(program, &observed(program, options, &forward))?;
    Ok(judge([program, &forward], options, Tolerance::of(program), reference, &runs))
}

/// The program of the evaluation that follows the steps, of which there must be some.
fn forward(program: &StepProgram, options: &VerifyOptions) -> Result<StepProgram, EngineError> {
    match options.steps {
        0 => Err(SpecError::invalid("steps", 0, "a proof takes at least one step", "give a positive number").into()),
        _ => Ok(StepProgram::evaluation(&program.model, &program.layout)?),
    }
}

/// What of a layout's run is compared.
fn observed<'a>(program: &StepProgram, options: &VerifyOptions, forward: &'a StepProgram) -> ObserveOptions<'a> {
    let VerifyOptions { steps, seed, hyper, states, threads, timeout, collectives, world, .. } = options.clone();
    let evaluation = Some((forward, samples_to_evaluate(program)));
    let masks = options.masks();
    let every_step = true;
    ObserveOptions { steps, every_step, evaluation, seed, masks, hyper, states, threads, timeout, collectives, world }
}

/// A batch and one sample more: the mean goes over several batches, and the last one is incomplete if it can be.
fn samples_to_evaluate(program: &StepProgram) -> u64 {
    program.layout.global_batch as u64 + 1
}

/// Takes part in a [`verify_on`] that runs in the process of another rank, which compares.
///
/// # Errors
/// A rank that failed.
pub fn take_part_on(device: &dyn Device, program: &StepProgram, options: &VerifyOptions) -> Result<(), EngineError> {
    let forward = forward(program, options)?;
    device.observe(program, &observed(program, options, &forward)).map(drop)
}

#[cfg(test)]
mod tests {
    use quadrille_spec::{Layout, LayoutRequest, Model};

    use super::*;

    #[test]
    fn a_layout_may_differ_by_what_roundings_do_to_the_serial_model() {
        let limits = |moved| {
            let Tolerance { loss, gradients, norm, .. } = Tolerance::BF16.or_moved(moved);
            [loss, gradients, norm]
        };
        assert_eq!(limits([0.0; 3]), [3e-3, 6e-1, 6e-2]);
        assert_eq!(limits([1e-3, 0.05, 0.02]), [1e-2, 6e-1, 0.2]);
        assert_eq!(Tolerance::F64.or_moved([0.0; 3]), Tolerance::F64);
    }

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
