//! Biases, activation functions, dropout and the residual stream.

use quadrille_spec::Activation;
use quadrille_step::{Scaled, ValueId, kind};
use quadrille_tensor::{Curve, Element as _, Stored as _};

use super::Interpreter;
use crate::backend::{View, ViewMut};
use crate::{Backend, EngineError};

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

impl<B: Backend> Interpreter<'_, B> {
    pub(super) fn bias(&mut self, op: &kind::Bias) -> Swept {
        let kind::Bias { bias, output, .. } = *op;
        if self.is_biased(output) {
            return Ok(self.step.local_elements(output));
        }
        self.write(output, |this, x| {
            this.backend.bias_forward(this.step.shape(output), x, this.read(bias)?)?;
            Ok(x.elements())
        })
    }

    /// True if the product has added the bias; known once.
    fn is_biased(&mut self, output: ValueId) -> bool {
        let storage = self.rank.storage(output);
        self.fusion.biased.take(storage)
    }

    pub(super) fn bias_backward(&mut self, op: &kind::BiasBackward) -> Swept {
        let kind::BiasBackward { gradient, output, write } = *op;
        self.write(output, |this, dbias| {
            let shape = this.step.shape(gradient);
            let dy = this.read(gradient)?;
            this.backend.bias_backward(shape, dy, dbias, this.step.accumulates(write))?;
            Ok(dy.elements())
        })
    }

    pub(super) fn bias_activation(&mut self, op: &kind::BiasActivation) -> Swept {
        let kind::BiasActivation { function, bias, output, activated, .. } = *op;
        let bias = if self.is_biased(output) { None } else { bias };
        self.write(activated, |this, y| {
            this.write(output, |this, pre| {
                let shape = this.step.shape(activated);
                let bias = this.read_some(bias)?;
                match curve(function) {
                    (curve, false) => this.backend.bias_curve_forward(curve, shape, pre, bias, y),
                    (curve, true) => this.backend.bias_gated_forward(curve, shape, pre, bias, y),
                }?;
                Ok(pre.elements())
            })
        })
    }

    pub(super) fn activate(&mut self, op: &kind::Activate) -> Swept {
        let kind::Activate { function, input, output } = *op;
        self.write(output, |this, activated| {
            let pre = this.read(input)?;
            match curve(function) {
                (curve, false) => this.backend.activate_curve(curve, pre, activated),
                (curve, true) => this.backend.activate_gated(curve, pre, activated),
            }?;
            Ok(pre.elements())
        })
    }

    pub(super) fn activation_backward(&mut self, op: &kind::ActivationBackward) -> Swept {
        let kind::ActivationBackward { output, bias_gradient, .. } = *op;
        self.write(output, |this, in_place| match bias_gradient {
            Some(bias) => this.write(bias, |this, dbias| this.activation_gradient(op, in_place, Some(dbias))),
            None => this.activation_gradient(op, in_place, None),
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
        let shape = self.step.shape(gradient);
        let add = self.step.accumulates(write);
        let backend = &self.backend;
        match curve(function) {
            (curve, false) => backend.bias_curve_backward(curve, shape, self.read(input)?, in_place, dbias, add),
            (curve, true) => backend.bias_gated_backward(curve, shape, in_place, self.read(gradient)?, dbias, add),
        }?;
        Ok(in_place.elements())
    }

    pub(super) fn scale(&mut self, op: &kind::Scale) -> Swept {
        let kind::Scale { of, input, output } = *op;
        let in_place = self.rank.storage(input) == self.rank.storage(output);
        self.write(output, |this, x| {
            if !in_place {
                this.backend.copy(x, this.read(input)?)?;
            }
            this.backend.scale(x, this.factor(of))?;
            Ok(x.elements())
        })
    }

    /// What is multiplied with; of tokens rounded to the type that values are stored in, as the transformers library does it.
    fn factor(&self, of: Scaled) -> f64 {
        let factor = of.factor(&self.rank.program.model);
        match of {
            Scaled::Embedding => B::Stored::rounded(B::Real::from_f64(factor)).widen().to_f64(),
            Scaled::Branch(_) => factor,
        }
    }

    pub(super) fn dropout(&mut self, op: &kind::Dropout) -> Swept {
        let kind::Dropout { site, input, output } = *op;
        let in_place = self.rank.storage(input) == self.rank.storage(output);
        self.write(output, |this, x| {
            if !in_place {
                this.backend.copy(x, this.read(input)?)?;
            }
            this.backend.dropout(this.step.shape(input), x, &this.step.element_mask(site, output))?;
            Ok(x.elements())
        })
    }

    pub(super) fn residual(&mut self, op: &kind::Residual) -> Swept {
        let kind::Residual { bias, residual, output, dropout, .. } = *op;
        self.write(output, |this, x| {
            let shape = this.step.shape(output);
            let bias = this.read_some(bias)?;
            let mask = dropout.map(|site| this.step.element_mask(site, output));
            this.backend.residual_forward(shape, x, bias, this.read(residual)?, mask.as_ref())?;
            Ok(x.elements())
        })
    }
}
