//! Work on devices, in the layout's own type of elements: for all types it is compiled here, once.

use half::bf16;
use quadrille_comm::RankContext;
use quadrille_engine::{
    BatchSource, Device, EngineError, EvaluateOutcome, ForwardOptions, GenerateOptions, GenerateOutcome,
    GenerationPrograms, ObserveOptions, Observed, RunEvent, TrainOptions, TrainOutcome, Validation, Weights, Workbench,
    Yardstick, evaluate, generate, observe, train, workbench,
};
use quadrille_spec::ElementType;
use quadrille_step::StepProgram;

use super::Cuda;
use super::devices::{self, DeviceKind, choose};
use super::yardstick::product_of_device;
use crate::driver::Fault;

/// Calls a function of the engine for the backend of a type of elements, on devices of a kind.
macro_rules! in_type {
    ($kind:expr, $dtype:expr, $function:ident($($argument:expr),*)) => {{
        choose(*$kind);
        match $dtype {
            ElementType::F64 => $function::<Cuda<f64>>($($argument),*),
            ElementType::F32 => $function::<Cuda<f32>>($($argument),*),
            ElementType::Bf16 => $function::<Cuda<bf16>>($($argument),*),
            ElementType::F16 => Err(no_f16()),
        }
    }};
}

fn no_f16() -> EngineError {
    let text = "devices do not store values in f16: use bf16, f32 or f64".into();
    EngineError::of_device(Fault { library: "quadrille", code: -1, text })
}

impl Device for DeviceKind {
    fn free(&self, ranks: usize) -> Result<Option<u64>, EngineError> {
        choose(*self);
        Ok(devices::free(ranks)?)
    }

    fn devices(&self, ranks: usize) -> Result<Option<usize>, EngineError> {
        choose(*self);
        Ok(Some(devices::count(ranks)?))
    }

    fn is_emulated(&self) -> bool {
        *self == Self::Emulated
    }

    fn name(&self) -> Result<Option<String>, EngineError> {
        choose(*self);
        Ok(Some(devices::first()?.device().name()?))
    }

    fn yardstick(&self, dtype: ElementType, ranks: usize, _threads: usize) -> Result<Yardstick, EngineError> {
        let side = if *self == Self::Cuda { 8192 } else { 64 };
        let Yardstick { size, flops_per_second } = in_type!(self, dtype, product_of_device(side))?;
        Ok(Yardstick { size, flops_per_second: flops_per_second * devices::count(ranks)? as f64 })
    }

    fn stores(&self, dtype: ElementType) -> bool {
        dtype != ElementType::F16
    }

    /// So that rows of logits begin where 16 bytes do and are whole tiles of products.
    fn vocab_multiple(&self) -> usize {
        match self {
            Self::Cuda => 128,
            // Small, and padded like the other's.
            Self::Emulated => 4,
        }
    }

    fn train(
        &self,
        program: &StepProgram,
        options: &TrainOptions,
        batch: &BatchSource,
        validation: Option<&Validation>,
        on_event: &mut (dyn FnMut(RunEvent) -> Result<(), EngineError> + Send),
    ) -> Result<TrainOutcome, EngineError> {
        in_type!(self, program.layout.dtype, train(program, options, batch, validation, on_event))
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
        in_type!(self, program.layout.dtype, evaluate(program, options, weights, samples, batch, on_step))
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
        let dtype = programs.decode.layout.dtype;
        in_type!(self, dtype, generate(programs, options, run, weights, prompts, on_token))
    }

    fn observe(&self, program: &StepProgram, options: &ObserveOptions) -> Result<Vec<Observed>, EngineError> {
        in_type!(self, program.layout.dtype, observe(program, options))
    }
    fn workbench<'c>(
        &self,
        dtype: ElementType,
        context: &'c RankContext,
        threads: usize,
    ) -> Result<Box<dyn Workbench + 'c>, EngineError> {
        in_type!(self, dtype, workbench(context, threads))
    }
}
