//! Sources of the weights of a run without training.

use std::rc::Rc;
use std::sync::Arc;

use quadrille_checkpoint::Checkpoint;
use quadrille_comm::RankContext;
use quadrille_step::StepProgram;

use crate::interpreter::RunConstants;
use crate::{Backend, EngineError, Hyper, InitialValues, RankEngine, Restore};

/// Source of ranks' weights.
#[derive(Debug, Clone)]
pub enum Weights {
    /// Drawn, as a training run with this seed begins.
    Drawn {
        /// Keys the values.
        seed: u64,
        /// Which values.
        initial: InitialValues,
    },
    /// Read: each rank reads its part, whatever layout has written them.
    Checkpoint(Arc<Checkpoint>),
}

impl Weights {
    /// A rank's engine of a program that does not train, with its part of the weights.
    pub(crate) fn engine<'a, B: Backend>(
        &self,
        program: &'a StepProgram,
        context: &'a RankContext,
        threads: usize,
    ) -> Result<RankEngine<'a, B>, EngineError> {
        match self {
            Self::Drawn { seed, initial } => {
                RankEngine::new(program, context, threads, Hyper::DEFAULT, *seed, *initial)
            }
            Self::Checkpoint(checkpoint) => {
                let seed = checkpoint.about().seed;
                let constants = RunConstants { hyper: Hyper::DEFAULT, seed, states: None };
                let backend = Rc::new(B::open(context.rank(), threads)?);
                let mut engine = RankEngine::allocate(program, context, backend, &constants, &[])?;
                engine.load(checkpoint, Restore::Values)?;
                Ok(engine)
            }
        }
    }
}
