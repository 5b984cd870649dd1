//! Accumulation of gradients, the norm, the optimizer.

use quadrille_spec::Axis;
use quadrille_step::{ParameterId, kind};
use quadrille_tensor as kernels;
use quadrille_tensor::AdamW;

use super::Done;
use crate::{EngineError, RankEngine, Real, Shard, schedule};

/// Added to the norm before it divides the clipping limit.
const CLIP_EPSILON: f64 = 1e-6;

impl<T: Real> RankEngine<'_, T> {
    pub(super) fn accumulate(&mut self, op: &kind::Accumulate) -> Result<usize, EngineError> {
        let kind::Accumulate { input, output, write } = *op;
        self.write(output, |rank, y| {
            let x = rank.read(input)?;
            if rank.accumulates(write) {
                kernels::add_assign(&rank.pool, y, x);
            } else {
                kernels::copy(&rank.pool, y, x);
            }
            Ok(x.len())
        })
    }

    pub(super) fn sum_squares(&mut self, op: &kind::SumSquares) -> Done {
        let kind::SumSquares { parameter: id, gradient } = *op;
        let (program, place) = (self.program, self.place);
        let parameter = &program.parameters[id.0];
        if parameter.copy || !self.value(gradient).sharding.is_owner(place) {
            return Ok(());
        }
        let elements = &self.read(gradient)?[..program.valid_elements(gradient, place)];
        let squares = match parameter.shared.filter(|shared| !place.on(Axis::X).is_multiple_of(shared.copies)) {
            None => kernels::sum_of_squares(&self.pool, elements),
            // The first rank of a block counts what all of them hold.
            Some(shared) => {
                let runs = Shard::of(program, parameter, gradient, place).runs();
                let own = runs.filter(|run| !shared.is_copied(run.col));
                own.map(|run| kernels::sum_of_squares(&self.pool, &elements[run.local..run.local + run.len])).sum()
            }
        };
        self.norm_squared += squares;
        Ok(())
    }

    pub(super) fn adamw(&mut self, op: &kind::AdamW) -> Result<usize, EngineError> {
        let kind::AdamW { parameter, value, gradient } = *op;
        let constants = self.optimizer_constants(parameter);
        let [mut m, mut v] = std::mem::take(&mut self.moments[parameter.0]);
        let valid = self.program.valid_elements(gradient, self.place);
        let usable = self.is_usable();
        let swept = self.write(value, |rank, p| {
            if !usable {
                return Ok(valid);
            }
            let (p, g) = (&mut p[..valid], &rank.read(gradient)?[..valid]);
            kernels::adamw(&rank.pool, &constants, p, g, &mut m[..valid], &mut v[..valid]);
            Ok(p.len())
        });
        self.moments[parameter.0] = [m, v];
        swept
    }

    /// The global norm of the gradient, before clipping.
    pub(crate) fn gradient_norm(&self) -> f64 {
        self.norm_squared.sqrt() * self.ignored_factor()
    }

    fn optimizer_constants(&self, parameter: ParameterId) -> AdamW {
        let hyper = &self.hyper;
        let decays = self.program.parameters[parameter.0].decay;
        let (norm, factor) = (self.gradient_norm(), self.ignored_factor());
        AdamW {
            learning_rate: schedule(hyper, self.step),
            beta1: hyper.beta1,
            beta2: hyper.beta2,
            epsilon: hyper.epsilon,
            weight_decay: if decays { hyper.weight_decay } else { 0.0 },
            correction1: 1.0 - hyper.beta1.powi(self.step as i32),
            correction2: 1.0 - hyper.beta2.powi(self.step as i32),
            gradient_scale: factor * hyper.clip.map_or(1.0, |clip| (clip / (norm + CLIP_EPSILON)).min(1.0)),
        }
    }
}
