//! Runs of operations that the backend does at once: see [`crate::fusion`].

use std::collections::BTreeMap;

use quadrille_step::{Op, Operation, ParameterId, StorageId, kind};

use super::Done;
use crate::backend::{ParameterUpdate, RankMemory, View};
use crate::fusion::Pattern;
use crate::optimizer::{OptimizerStates, StatesMut};
use crate::slots::Block;
use crate::{Backend, EngineError, RankEngine};

impl<B: Backend> RankEngine<'_, B> {
    /// Executes a run; each of its operations is counted as if it were alone.
    pub(crate) fn execute_run(&mut self, pattern: Pattern, ops: &[Op]) -> Done {
        let swept = match (pattern, ops[0].operation, ops[ops.len() - 1].operation) {
            (Pattern::Norm, _, Operation::Norm(norm)) => vec![self.whole_norm(&norm)?; ops.len()],
            (Pattern::NormBackward, Operation::NormBackwardSums(sums), Operation::NormBackward(norm)) => {
                vec![self.whole_norm_backward(&sums, &norm)?; ops.len()]
            }
            (Pattern::Updates, ..) => self.updates(ops)?,
            _ => unreachable!("the pattern was found"),
        };
        for (op, swept) in ops.iter().zip(swept) {
            *self.elements.entry(op.operation.name().into()).or_default() += swept as u64;
        }
        Ok(())
    }

    fn whole_norm(&mut self, op: &kind::Norm) -> Result<usize, EngineError> {
        let kind::Norm { of, input, sums, squares, gamma, beta, output } = *op;
        let norm =
            |rank: &Self, sums: Option<&mut B::ViewMut<'_>>, squares: &mut B::ViewMut<'_>, y: &mut B::ViewMut<'_>| {
                let x = rank.read(input)?;
                let rule = rank.normalization(of);
                let shape = rank.norm_shape(input, rule.epsilon);
                let gamma = rank.gamma(gamma, rule)?;
                let beta = rank.read_some(beta)?;
                rank.backend.whole_norm(shape, x, sums, squares, gamma, beta, y)?;
                Ok(x.elements())
            };
        self.write(output, |rank, y| {
            rank.write(squares, |rank, squares| match sums {
                Some(sums) => rank.write(sums, |rank, sums| norm(rank, Some(sums), squares, y)),
                None => norm(rank, None, squares, y),
            })
        })
    }

    fn whole_norm_backward(
        &mut self,
        of_sums: &kind::NormBackwardSums,
        op: &kind::NormBackward,
    ) -> Result<usize, EngineError> {
        let kind::NormBackward { of, input, sums, squares, gamma, gradient, output, .. } = *op;
        let add = [self.accumulates(of_sums.write), self.accumulates(op.write)];
        type Written<'w, 'v, B> = &'w mut <B as RankMemory>::ViewMut<'v>;
        let norm = |rank: &Self,
                    out: Written<'_, '_, B>,
                    dgamma: Written<'_, '_, B>,
                    dbeta: Option<Written<'_, '_, B>>,
                    dx: Written<'_, '_, B>| {
            let x = rank.read(input)?;
            let dy = rank.read(gradient)?;
            let statistics = rank.statistics(sums, squares)?;
            let rule = rank.normalization(of);
            let shape = rank.norm_shape(input, rule.epsilon);
            let gamma = rank.gamma(gamma, rule)?;
            rank.backend.whole_norm_backward(shape, x, statistics, gamma, dy, out, dgamma, dbeta, dx, add)?;
            Ok(x.elements())
        };
        self.write(output, |rank, dx| {
            rank.write(of_sums.output, |rank, out| {
                rank.write(of_sums.gamma_gradient, |rank, dgamma| match of_sums.beta_gradient {
                    Some(beta) => rank.write(beta, |rank, dbeta| norm(rank, out, dgamma, Some(dbeta), dx)),
                    None => norm(rank, out, dgamma, None, dx),
                })
            })
        })
    }

    /// The updates of several parameters; how many elements each has.
    fn updates(&mut self, ops: &[Op]) -> Result<Vec<usize>, EngineError> {
        let updates =
            ops.iter().filter_map(|op| if let Operation::AdamW(update) = op.operation { Some(update) } else { None });
        let updates: Vec<kind::AdamW> = updates.collect();
        let taken = updates.iter().map(|op| Ok((self.storage(op.value), self.slots.take(self.storage(op.value))?)));
        let mut blocks: Vec<(StorageId, Block<B>)> = taken.collect::<Result<_, EngineError>>()?;
        let mut states = std::mem::take(&mut self.states);
        let swept = self.update_all(&updates, &mut blocks, &mut states);
        self.states = states;
        blocks.into_iter().for_each(|(storage, block)| self.slots.put(storage, block));
        swept
    }

    fn update_all(
        &self,
        ops: &[kind::AdamW],
        blocks: &mut [(StorageId, Block<B>)],
        states: &mut BTreeMap<ParameterId, OptimizerStates<B>>,
    ) -> Result<Vec<usize>, EngineError> {
        let mut states: BTreeMap<ParameterId, &mut OptimizerStates<B>> =
            states.iter_mut().map(|(parameter, states)| (*parameter, states)).collect();
        let mut updates = Vec::with_capacity(ops.len());
        let mut swept = Vec::with_capacity(ops.len());
        for (op, (_, block)) in ops.iter().zip(blocks) {
            let elements = self.program.valid_elements(op.gradient, self.place);
            let states = states.remove(&op.parameter).ok_or(EngineError::StatesLost)?;
            let StatesMut { master, moments } = states.first_mut(elements);
            let start = self.range(op.value).start;
            let p = block.view_mut(start..start + elements);
            let g = self.read(op.gradient)?.part(0..elements);
            let constants = self.optimizer_constants(op.parameter);
            updates.push(ParameterUpdate { constants, p, master, g, moments });
            swept.push(elements);
        }
        self.backend.adamw_of_all(&mut updates)?;
        Ok(swept)
    }
}
