//! Steps of a training run on random samples, for their times.

use quadrille_engine::{Cpu, EngineError, Real, TrainOptions, TrainOutcome, random_batch, train};
use quadrille_step::StepProgram;

/// Trains on random samples.
pub fn steps<T: Real>(program: &StepProgram, options: &TrainOptions) -> Result<TrainOutcome, EngineError> {
    let batch = random_batch(&program.model, options.seed, program.layout.seq_len);
    train::<Cpu<T>>(program, options, &batch, None, &mut |_| Ok(()))
}
