//! The device that the ranks of a process compute on, for every type of elements.

use std::convert::Infallible;
use std::fmt::Debug;
use std::time::Instant;

use quadrille_comm::RankContext;
use quadrille_spec::{ElementType, RealType};
use quadrille_step::StepProgram;
use quadrille_tensor::{Buffer, Element, ProductShape, Transpose, library_matmul};

use crate::{
    BatchSource, EngineError, EvaluateOutcome, ForwardOptions, GenerateOptions, GenerateOutcome, GenerationPrograms,
    ObserveOptions, Observed, RunEvent, TrainOptions, TrainOutcome, Validation, Weights, Workbench, evaluate_on_cpu,
    generate_on_cpu, observe_on_cpu, train_on_cpu, workbench_on_cpu,
};

/// The same work by any [`Backend`](crate::Backend), in the layout's own type of elements.
pub trait Device: Debug + Sync {
    /// Bytes that are free on the devices of so many ranks; `None`: ranks have the host's memory.
    ///
    /// # Errors
    /// The device's, above all that there is none.
    fn free(&self, ranks: usize) -> Result<Option<u64>, EngineError>;

    /// On how many devices so many ranks compute; `None`: on the processor, whose cores they share.
    ///
    /// # Errors
    /// The device's, above all that there is none.
    fn devices(&self, ranks: usize) -> Result<Option<usize>, EngineError>;

    /// Whether it only stands for a device, and is slow: what is measured on it are sizes that show that it is done.
    fn is_emulated(&self) -> bool {
        false
    }

    /// What it is called; `None`: it is the processor.
    ///
    /// # Errors
    /// The device's, above all that there is none.
    fn name(&self) -> Result<Option<String>, EngineError>;

    /// The library's product, for others to be held against: as fast as it gets on the devices of so many ranks, each of which
    /// has so many threads of the host.
    ///
    /// # Errors
    /// The device's.
    fn yardstick(&self, dtype: ElementType, ranks: usize, threads: usize) -> Result<Yardstick, EngineError>;

    /// Whether values can be stored in this type.
    fn stores(&self, dtype: ElementType) -> bool;

    /// What each rank's rows of a vocabulary had best be a multiple of.
    fn vocab_multiple(&self) -> usize;

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

    /// As [`workbench`](crate::workbench()), for values of a type.
    ///
    /// # Errors
    /// As there; a type that it does not store.
    fn workbench<'c>(
        &self,
        dtype: ElementType,
        context: &'c RankContext,
        threads: usize,
    ) -> Result<Box<dyn Workbench + 'c>, EngineError>;
}

/// A product of the library, and how fast it is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Yardstick {
    /// `[m, n, k]` of [m, k] [k, n].
    pub size: [usize; 3],
    /// FLOP/s of the fastest run, of all devices together.
    pub flops_per_second: f64,
}

impl Yardstick {
    /// Runs of the product, after one that warms up.
    const RUNS: usize = 9;

    /// The fastest of some runs of a product of this size, each of which returns when it is done.
    ///
    /// # Errors
    /// That of a run.
    pub fn of<E>(size: [usize; 3], mut run: impl FnMut() -> Result<(), E>) -> Result<Self, E> {
        run()?;
        let mut fastest = f64::INFINITY;
        for _ in 0..Self::RUNS {
            let start = Instant::now();
            run()?;
            fastest = fastest.min(start.elapsed().as_secs_f64());
        }
        Ok(Self { size, flops_per_second: 2.0 * size.iter().product::<usize>() as f64 / fastest })
    }
}

/// GPT-2's widest linear layer on 1024 tokens.
fn product_of_processor<T: Element>(threads: usize) -> Yardstick {
    let size @ [m, n, k] = [1024, 3072, 768];
    let numbers = Buffer::<T>::without_pattern;
    let a = numbers(m * k);
    let b = numbers(k * n);
    let mut c = Buffer::new(m * n);
    let shape = ProductShape { stored: Transpose::Nn, m, n, k };
    let measured: Result<Yardstick, Infallible> = Yardstick::of(size, || {
        library_matmul(threads, shape, &a, &b, &mut c, false);
        Ok(())
    });
    let Ok(yardstick) = measured;
    yardstick
}

/// The processor.
#[derive(Debug, Clone, Copy, Default)]
pub struct Processor;

impl Device for Processor {
    fn free(&self, _ranks: usize) -> Result<Option<u64>, EngineError> {
        Ok(None)
    }

    fn devices(&self, _ranks: usize) -> Result<Option<usize>, EngineError> {
        Ok(None)
    }

    fn name(&self) -> Result<Option<String>, EngineError> {
        Ok(None)
    }

    fn yardstick(&self, dtype: ElementType, ranks: usize, threads: usize) -> Result<Yardstick, EngineError> {
        Ok(match dtype.real() {
            RealType::F32 => product_of_processor::<f32>(ranks * threads),
            RealType::F64 => product_of_processor::<f64>(ranks * threads),
        })
    }

    fn stores(&self, _dtype: ElementType) -> bool {
        true
    }

    fn vocab_multiple(&self) -> usize {
        1
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

    fn workbench<'c>(
        &self,
        dtype: ElementType,
        context: &'c RankContext,
        threads: usize,
    ) -> Result<Box<dyn Workbench + 'c>, EngineError> {
        workbench_on_cpu(dtype, context, threads)
    }
}
