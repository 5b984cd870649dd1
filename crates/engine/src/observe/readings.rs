//! Shards of weights, masters and gradients in f64, for comparisons.

use quadrille_step::{Parameter, ParameterId, ValueId};
use quadrille_tensor::Element;

use crate::backend::View;
use crate::interpreter::Interpreter;
use crate::optimizer::tier::State;
use crate::{Backend, EngineError, Held, RankEngine};

impl<B: Backend> RankEngine<'_, B> {
    /// This rank's shards of its stage's parameters in f64, in the program's order.
    ///
    /// # Errors
    /// The job was stopped.
    pub fn weights(&mut self) -> Result<Vec<Held>, EngineError> {
        self.interpreter.settle()?;
        self.shards(|parameter| parameter.value)
    }

    /// This rank's shards of the master copies of its stage's parameters in f64, in the program's order: what the optimizer
    /// updates of each. `None` of what is its own master.
    ///
    /// # Errors
    /// The device's.
    pub fn masters(&self) -> Result<Vec<Option<Held>>, EngineError> {
        let Interpreter { rank, kept, optimizer, .. } = &self.interpreter;
        let master = |(index, parameter): (usize, &Parameter)| {
            // One that serves to take an update back is the weight.
            if rank.program.master_bytes(parameter.updated) == 0 {
                return Ok(None);
            }
            let shard = kept.shard(ParameterId(index), parameter.updated)?;
            let numbers = |master: &[B::Real]| in_f64(&master[..shard.elements()]);
            let numbers = optimizer.read(kept, ParameterId(index), State::Master, numbers)?;
            Ok(numbers.map(|numbers| Held { shard, numbers }))
        };
        rank.program.parameters.iter().enumerate().map(master).collect()
    }

    /// This rank's shards of its stage's complete gradients, before clipping, in f64, in the program's order; of biases of routers
    /// the loads that they follow.
    ///
    /// # Errors
    /// A shard is in flight: never between steps.
    pub fn gradients(&self) -> Result<Vec<Held>, EngineError> {
        let mut shards = self.shards(|parameter| parameter.reduced)?;
        let Interpreter { rank, step, optimizer, .. } = &self.interpreter;
        let factor = optimizer.update_rule().gradient_factor(step.totals);
        let trained = shards.iter_mut().zip(&rank.program.parameters).filter(|(_, of)| of.is_trained());
        trained.flat_map(|(held, _)| &mut held.numbers).for_each(|element| *element *= factor);
        Ok(shards)
    }

    fn shards(&self, which: impl Fn(&Parameter) -> ValueId) -> Result<Vec<Held>, EngineError> {
        let Interpreter { rank, backend, kept, .. } = &self.interpreter;
        let held = |(index, parameter): (usize, &Parameter)| {
            let id = ParameterId(index);
            let value = which(parameter);
            let own = self.interpreter.read(value)?.part(0..rank.valid_elements(value));
            let numbers = backend.download(own, in_f64)?;
            let numbers = kept.part(id, value)?.map(|part| part.expanded(&numbers)).unwrap_or(numbers);
            Ok(Held { shard: kept.shard(id, value)?, numbers })
        };
        rank.program.parameters.iter().enumerate().map(held).collect()
    }
}

/// Wider, if they are not.
fn in_f64<T: Element>(numbers: &[T]) -> Vec<f64> {
    numbers.iter().map(|number| number.to_f64()).collect()
}
