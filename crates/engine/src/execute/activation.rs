//! Biases, activation functions, dropout and the residual stream.

use quadrille_spec::Activation;
use quadrille_step::kind;
use quadrille_tensor as kernels;

use crate::{EngineError, RankEngine, Real};

type Swept = Result<usize, EngineError>;

impl<T: Real> RankEngine<'_, T> {
    pub(super) fn bias(&mut self, op: &kind::Bias) -> Swept {
        let kind::Bias { bias, output, .. } = *op;
        self.write(output, |rank, x| {
            let (rows, cols) = rank.dims(output);
            kernels::bias_forward(&rank.pool, rows, cols, x, rank.read(bias)?);
            Ok(x.len())
        })
    }

    pub(super) fn bias_backward(&mut self, op: &kind::BiasBackward) -> Swept {
        let kind::BiasBackward { gradient, output, write } = *op;
        self.write(output, |rank, dbias| {
            let ((rows, cols), dy) = (rank.dims(gradient), rank.read(gradient)?);
            let add = rank.accumulates(write);
            kernels::bias_backward(&rank.pool, rows, cols, dy, dbias, add);
            Ok(dy.len())
        })
    }

    pub(super) fn bias_activation(&mut self, op: &kind::BiasActivation) -> Swept {
        let kind::BiasActivation { function, bias, output, activated, .. } = *op;
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

    pub(super) fn activate(&mut self, op: &kind::Activate) -> Swept {
        let kind::Activate { function, input, output } = *op;
        self.write(output, |rank, activated| {
            let pre = rank.read(input)?;
            match function {
                Activation::Gelu => kernels::gelu(&rank.pool, pre, activated),
                Activation::Swiglu => kernels::swiglu(&rank.pool, pre, activated),
            }
            Ok(pre.len())
        })
    }

    pub(super) fn activation_backward(&mut self, op: &kind::ActivationBackward) -> Swept {
        let kind::ActivationBackward { output, bias_gradient, .. } = *op;
        self.write(output, |rank, in_place| match bias_gradient {
            Some(bias) => rank.write(bias, |rank, dbias| rank.activation_gradient(op, in_place, Some(dbias))),
            None => rank.activation_gradient(op, in_place, None),
        })
    }

    /// `in_place` holds the gradient of GELU's output, or SwiGLU's input.
    fn activation_gradient(&self, op: &kind::ActivationBackward, in_place: &mut [T], dbias: Option<&mut [T]>) -> Swept {
        let kind::ActivationBackward { function, input, gradient, write, .. } = *op;
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

    pub(super) fn dropout(&mut self, op: &kind::Dropout) -> Swept {
        let kind::Dropout { site, input, output } = *op;
        let in_place = self.storage(input) == self.storage(output);
        self.write(output, |rank, x| {
            if !in_place {
                kernels::copy(&rank.pool, x, rank.read(input)?);
            }
            let ((rows, cols), (scale, keep)) = (rank.dims(input), rank.mask(site, output));
            kernels::dropout(&rank.pool, rows, cols, x, scale, keep);
            Ok(x.len())
        })
    }

    pub(super) fn residual(&mut self, op: &kind::Residual) -> Swept {
        let kind::Residual { bias, residual, output, dropout, .. } = *op;
        self.write(output, |rank, x| {
            let ((rows, cols), bias) = (rank.dims(output), rank.read_some(bias)?);
            let mask = dropout.map(|site| rank.mask(site, output));
            let dropout = mask.as_ref().map(|(scale, keep)| (*scale, keep as _));
            kernels::residual_forward(&rank.pool, rows, cols, x, bias, rank.read(residual)?, dropout);
            Ok(x.len())
        })
    }
}
