//! Runs of operations that the backend does at once: see [`super::fusion`].

use quadrille_step::{Op, Operation, StorageId, ValueId, kind};
use quadrille_tensor::AdamW;

use super::fusion::Pattern;
use super::{Done, Interpreter};
use crate::backend::{FusedKernels, ParameterUpdate, RankMemory, View};
use crate::optimizer::states::StatesMut;
use crate::state::storages::Block;
use crate::{Backend, EngineError};

impl<B: Backend> Interpreter<'_, B> {
    /// Executes a run; each of its operations is counted as if it were alone.
    pub(super) fn execute_run(&mut self, fused: &B::Fused, pattern: Pattern, ops: &[Op]) -> Done {
        let swept = match (pattern, ops[0].operation, ops[ops.len() - 1].operation) {
            (Pattern::Norm, _, Operation::Norm(norm)) => vec![self.whole_norm(fused, &norm)?; ops.len()],
            (Pattern::NormBackward, Operation::NormBackwardSums(sums), Operation::NormBackward(norm)) => {
                vec![self.whole_norm_backward(fused, &sums, &norm)?; ops.len()]
            }
            (Pattern::Updates, ..) => self.updates(fused, ops)?,
            _ => unreachable!("the pattern was found"),
        };
        for (op, swept) in ops.iter().zip(swept) {
            self.observers.ledger.add_elements(op.operation.name(), swept);
        }
        Ok(())
    }

    fn whole_norm(&mut self, fused: &B::Fused, op: &kind::Norm) -> Result<usize, EngineError> {
        let kind::Norm { of, input, sums, squares, gamma, beta, output } = *op;
        let norm =
            |this: &Self, sums: Option<&mut B::ViewMut<'_>>, squares: &mut B::ViewMut<'_>, y: &mut B::ViewMut<'_>| {
                let x = this.read(input)?;
                let rule = this.rank.normalization(of);
                let shape = this.norm_shape(input, rule.epsilon);
                let gamma = this.gamma(gamma, rule)?;
                let beta = this.read_some(beta)?;
                fused.whole_norm(shape, x, sums, squares, gamma, beta, y)?;
                Ok(x.elements())
            };
        self.write(output, |this, y| {
            this.write(squares, |this, squares| match sums {
                Some(sums) => this.write(sums, |this, sums| norm(this, Some(sums), squares, y)),
                None => norm(this, None, squares, y),
            })
        })
    }

    fn whole_norm_backward(
        &mut self,
        fused: &B::Fused,
        of_sums: &kind::NormBackwardSums,
        op: &kind::NormBackward,
    ) -> Result<usize, EngineError> {
        let kind::NormBackward { of, input, sums, squares, gamma, gradient, output, .. } = *op;
        let add = [self.step.accumulates(of_sums.write), self.step.accumulates(op.write)];
        type Written<'w, 'v, B> = &'w mut <B as RankMemory>::ViewMut<'v>;
        let norm = |this: &Self,
                    out: Written<'_, '_, B>,
                    dgamma: Written<'_, '_, B>,
                    dbeta: Option<Written<'_, '_, B>>,
                    dx: Written<'_, '_, B>| {
            let rule = this.rank.normalization(of);
            let norm = this.norm_input(rule, input, sums, squares, gamma)?;
            let dy = this.read(gradient)?;
            let shape = this.norm_shape(input, rule.epsilon);
            fused.whole_norm_backward(shape, norm, dy, out, dgamma, dbeta, dx, add)?;
            Ok(norm.x.elements())
        };
        self.write(output, |this, dx| {
            this.write(of_sums.output, |this, out| {
                this.write(of_sums.gamma_gradient, |this, dgamma| match of_sums.beta_gradient {
                    Some(beta) => this.write(beta, |this, dbeta| norm(this, out, dgamma, Some(dbeta), dx)),
                    None => norm(this, out, dgamma, None, dx),
                })
            })
        })
    }

    /// Updates several parameters; returns the number of elements of each.
    fn updates(&mut self, fused: &B::Fused, ops: &[Op]) -> Result<Vec<usize>, EngineError> {
        let update = |op: &Op| if let Operation::AdamW(update) = op.operation { Some(update) } else { None };
        let updates: Vec<kind::AdamW> = ops.iter().filter_map(update).collect();
        let storages = updates.iter().map(|op| self.rank.storage(op.value));
        let taken = storages.map(|storage| Ok((storage, self.storages.take(storage)?)));
        let mut blocks: Vec<(StorageId, Block<B>)> = taken.collect::<Result<_, EngineError>>()?;
        let swept = self.update_all(fused, &updates, &mut blocks);
        blocks.into_iter().for_each(|(storage, block)| self.storages.put(storage, block));
        swept
    }

    fn update_all(
        &mut self,
        fused: &B::Fused,
        ops: &[kind::AdamW],
        blocks: &mut [(StorageId, Block<B>)],
    ) -> Result<Vec<usize>, EngineError> {
        let Self { rank, storages, step, optimizer, .. } = self;
        let constants = ops.iter().map(|op| optimizer.constants(op.parameter, step.number));
        let constants: Vec<AdamW> = constants.collect();
        let mut states = optimizer.resident_mut();
        let range = |id: ValueId| rank.range(id, step.local_elements(id));
        let mut updates = Vec::with_capacity(ops.len());
        let mut swept = Vec::with_capacity(ops.len());
        for ((op, constants), (_, block)) in ops.iter().zip(constants).zip(blocks) {
            let elements = rank.valid_elements(op.gradient);
            let states = states.remove(&op.parameter).ok_or(EngineError::StatesLost)?;
            let StatesMut { master, moments } = states.first_mut(elements);
            let start = range(op.value).start;
            let p = block.view_mut(start..start + elements);
            let g = storages.read(rank.storage(op.gradient), range(op.gradient))?.part(0..elements);
            updates.push(ParameterUpdate { constants, p, master, g, moments });
            swept.push(elements);
        }
        fused.adamw_of_all(&mut updates)?;
        Ok(swept)
    }
}
