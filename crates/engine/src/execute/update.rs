//! Accumulation of gradients, the norm, the optimizer.

use std::ops::Range;

use quadrille_spec::{Axis, CollectiveKind};
use quadrille_step::{BucketId, ParameterId, kind};
use quadrille_tensor::AdamW;

use super::Done;
use crate::backend::{View, ViewMut};
use crate::optimizer::StatesMut;
use crate::streamed::Streamed;
use crate::{Backend, EngineError, RankEngine, Shard, schedule};

impl<'a, B: Backend> RankEngine<'a, B> {
    pub(super) fn accumulate(&mut self, op: &kind::Accumulate) -> Result<usize, EngineError> {
        let kind::Accumulate { input, output, write } = *op;
        self.write(output, |rank, y| {
            let x = rank.read(input)?;
            if rank.accumulates(write) {
                rank.backend.add_assign(y, x)?;
            } else {
                rank.backend.copy(y, x)?;
            }
            Ok(x.elements())
        })
    }

    pub(super) fn compress(&mut self, op: &kind::Compress) -> Result<usize, EngineError> {
        let kind::Compress { parameter, input, output, write } = *op;
        let from = self.first_kept(output);
        self.write(output, |rank, y| {
            let x = rank.read(input)?;
            let add = rank.accumulates(write);
            rank.backend.compress(y, x, rank.indices(parameter)?, from, add)?;
            Ok(y.elements())
        })
    }

    pub(super) fn expand(&mut self, op: &kind::Expand) -> Result<usize, EngineError> {
        let kind::Expand { parameter, input, output } = *op;
        self.write(output, |rank, y| {
            let x = rank.read(input)?;
            rank.backend.expand(y, x, rank.indices(parameter)?)?;
            Ok(x.elements())
        })
    }

    pub(super) fn sum_squares(&mut self, op: &kind::SumSquares) -> Done {
        let kind::SumSquares { parameter: id, gradient } = *op;
        let program = self.program;
        let place = self.place;
        let parameter = &program.parameters[id.0];
        if parameter.copy || !self.value(gradient).sharding.is_owner(place) {
            return Ok(());
        }
        let elements = program.valid_elements(gradient, place);
        let runs = match parameter.shared.filter(|shared| !place.on(Axis::X).is_multiple_of(shared.copies)) {
            None => vec![Range { start: 0, end: elements }],
            // The first rank of a block counts what all of them hold.
            Some(shared) => {
                let runs = Shard::of(program, parameter, gradient, place).runs();
                let own = runs.filter(|run| !shared.is_copied(run.col));
                own.map(|run| run.local..run.local + run.len).collect()
            }
        };
        if B::FUSES {
            // Those of others are summed with them.
            self.squares.push((gradient, runs));
            return Ok(());
        }
        self.backend.sum_squares(self.read(gradient)?, &runs)
    }

    /// Sums the squares that wait.
    pub(crate) fn sum_waiting(&mut self) -> Done {
        let waiting = std::mem::take(&mut self.squares);
        let read = |(gradient, runs)| Ok((self.read(gradient)?, runs));
        let gradients = waiting.into_iter().map(read).collect::<Result<Vec<_>, EngineError>>()?;
        self.backend.sum_squares_of_all(&gradients)
    }

    pub(super) fn adamw(&mut self, op: &kind::AdamW) -> Result<usize, EngineError> {
        let kind::AdamW { parameter, run, value, gradient } = *op;
        let constants = self.optimizer_constants(parameter);
        let valid = self.program.valid_elements(gradient, self.place);
        let whole = 0..valid;
        // Padding has states and no update.
        let updated = run.map_or(whole, |run| {
            let range = self.program.run(run).range();
            range.start.min(valid)..range.end.min(valid)
        });
        let mut states = std::mem::take(&mut self.states);
        let streamed = self.streamed.take();
        let swept = self.write(value, |rank, p| {
            let mut p = B::part(p, updated.clone());
            let g = rank.read(gradient)?.part(updated.clone());
            let mut update = |StatesMut { mut master, moments: [mut m, mut v] }: StatesMut<'_, B>| {
                rank.backend.adamw(&constants, &mut p, master.as_mut(), g, &mut m, &mut v)
            };
            match (run, &streamed) {
                (Some(run), Some(streamed)) => streamed.with(run, updated.len(), update)?,
                _ => match states.get_mut(&parameter) {
                    Some(states) => update(states.first_mut(updated.len()))?,
                    None => return Err(EngineError::StatesLost),
                },
            }
            Ok(p.elements())
        });
        (self.states, self.streamed) = (states, streamed);
        swept
    }

    pub(super) fn restore(&mut self, op: &kind::Restore) -> Result<usize, EngineError> {
        let kind::Restore { run, value, .. } = *op;
        let valid = self.program.valid_elements(value, self.place);
        let range = self.program.run(run).range();
        let restored = range.start.min(valid)..range.end.min(valid);
        let streamed = self.streamed.take();
        let swept = self.write(value, |rank, p| {
            let mut p = B::part(p, restored.clone());
            let round = |masters: B::View<'_>| rank.backend.round(&mut p, masters);
            let done = streamed.as_ref().and_then(|streamed| streamed.with_masters(run, restored.len(), round));
            done.ok_or(EngineError::StatesLost)??;
            Ok(restored.len())
        });
        self.streamed = streamed;
        swept
    }

    /// States of a bucket have moved.
    pub(super) fn end_move(&mut self, kind: CollectiveKind, bucket: BucketId) -> Done {
        self.streamed()?.wait(kind, bucket)
    }

    pub(super) fn streamed(&mut self) -> Result<&mut Streamed<'a, B>, EngineError> {
        self.streamed.as_mut().ok_or(EngineError::StatesLost)
    }

    /// Constants of the update of this step: the learning rate follows the steps that were taken, the corrections of the
    /// moments follow the updates that were applied, since a skipped step leaves the moments as they are.
    pub(super) fn optimizer_constants(&self, parameter: ParameterId) -> AdamW {
        let hyper = &self.hyper;
        let update = i32::try_from(self.updates + 1).unwrap_or(i32::MAX);
        let decays = self.program.parameters[parameter.0].decay;
        AdamW {
            learning_rate: schedule(hyper, self.step),
            beta1: hyper.beta1,
            beta2: hyper.beta2,
            epsilon: hyper.epsilon,
            weight_decay: if decays { hyper.weight_decay } else { 0.0 },
            correction1: 1.0 - hyper.beta1.powi(update),
            correction2: 1.0 - hyper.beta2.powi(update),
        }
    }
}
