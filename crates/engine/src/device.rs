//! What the ranks of a process compute on, whatever the type of their elements is.

use quadrille_step::StepProgram;

use crate::{
    BatchSource, EngineError, EvaluateOutcome, ForwardOptions, GenerateOptions, GenerateOutcome, GenerationPrograms,
    ObserveOptions, Observed, RunEvent, TrainOptions, TrainOutcome, Validation, Weights, evaluate_on_cpu,
    generate_on_cpu, observe_on_cpu, train_on_cpu,
};

/// The same work by any [`Backend`](crate::Backend), in the layout's own type of elements.
pub trait Device: Sync {
    /// Bytes that are free on the devices of so many ranks; `None`: ranks have the host's memory.
    ///
    /// # Errors
    /// The device's, above all that there is none.
    fn free(&self, ranks: usize) -> Result<Option<u64>, EngineError>;

    /// As [`train`](crate::train()).
    ///
    /// # Errors
    /// As there.
    fn train(
        &self,
        program: &StepProgram,
        options: &TrainOptions,
        batch: &BatchSource,
        validation: Option<&Validation>,
        on_event: &mut (dyn FnMut(RunEvent) -> Result<(), EngineError> + Send),
    ) -> Result<TrainOutcome, EngineError>;

    /// As [`evaluate`](crate::evaluate()).
    ///
    /// # Errors
    /// As there.
    fn evaluate(
        &self,
        program: &StepProgram,
        options: &ForwardOptions,
        weights: &Weights,
        samples: u64,
        batch: &BatchSource,
        on_step: &(dyn Fn(u64) + Sync),
    ) -> Result<EvaluateOutcome, EngineError>;

    /// As [`generate`](crate::generate()).
    ///
    /// # Errors
    /// As there.
    fn generate(
        &self,
        programs: &GenerationPrograms,
        options: &GenerateOptions,
        run: &ForwardOptions,
        weights: &Weights,
        prompts: &[Vec<u32>],
        on_token: &mut (dyn FnMut(usize, u32) -> Result<(), EngineError> + Send),
    ) -> Result<GenerateOutcome, EngineError>;

    /// As [`observe`](crate::observe()).
    ///
    /// # Errors
    /// As there.
    fn observe(&self, program: &StepProgram, options: &ObserveOptions) -> Result<Vec<Observed>, EngineError>;
}

/// The processor.
#[derive(Debug, Clone, Copy, Default)]
pub struct Processor;

impl Device for Processor {
    fn free(&self, _ranks: usize) -> Result<Option<u64>, EngineError> {
        Ok(None)
    }

    fn train(
        &self,
        program: &StepProgram,
        options: &TrainOptions,
        batch: &BatchSource,
        validation: Option<&Validation>,
        on_event: &mut (dyn FnMut(RunEvent) -> Result<(), EngineError> + Send),
    ) -> Result<TrainOutcome, EngineError> {
        train_on_cpu(program, options, batch, validation, on_event)
    }

    fn evaluate(
        &self,
        program: &StepProgram,
        options: &ForwardOptions,
        weights: &Weights,
        samples: u64,
        batch: &BatchSource,
        on_step: &(dyn Fn(u64) + Sync),
    ) -> Result<EvaluateOutcome, EngineError> {
        evaluate_on_cpu(program, options, weights, samples, batch, on_step)
    }

    fn generate(
        &self,
        programs: &GenerationPrograms,
        options: &GenerateOptions,
        run: &ForwardOptions,
        weights: &Weights,
        prompts: &[Vec<u32>],
        on_token: &mut (dyn FnMut(usize, u32) -> Result<(), EngineError> + Send),
    ) -> Result<GenerateOutcome, EngineError> {
        generate_on_cpu(programs, options, run, weights, prompts, on_token)
    }

    fn observe(&self, program: &StepProgram, options: &ObserveOptions) -> Result<Vec<Observed>, EngineError> {
        observe_on_cpu(program, options)
    }
}
