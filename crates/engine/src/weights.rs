//! Where the weights of a run without training come from.

use quadrille_comm::RankContext;
use quadrille_step::StepProgram;

use crate::{EngineError, Hyper, InitialValues, RankEngine, Real};

/// Where ranks take their weights from.
#[derive(Debug, Clone, Copy)]
pub enum Weights {
    /// Drawn, as a training run with this seed begins.
    Drawn {
        /// Keys the values.
        seed: u64,
        /// Which values.
        initial: InitialValues,
    },
}

impl Weights {
    /// A rank's engine of a program that does not train, with its part of the weights.
    pub(crate) fn engine<'a, T: Real>(
        &self,
        program: &'a StepProgram,
        context: &'a RankContext,
        threads: usize,
    ) -> Result<RankEngine<'a, T>, EngineError> {
        match *self {
            Self::Drawn { seed, initial } => RankEngine::new(program, context, threads, Hyper::DEFAULT, seed, initial),
        }
    }
}
