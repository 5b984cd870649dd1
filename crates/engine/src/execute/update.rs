//! Accumulation of gradients, the norm, the optimizer.

use quadrille_step::{Operation, ParameterId};
use quadrille_tensor as kernels;
use quadrille_tensor::AdamW;

use super::Done;
use crate::{RankEngine, Real, schedule};

/// Added to the norm before it divides the clipping limit.
const CLIP_EPSILON: f64 = 1e-6;

impl<T: Real> RankEngine<'_, T> {
    pub(super) fn update(&mut self, operation: &Operation) -> Done {
        match *operation {
            Operation::Accumulate { input, output, write } => self.write(output, |rank, y| {
                let x = rank.read(input)?;
                if rank.accumulates(write) {
                    kernels::add_assign(&rank.pool, y, x);
                } else {
                    kernels::copy(&rank.pool, y, x);
                }
                rank.count_elements(operation, y.len());
                Ok(())
            }),
            Operation::SumSquares { parameter, gradient } => {
                let sharding = &self.value(gradient).sharding;
                if self.program.parameters[parameter.0].is_owner(sharding, self.place) {
                    self.norm_squared += kernels::sum_of_squares(&self.pool, self.read(gradient)?);
                }
                Ok(())
            }
            Operation::AdamW { parameter, value, gradient } => {
                let constants = self.optimizer_constants(parameter);
                let [mut m, mut v] = std::mem::take(&mut self.moments[parameter.0]);
                let elements = self.write(value, |rank, p| {
                    kernels::adamw(&rank.pool, &constants, p, rank.read(gradient)?, &mut m, &mut v);
                    Ok(p.len())
                })?;
                self.moments[parameter.0] = [m, v];
                self.count_elements(operation, elements);
                Ok(())
            }
            _ => unreachable!("execute() sends only these operations here"),
        }
    }

    fn optimizer_constants(&self, parameter: ParameterId) -> AdamW {
        let hyper = &self.hyper;
        let decays = self.program.parameters[parameter.0].decay;
        let norm = self.norm_squared.sqrt();
        AdamW {
            learning_rate: schedule(hyper, self.step),
            beta1: hyper.beta1,
            beta2: hyper.beta2,
            epsilon: hyper.epsilon,
            weight_decay: if decays { hyper.weight_decay } else { 0.0 },
            correction1: 1.0 - hyper.beta1.powi(self.step as i32),
            correction2: 1.0 - hyper.beta2.powi(self.step as i32),
            gradient_scale: hyper.clip.map_or(1.0, |clip| (clip / (norm + CLIP_EPSILON)).min(1.0)),
        }
    }
}
