//! What a forward or backward pass reads, and its layers by their parameters' names.

use quadrille_spec::{Block, Model, Norm, Normalization};

use crate::attention::Attention;
use crate::dropout::{DropoutSeed, Mask};
use crate::{Batch, Decisions, Tensors, linear, norm};

/// One pass of one batch.
pub(crate) struct Pass<'a> {
    pub(crate) model: &'a Model,
    pub(crate) parameters: &'a Tensors,
    pub(crate) batch: &'a Batch<'a>,
    pub(crate) dropout: Option<DropoutSeed>,
    /// Which experts are chosen; none: what the routers say.
    pub(crate) decisions: Option<&'a Decisions>,
    /// Whether experts have places for some tokens only.
    pub(crate) drops: bool,
}

impl Pass<'_> {
    /// The elements of the parameter `name`.
    pub(crate) fn parameter(&self, name: &str) -> &[f64] {
        &self.parameters[name]
    }

    /// The dropout factors of `purpose`.
    pub(crate) fn mask(&self, purpose: &str) -> Mask {
        Mask::new(self.model, self.dropout, purpose)
    }

    /// What the model says of block `i`.
    pub(crate) fn block(&self, i: usize) -> &Block {
        &self.model.blocks[i]
    }

    /// The attention of block `i`.
    pub(crate) fn attention(&self, i: usize) -> Attention {
        let described = &self.block(i).attention;
        Attention {
            sequences: self.batch.sequences,
            seq_len: self.batch.seq_len,
            heads: described.heads,
            kv_heads: described.kv_heads,
            head_dim: described.head_dim,
            value_dim: described.value_dim,
            causal: described.causal,
            window: described.window,
            scale: described.score_scale,
            cap: described.cap,
        }
    }

    /// The norm `name` of `x[n, h]`.
    pub(crate) fn norm(&self, name: &str, rule: Normalization, x: &[f64]) -> Vec<f64> {
        let beta = (rule.kind == Norm::Layer).then(|| self.parameter(&format!("{name}.beta")));
        norm::forward(rule.kind, x, &self.gamma(name, rule), beta, rule.epsilon)
    }

    /// `dx` of the norm `name`; its parameters' gradients are added to `gradients`.
    pub(crate) fn norm_backward(
        &self,
        name: &str,
        rule: Normalization,
        dy: &[f64],
        x: &[f64],
        gradients: &mut Tensors,
    ) -> Vec<f64> {
        let d = norm::backward(rule.kind, dy, x, &self.gamma(name, rule), rule.epsilon);
        accumulate(gradients, &format!("{name}.gamma"), &d.gamma);
        if rule.kind == Norm::Layer {
            accumulate(gradients, &format!("{name}.beta"), &d.beta);
        }
        d.x
    }

    /// What the norm `name` multiplies columns with.
    fn gamma(&self, name: &str, rule: Normalization) -> Vec<f64> {
        let more = if rule.offset { 1.0 } else { 0.0 };
        self.parameter(&format!("{name}.gamma")).iter().map(|gamma| more + gamma).collect()
    }

    /// The linear layer `name` of `x[n, inputs]`.
    pub(crate) fn linear(&self, name: &str, x: &[f64]) -> Vec<f64> {
        let bias = self.parameters.get(&format!("{name}.bias")).map(Vec::as_slice);
        linear::forward(self.batch.rows(), x, self.parameter(&format!("{name}.weight")), bias)
    }

    /// `dx` of the linear layer `name`; its parameters' gradients are added to `gradients`.
    pub(crate) fn linear_backward(&self, name: &str, dy: &[f64], x: &[f64], gradients: &mut Tensors) -> Vec<f64> {
        let d = linear::backward(self.batch.rows(), dy, x, self.parameter(&format!("{name}.weight")));
        accumulate(gradients, &format!("{name}.weight"), &d.weight);
        if gradients.contains_key(&format!("{name}.bias")) {
            accumulate(gradients, &format!("{name}.bias"), &d.bias);
        }
        d.x
    }
}

/// Adds `gradient` to the tensor `name`.
pub(crate) fn accumulate(gradients: &mut Tensors, name: &str, gradient: &[f64]) {
    let total = gradients.get_mut(name).expect("the gradients hold every parameter of the model");
    for (total, gradient) in total.iter_mut().zip(gradient) {
        *total += gradient;
    }
}

/// The element-wise sum.
pub(crate) fn sum(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| a + b).collect()
}
