//! Accumulation of gradients, the norm, the optimizer.

use quadrille_spec::Axis;
use quadrille_step::{ParameterId, kind};
use quadrille_tensor::AdamW;

use super::Done;
use crate::backend::{View, ViewMut};
use crate::optimizer::StatesMut;
use crate::{Backend, EngineError, RankEngine, Shard, schedule};

impl<B: Backend> RankEngine<'_, B> {
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

    pub(super) fn sum_squares(&mut self, op: &kind::SumSquares) -> Done {
        let kind::SumSquares { parameter: id, gradient } = *op;
        let (program, place) = (self.program, self.place);
        let parameter = &program.parameters[id.0];
        if parameter.copy || !self.value(gradient).sharding.is_owner(place) {
            return Ok(());
        }
        let elements = program.valid_elements(gradient, place);
        let runs = match parameter.shared.filter(|shared| !place.on(Axis::X).is_multiple_of(shared.copies)) {
            None => std::iter::once(0..elements).collect(),
            // The first rank of a block counts what all of them hold.
            Some(shared) => {
                let runs = Shard::of(program, parameter, gradient, place).runs();
                let own = runs.filter(|run| !shared.is_copied(run.col));
                own.map(|run| run.local..run.local + run.len).collect::<Vec<_>>()
            }
        };
        self.backend.sum_squares(self.read(gradient)?.part(0..elements), &runs)
    }

    pub(super) fn adamw(&mut self, op: &kind::AdamW) -> Result<usize, EngineError> {
        let kind::AdamW { parameter, value, gradient } = *op;
        let constants = self.optimizer_constants(parameter);
        let valid = self.program.valid_elements(gradient, self.place);
        let mut states = std::mem::take(&mut self.states);
        let swept = self.write(value, |rank, p| {
            let StatesMut { mut master, moments: [mut m, mut v] } = states[parameter.0].first_mut(valid);
            let (mut p, g) = (B::part(p, 0..valid), rank.read(gradient)?.part(0..valid));
            rank.backend.adamw(&constants, &mut p, master.as_mut(), g, &mut m, &mut v)?;
            Ok(p.elements())
        });
        self.states = states;
        swept
    }

    fn optimizer_constants(&self, parameter: ParameterId) -> AdamW {
        let hyper = &self.hyper;
        let decays = self.program.parameters[parameter.0].decay;
        AdamW {
            learning_rate: schedule(hyper, self.step),
            beta1: hyper.beta1,
            beta2: hyper.beta2,
            epsilon: hyper.epsilon,
            weight_decay: if decays { hyper.weight_decay } else { 0.0 },
            correction1: 1.0 - hyper.beta1.powi(self.step as i32),
            correction2: 1.0 - hyper.beta2.powi(self.step as i32),
        }
    }
}
