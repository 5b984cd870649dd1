//! Accumulation of gradients, the norm, the optimizer.

use std::ops::Range;

use quadrille_spec::Axis;
use quadrille_step::kind;

use super::{Done, Interpreter};
use crate::backend::{FusedKernels, View, ViewMut};
use crate::optimizer::states::StatesMut;
use crate::{Backend, EngineError, Shard};

impl<B: Backend> Interpreter<'_, B> {
    pub(super) fn accumulate(&mut self, op: &kind::Accumulate) -> Result<usize, EngineError> {
        let kind::Accumulate { input, output, write } = *op;
        self.write(output, |this, y| {
            let x = this.read(input)?;
            if this.step.accumulates(write) {
                this.backend.add_assign(y, x)?;
            } else {
                this.backend.copy(y, x)?;
            }
            Ok(x.elements())
        })
    }

    pub(super) fn compress(&mut self, op: &kind::Compress) -> Result<usize, EngineError> {
        let kind::Compress { parameter, input, output, write } = *op;
        let from = self.rank.first_kept(output);
        self.write(output, |this, y| {
            let x = this.read(input)?;
            let add = this.step.accumulates(write);
            this.backend.compress(y, x, this.kept.indices(parameter)?, from, add)?;
            Ok(y.elements())
        })
    }

    pub(super) fn expand(&mut self, op: &kind::Expand) -> Result<usize, EngineError> {
        let kind::Expand { parameter, input, output } = *op;
        self.write(output, |this, y| {
            let x = this.read(input)?;
            this.backend.expand(y, x, this.kept.indices(parameter)?)?;
            Ok(x.elements())
        })
    }

    pub(super) fn sum_squares(&mut self, op: &kind::SumSquares) -> Done {
        let kind::SumSquares { parameter: id, gradient } = *op;
        let program = self.rank.program;
        let place = self.rank.place;
        let parameter = &program.parameters[id.0];
        if parameter.copy || !self.rank.value(gradient).sharding.is_owner(place) {
            return Ok(());
        }
        let elements = self.rank.valid_elements(gradient);
        let runs = match parameter.shared.filter(|shared| !place.on(Axis::X).is_multiple_of(shared.copies)) {
            None => vec![Range { start: 0, end: elements }],
            // The first rank of a block counts what all of them hold.
            Some(shared) => {
                let runs = Shard::of(program, parameter, gradient, place).runs();
                let own = runs.filter(|run| !shared.is_copied(run.col));
                own.map(|run| run.local..run.local + run.len).collect()
            }
        };
        if self.backend.fused().is_some() {
            // Those of others are summed with them.
            self.fusion.squares.push((gradient, runs));
            return Ok(());
        }
        self.backend.sum_squares(self.read(gradient)?, &runs)
    }

    /// Sums the squares that wait.
    pub(super) fn sum_waiting(&mut self) -> Done {
        let waiting = std::mem::take(&mut self.fusion.squares);
        let read = |(gradient, runs)| Ok((self.read(gradient)?, runs));
        let gradients = waiting.into_iter().map(read).collect::<Result<Vec<_>, EngineError>>()?;
        self.backend.fused().map_or(Ok(()), |fused| fused.sum_squares_of_all(&gradients))
    }

    pub(super) fn adamw(&mut self, op: &kind::AdamW) -> Result<usize, EngineError> {
        let kind::AdamW { parameter, run, value, gradient } = *op;
        let constants = self.optimizer.constants(parameter, self.step.number);
        let valid = self.rank.valid_elements(gradient);
        let whole = 0..valid;
        // Padding has states and no update.
        let updated = run.map_or(whole, |run| {
            let range = self.rank.program.run(run).range();
            range.start.min(valid)..range.end.min(valid)
        });
        let range = self.rank.range(value, self.step.local_elements(value));
        let storage = self.rank.storage(value);
        let gradient_range = self.rank.range(gradient, self.step.local_elements(gradient));
        let gradient = self.rank.storage(gradient);
        let Self { backend, storages, optimizer, .. } = self;
        storages.write(storage, range, |storages, p| {
            let mut p = B::part(p, updated.clone());
            let g = storages.read(gradient, gradient_range)?.part(updated.clone());
            optimizer.with_states(parameter, run, updated.len(), |states| {
                let StatesMut { mut master, moments: [mut m, mut v] } = states;
                backend.adamw(&constants, &mut p, master.as_mut(), g, &mut m, &mut v)
            })??;
            Ok(p.elements())
        })
    }

    pub(super) fn restore(&mut self, op: &kind::Restore) -> Result<usize, EngineError> {
        let kind::Restore { run, value, .. } = *op;
        let valid = self.rank.valid_elements(value);
        let run_range = self.rank.program.run(run).range();
        let restored = run_range.start.min(valid)..run_range.end.min(valid);
        let range = self.rank.range(value, self.step.local_elements(value));
        let storage = self.rank.storage(value);
        let Self { backend, storages, optimizer, .. } = self;
        storages.write(storage, range, |_, p| {
            let mut p = B::part(p, restored.clone());
            let round = |masters: B::View<'_>| backend.round(&mut p, masters);
            let masters = optimizer.streamed()?.with_masters(run, restored.len(), round);
            masters.ok_or(EngineError::StatesLost)??;
            Ok(restored.len())
        })
    }
}
