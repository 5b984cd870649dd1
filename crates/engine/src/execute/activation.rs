//! Biases, activation functions, dropout and the residual stream.

use quadrille_spec::Activation;
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

    pub(super) fn bias_activation(&mut self, operation: &Operation) -> Swept {
        let Operation::BiasActivation { function, bias, output, activated, .. } = *operation else { return Ok(0) };
        self.write(activated, |rank, y| {
            rank.write(output, |rank, pre| {
                let ((rows, cols), bias) = (rank.dims(activated), rank.read_some(bias)?);
                match function {
                    Activation::Gelu => kernels::bias_gelu_forward(&rank.pool, rows, cols, pre, bias, y),
                    Activation::Swiglu => kernels::bias_swiglu_forward(&rank.pool, rows, cols, pre, bias, y),
                }
                Ok(pre.len())
            })
        })
    }

    pub(super) fn activation(&mut self, function: Activation, input: ValueId, output: ValueId) -> Swept {
        self.write(output, |rank, activated| {
            let pre = rank.read(input)?;
            match function {
                Activation::Gelu => kernels::gelu(&rank.pool, pre, activated),
                Activation::Swiglu => kernels::swiglu(&rank.pool, pre, activated),
            }
            Ok(pre.len())
        })
    }

    pub(super) fn activation_backward(&mut self, operation: &Operation) -> Swept {
        let Operation::ActivationBackward { output, bias_gradient, .. } = *operation else { return Ok(0) };
        self.write(output, |rank, in_place| match bias_gradient {
            Some(bias) => rank.write(bias, |rank, dbias| rank.activation_gradient(operation, in_place, Some(dbias))),
            None => rank.activation_gradient(operation, in_place, None),
        })
    }

    /// `in_place` holds the gradient of GELU's output, or SwiGLU's input.
    fn activation_gradient(&self, operation: &Operation, in_place: &mut [T], dbias: Option<&mut [T]>) -> Swept {
        let Operation::ActivationBackward { function, input, gradient, write, .. } = *operation else { return Ok(0) };
        let ((rows, cols), add) = (self.dims(gradient), self.accumulates(write));
        match function {
            Activation::Gelu => {
                kernels::bias_gelu_backward(&self.pool, rows, cols, self.read(input)?, in_place, dbias, add);
            }
            Activation::Swiglu => {
                kernels::bias_swiglu_backward(&self.pool, rows, cols, in_place, self.read(gradient)?, dbias, add);
            }
        }
        Ok(in_place.len())
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
