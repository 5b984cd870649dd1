//! Biases, activation functions, dropout and the residual stream.

use quadrille_spec::Activation;
use quadrille_step::kind;
use quadrille_tensor as kernels;
use quadrille_tensor::Curve;

use crate::{EngineError, RankEngine, Real};

type Swept = Result<usize, EngineError>;

/// The function of an activation, and whether it is gated.
fn curve(function: Activation) -> (Curve, bool) {
    match function {
        Activation::Gelu => (Curve::Gelu, false),
        Activation::Silu => (Curve::Silu, false),
        Activation::Relu => (Curve::Relu, false),
        Activation::Relu2 => (Curve::Relu2, false),
        Activation::Geglu => (Curve::Gelu, true),
        Activation::Swiglu => (Curve::Silu, true),
        Activation::Reglu => (Curve::Relu, true),
    }
}

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
                match curve(function) {
                    (curve, false) => kernels::bias_curve_forward(&rank.pool, curve, rows, cols, pre, bias, y),
                    (curve, true) => kernels::bias_gated_forward(&rank.pool, curve, rows, cols, pre, bias, y),
                }
                Ok(pre.len())
            })
        })
    }

    pub(super) fn activate(&mut self, op: &kind::Activate) -> Swept {
        let kind::Activate { function, input, output } = *op;
        self.write(output, |rank, activated| {
            let pre = rank.read(input)?;
            match curve(function) {
                (curve, false) => kernels::activate_curve(&rank.pool, curve, pre, activated),
                (curve, true) => kernels::activate_gated(&rank.pool, curve, pre, activated),
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

    /// `in_place` holds the gradient of the function's output, or, with gates, its input.
    fn activation_gradient(&self, op: &kind::ActivationBackward, in_place: &mut [T], dbias: Option<&mut [T]>) -> Swept {
        let kind::ActivationBackward { function, input, gradient, write, .. } = *op;
        let ((rows, cols), add) = (self.dims(gradient), self.accumulates(write));
        match curve(function) {
            (curve, false) => {
                kernels::bias_curve_backward(&self.pool, curve, rows, cols, self.read(input)?, in_place, dbias, add);
            }
            (curve, true) => {
                kernels::bias_gated_backward(&self.pool, curve, rows, cols, in_place, self.read(gradient)?, dbias, add);
            }
        }
        Ok(in_place.len())
    }

    pub(super) fn scale(&mut self, op: &kind::Scale) -> Swept {
        let kind::Scale { block, input, output } = *op;
        let in_place = self.storage(input) == self.storage(output);
        self.write(output, |rank, x| {
            if !in_place {
                kernels::copy(&rank.pool, x, rank.read(input)?);
            }
            kernels::scale(&rank.pool, x, T::from_f64(block.of(&rank.program.model).residual.scale));
            Ok(x.len())
        })
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
