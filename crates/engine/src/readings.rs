//! What a rank tells of itself: its ledger and seconds, and its shards of weights, masters and gradients.

use std::collections::BTreeMap;

use quadrille_comm::LedgerKey;
use quadrille_spec::{HOST, RankLedger};
use quadrille_step::{Layer, Parameter, ParameterId, ValueId};
use quadrille_tensor::Element;

use crate::backend::View;
use crate::rank::label;
use crate::streamed::Streamed;
use crate::tier::State;
use crate::{Backend, EngineError, Held, RankEngine, ledger};

impl<B: Backend> RankEngine<'_, B> {
    /// The ledger counted since the last call; memory peaks are those of the whole run.
    pub fn take_ledger(&mut self) -> RankLedger {
        let mut transfers = std::mem::take(&mut self.set_aside);
        for (key, transfer) in self.context.take_ledger() {
            *transfers.entry(key).or_default() += transfer;
        }
        for (collective, transfer) in self.streamed.iter_mut().flat_map(Streamed::take_moved) {
            let key = LedgerKey { group: HOST.into(), layer: label(Layer::Step), collective };
            *transfers.entry(key).or_default() += transfer;
        }
        let memory = self.slots.memory().clone();
        ledger::counted(
            self.program,
            &self.empty_axes,
            self.context.rank(),
            &transfers,
            self.flops,
            self.elements.clone(),
            memory,
        )
    }

    /// Seconds per operation kind since the last call; `wait` is communication that computation did not hide.
    pub fn take_breakdown(&mut self) -> BTreeMap<&'static str, f64> {
        std::mem::take(&mut self.breakdown)
    }

    /// How often each expert was chosen in the last step by the tokens of all ranks, one block's behind those of the one before.
    pub fn loads_of_step(&self) -> &[u64] {
        &self.chosen
    }

    /// This rank's shards of its stage's parameters in f64, in the program's order.
    ///
    /// # Errors
    /// The job was stopped.
    pub fn weights(&mut self) -> Result<Vec<Held>, EngineError> {
        self.settle()?;
        self.shards(|parameter| parameter.value)
    }

    /// This rank's shards of the master copies of its stage's parameters in f64, in the program's order: what the optimizer
    /// updates of each. `None` of what is its own master.
    ///
    /// # Errors
    /// The device's.
    pub fn masters(&self) -> Result<Vec<Option<Held>>, EngineError> {
        let master = |(index, parameter): (usize, &Parameter)| {
            // One that serves to take an update back is the weight.
            if self.program.master_bytes(parameter.updated) == 0 {
                return Ok(None);
            }
            let shard = self.shard(ParameterId(index), parameter.updated)?;
            let numbers = |master: &[B::Real]| in_f64(&master[..shard.elements()]);
            let numbers = self.state(ParameterId(index), State::Master, numbers)?;
            Ok(numbers.map(|numbers| Held { shard, numbers }))
        };
        self.program.parameters.iter().enumerate().map(master).collect()
    }

    /// This rank's shards of its stage's complete gradients, before clipping, in f64, in the program's order; of biases of routers
    /// the loads that they follow.
    ///
    /// # Errors
    /// A shard is in flight: never between steps.
    pub fn gradients(&self) -> Result<Vec<Held>, EngineError> {
        let mut shards = self.shards(|parameter| parameter.reduced)?;
        let factor = self.update_rule().gradient_factor(self.totals);
        let trained = shards.iter_mut().zip(&self.program.parameters).filter(|(_, of)| of.is_trained());
        trained.flat_map(|(held, _)| &mut held.numbers).for_each(|element| *element *= factor);
        Ok(shards)
    }

    fn shards(&self, which: impl Fn(&Parameter) -> ValueId) -> Result<Vec<Held>, EngineError> {
        let held = |(index, parameter): (usize, &Parameter)| {
            let id = ParameterId(index);
            let value = which(parameter);
            let numbers = self.in_f64(self.read(value)?.part(0..self.program.valid_elements(value, self.place)))?;
            let numbers = self.kept_part(id, value)?.map(|part| part.expanded(&numbers)).unwrap_or(numbers);
            Ok(Held { shard: self.shard(id, value)?, numbers })
        };
        self.program.parameters.iter().enumerate().map(held).collect()
    }

    fn in_f64(&self, elements: B::View<'_>) -> Result<Vec<f64>, EngineError> {
        self.backend.download(elements, in_f64)
    }
}

/// Wider, if they are not.
fn in_f64<T: Element>(numbers: &[T]) -> Vec<f64> {
    numbers.iter().map(|number| number.to_f64()).collect()
}
