//! Work on the processor, in the layout's own type of elements: for all types it is compiled here, once.

use half::{bf16, f16};
use quadrille_comm::RankContext;
use quadrille_spec::ElementType;
use quadrille_step::StepProgram;

use crate::{
    BatchSource, Cpu, EngineError, EvaluateOutcome, ForwardOptions, GenerateOptions, GenerateOutcome,
    GenerationPrograms, ObserveOptions, Observed, RunEvent, StateTimes, TrainOptions, TrainOutcome, Validation,
    Weights, Workbench, evaluate, generate, observe, time_states, train, workbench,
};

/// [`train()`] on the processor.
///
/// # Errors
/// As there.
pub fn train_on_cpu(
    program: &StepProgram,
    options: &TrainOptions,
    batch: &BatchSource,
    validation: Option<&Validation>,
    on_event: &mut (dyn FnMut(RunEvent) -> Result<(), EngineError> + Send),
) -> Result<TrainOutcome, EngineError> {
    match program.layout.dtype {
        ElementType::F32 => train::<Cpu<f32>>(program, options, batch, validation, on_event),
        ElementType::F64 => train::<Cpu<f64>>(program, options, batch, validation, on_event),
        ElementType::Bf16 => train::<Cpu<bf16>>(program, options, batch, validation, on_event),
        ElementType::F16 => train::<Cpu<f16>>(program, options, batch, validation, on_event),
    }
}

/// [`evaluate()`] on the processor.
///
/// # Errors
/// As there.
pub fn evaluate_on_cpu(
    program: &StepProgram,
    options: &ForwardOptions,
    weights: &Weights,
    samples: u64,
    batch: &BatchSource,
    on_step: &(dyn Fn(u64) + Sync),
) -> Result<EvaluateOutcome, EngineError> {
    match program.layout.dtype {
        ElementType::F32 => evaluate::<Cpu<f32>>(program, options, weights, samples, batch, on_step),
        ElementType::F64 => evaluate::<Cpu<f64>>(program, options, weights, samples, batch, on_step),
        ElementType::Bf16 => evaluate::<Cpu<bf16>>(program, options, weights, samples, batch, on_step),
        ElementType::F16 => evaluate::<Cpu<f16>>(program, options, weights, samples, batch, on_step),
    }
}

/// [`generate()`] on the processor.
///
/// # Errors
/// As there.
pub fn generate_on_cpu(
    programs: &GenerationPrograms,
    options: &GenerateOptions,
    run: &ForwardOptions,
    weights: &Weights,
    prompts: &[Vec<u32>],
    on_token: &mut (dyn FnMut(usize, u32) -> Result<(), EngineError> + Send),
) -> Result<GenerateOutcome, EngineError> {
    match programs.decode.layout.dtype {
        ElementType::F32 => generate::<Cpu<f32>>(programs, options, run, weights, prompts, on_token),
        ElementType::F64 => generate::<Cpu<f64>>(programs, options, run, weights, prompts, on_token),
        ElementType::Bf16 => generate::<Cpu<bf16>>(programs, options, run, weights, prompts, on_token),
        ElementType::F16 => generate::<Cpu<f16>>(programs, options, run, weights, prompts, on_token),
    }
}

/// [`observe()`] on the processor.
///
/// # Errors
/// As there.
pub fn observe_on_cpu(program: &StepProgram, options: &ObserveOptions) -> Result<Vec<Observed>, EngineError> {
    match program.layout.dtype {
        ElementType::F32 => observe::<Cpu<f32>>(program, options),
        ElementType::F64 => observe::<Cpu<f64>>(program, options),
        ElementType::Bf16 => observe::<Cpu<bf16>>(program, options),
        ElementType::F16 => observe::<Cpu<f16>>(program, options),
    }
}

/// [`time_states()`] on the processor.
///
/// # Errors
/// As there.
pub fn time_states_on_cpu(
    program: &StepProgram,
    options: &TrainOptions,
    batch: &BatchSource,
) -> Result<Vec<Vec<StateTimes>>, EngineError> {
    match program.layout.dtype {
        ElementType::F32 => time_states::<Cpu<f32>>(program, options, batch),
        ElementType::F64 => time_states::<Cpu<f64>>(program, options, batch),
        ElementType::Bf16 => time_states::<Cpu<bf16>>(program, options, batch),
        ElementType::F16 => time_states::<Cpu<f16>>(program, options, batch),
    }
}

/// [`workbench()`] on the processor.
///
/// # Errors
/// As there.
pub fn workbench_on_cpu(
    dtype: ElementType,
    context: &RankContext,
    threads: usize,
) -> Result<Box<dyn Workbench + '_>, EngineError> {
    match dtype {
        ElementType::F32 => workbench::<Cpu<f32>>(context, threads),
        ElementType::F64 => workbench::<Cpu<f64>>(context, threads),
        ElementType::Bf16 => workbench::<Cpu<bf16>>(context, threads),
        ElementType::F16 => workbench::<Cpu<f16>>(context, threads),
    }
}
