//! Biases, GELU, dropout and the residual stream.

use quadrille_step::{Operation, ValueId, Write};
use quadrille_tensor as kernels;

use crate::{EngineError, RankEngine, Real};

type Swept = Result<usize, EngineError>;

impl<T: Real> RankEngine<'_, T> {
    pub(super) fn bias(&mut self, bias: ValueId, output: ValueId) -> Swept {
        self.write(output, |rank, x| {
            let (rows, cols) = rank.dims(output);
            kernels::bias_forward(&rank.pool, rows, cols, x, rank.read(bias)?);
            Ok(x.len())
        })
    }

    pub(super) fn bias_backward(&mut self, gradient: ValueId, output: ValueId, write: Write) -> Swept {
        self.write(output, |rank, dbias| {
            let ((rows, cols), dy) = (rank.dims(gradient), rank.read(gradient)?);
            let add = rank.accumulates(write);
            kernels::bias_backward(&rank.pool, rows, cols, dy, dbias, add);
            Ok(dy.len())
        })
    }

    pub(super) fn bias_gelu(&mut self, operation: &Operation) -> Swept {
        let Operation::BiasGelu { bias, output, activated, .. } = *operation else { return Ok(0) };
        self.write(activated, |rank, y| {
            rank.write(output, |rank, pre| {
                let (rows, cols) = rank.dims(output);
                kernels::bias_gelu_forward(&rank.pool, rows, cols, pre, rank.read_some(bias)?, y);
                Ok(pre.len())
            })
        })
    }

    pub(super) fn gelu(&mut self, input: ValueId, output: ValueId) -> Swept {
        self.write(output, |rank, activated| {
            kernels::gelu(&rank.pool, rank.read(input)?, activated);
            Ok(activated.len())
        })
    }

    pub(super) fn gelu_backward(&mut self, operation: &Operation) -> Swept {
        let Operation::GeluBackward { input, output, bias_gradient, write, .. } = *operation else { return Ok(0) };
        let add = self.accumulates(write);
        self.write(output, |rank, dy| {
            let (rows, cols) = rank.dims(input);
            let mut reverse = |rank: &Self, dbias: Option<&mut [T]>| {
                kernels::bias_gelu_backward(&rank.pool, rows, cols, rank.read(input)?, dy, dbias, add);
                Ok(dy.len())
            };
            match bias_gradient {
                Some(bias) => rank.write(bias, |rank, dbias| reverse(rank, Some(dbias))),
                None => reverse(rank, None),
            }
        })
    }

    pub(super) fn dropout(&mut self, purpose: &str, input: ValueId, output: ValueId) -> Swept {
        let in_place = self.storage(input) == self.storage(output);
        self.write(output, |rank, x| {
            if !in_place {
                kernels::copy(&rank.pool, x, rank.read(input)?);
            }
            let ((rows, cols), (scale, keep)) = (rank.dims(input), rank.mask(purpose, output));
            kernels::dropout(&rank.pool, rows, cols, x, scale, keep);
            Ok(x.len())
        })
    }

    pub(super) fn residual(&mut self, operation: &Operation) -> Swept {
        let Operation::Residual { bias, residual, output, ref dropout, .. } = *operation else { return Ok(0) };
        self.write(output, |rank, x| {
            let ((rows, cols), bias) = (rank.dims(output), rank.read_some(bias)?);
            let mask = dropout.as_ref().map(|purpose| rank.mask(purpose, output));
            let dropout = mask.as_ref().map(|(scale, keep)| (*scale, keep as _));
            kernels::residual_forward(&rank.pool, rows, cols, x, bias, rank.read(residual)?, dropout);
            Ok(x.len())
        })
    }
}
