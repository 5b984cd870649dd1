//! Biases, activation functions, dropout and the residual stream.

use quadrille_spec::Activation;
use quadrille_step::{Scaled, ValueId, kind};
use quadrille_tensor::{Curve, Element as _, Stored as _};

use crate::backend::{View, ViewMut};
use crate::{Backend, EngineError, RankEngine};

type Swept = Result<usize, EngineError>;

/// The function of an activation, and whether it is gated.
fn curve(function: Activation) -> (Curve, bool) {
    match function {
        Activation::Gelu => (Curve::Gelu, false),
        Activation::GeluErf => (Curve::GeluErf, false),
        Activation::Silu => (Curve::Silu, false),
        Activation::Relu => (Curve::Relu, false),
        Activation::Relu2 => (Curve::Relu2, false),
        Activation::Geglu => (Curve::Gelu, true),
        Activation::Swiglu => (Curve::Silu, true),
        Activation::Reglu => (Curve::Relu, true),
    }
}

impl<B: Backend> RankEngine<'_, B> {
    pub(super) fn bias(&mut self, op: &kind::Bias) -> Swept {
        let kind::Bias { bias, output, .. } = *op;
        if self.is_biased(output) {
            return Ok(self.local_elements(output));
        }
        self.write(output, |rank, x| {
            rank.backend.bias_forward(rank.shape(output), x, rank.read(bias)?)?;
            Ok(x.elements())
        })
    }

    /// Whether the product has added the bias; known once.
    fn is_biased(&mut self, output: ValueId) -> bool {
        let storage = self.storage(output);
        self.biased.take(storage)
    }

    pub(super) fn bias_backward(&mut self, op: &kind::BiasBackward) -> Swept {
        let kind::BiasBackward { gradient, output, write } = *op;
        self.write(output, |rank, dbias| {
            let shape = rank.shape(gradient);
            let dy = rank.read(gradient)?;
            rank.backend.bias_backward(shape, dy, dbias, rank.accumulates(write))?;
            Ok(dy.elements())
        })
    }

    pub(super) fn bias_activation(&mut self, op: &kind::BiasActivation) -> Swept {
        let kind::BiasActivation { function, bias, output, activated, .. } = *op;
        let bias = if self.is_biased(output) { None } else { bias };
        self.write(activated, |rank, y| {
            rank.write(output, |rank, pre| {
                let shape = rank.shape(activated);
                let bias = rank.read_some(bias)?;
                match curve(function) {
                    (curve, false) => rank.backend.bias_curve_forward(curve, shape, pre, bias, y),
                    (curve, true) => rank.backend.bias_gated_forward(curve, shape, pre, bias, y),
                }?;
                Ok(pre.elements())
            })
        })
    }

    pub(super) fn activate(&mut self, op: &kind::Activate) -> Swept {
        let kind::Activate { function, input, output } = *op;
        self.write(output, |rank, activated| {
            let pre = rank.read(input)?;
            match curve(function) {
                (curve, false) => rank.backend.activate_curve(curve, pre, activated),
                (curve, true) => rank.backend.activate_gated(curve, pre, activated),
            }?;
            Ok(pre.elements())
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
    fn activation_gradient(
        &self,
        op: &kind::ActivationBackward,
        in_place: &mut B::ViewMut<'_>,
        dbias: Option<&mut B::ViewMut<'_>>,
    ) -> Swept {
        let kind::ActivationBackward { function, input, gradient, write, .. } = *op;
        let shape = self.shape(gradient);
        let add = self.accumulates(write);
        let backend = &self.backend;
        match curve(function) {
            (curve, false) => backend.bias_curve_backward(curve, shape, self.read(input)?, in_place, dbias, add),
            (curve, true) => backend.bias_gated_backward(curve, shape, in_place, self.read(gradient)?, dbias, add),
        }?;
        Ok(in_place.elements())
    }

    pub(super) fn scale(&mut self, op: &kind::Scale) -> Swept {
        let kind::Scale { of, input, output } = *op;
        let in_place = self.storage(input) == self.storage(output);
        self.write(output, |rank, x| {
            if !in_place {
                rank.backend.copy(x, rank.read(input)?)?;
            }
            rank.backend.scale(x, rank.factor(of))?;
            Ok(x.elements())
        })
    }

    /// What is multiplied with; of tokens rounded to the type that values are stored in, as the transformers library does it.
    fn factor(&self, of: Scaled) -> f64 {
        let factor = of.factor(&self.program.model);
        match of {
            Scaled::Embedding => B::Stored::rounded(B::Real::from_f64(factor)).widen().to_f64(),
            Scaled::Branch(_) => factor,
        }
    }

    pub(super) fn dropout(&mut self, op: &kind::Dropout) -> Swept {
        let kind::Dropout { site, input, output } = *op;
        let in_place = self.storage(input) == self.storage(output);
        self.write(output, |rank, x| {
            if !in_place {
                rank.backend.copy(x, rank.read(input)?)?;
            }
            rank.backend.dropout(rank.shape(input), x, &rank.mask(site, output))?;
            Ok(x.elements())
        })
    }

    pub(super) fn residual(&mut self, op: &kind::Residual) -> Swept {
        let kind::Residual { bias, residual, output, dropout, .. } = *op;
        self.write(output, |rank, x| {
            let shape = rank.shape(output);
            let bias = rank.read_some(bias)?;
            let mask = dropout.map(|site| rank.mask(site, output));
            rank.backend.residual_forward(shape, x, bias, rank.read(residual)?, mask.as_ref())?;
            Ok(x.elements())
        })
    }
}
