//! Norms in the pieces between which ranks reduce row statistics.

use quadrille_spec::{Norm, Normalization};
use quadrille_step::{BlockKind, NormOf, ValueId, kind};
use quadrille_tensor::{GroupShape, HeadNorm, NormShape, Shape};

use super::Interpreter;
use crate::backend::{Gamma, NormInput, Statistics, View};
use crate::{Backend, EngineError};

type Swept = Result<usize, EngineError>;

impl<B: Backend> Interpreter<'_, B> {
    pub(super) fn row_sums(&mut self, op: &kind::RowSums) -> Swept {
        self.write(op.output, |this, out| {
            let x = this.read(op.input)?;
            this.backend.norm_row_sums(this.step.shape(op.input), x, out)?;
            Ok(x.elements())
        })
    }

    pub(super) fn centered_squares(&mut self, op: &kind::CenteredSquares) -> Swept {
        self.write(op.output, |this, squares| {
            let x = this.read(op.input)?;
            let sums = this.read(op.sums)?;
            // These are divided by the width alone; epsilon is added where they are used.
            this.backend.norm_centered_squares(this.norm_shape(op.input, 0.0), x, sums, squares)?;
            Ok(x.elements())
        })
    }

    pub(super) fn row_squares(&mut self, op: &kind::RowSquares) -> Swept {
        self.write(op.output, |this, squares| {
            let x = this.read(op.input)?;
            this.backend.rms_norm_squares(this.step.shape(op.input), x, squares)?;
            Ok(x.elements())
        })
    }

    pub(super) fn norm(&mut self, op: &kind::Norm) -> Swept {
        let kind::Norm { of, input, sums, squares, gamma, beta, output } = *op;
        self.write(output, |this, y| {
            let rule = this.rank.normalization(of);
            let norm = this.norm_input(rule, input, sums, squares, gamma)?;
            let beta = this.read_some(beta)?;
            this.backend.norm_forward(this.norm_shape(input, rule.epsilon), norm, beta, y)?;
            Ok(norm.x.elements())
        })
    }

    pub(super) fn norm_backward_sums(&mut self, op: &kind::NormBackwardSums) -> Swept {
        self.write(op.output, |this, out| {
            this.write(op.gamma_gradient, |this, dgamma| match op.beta_gradient {
                Some(beta) => this.write(beta, |this, dbeta| this.norm_sums(op, out, dgamma, Some(dbeta))),
                None => this.norm_sums(op, out, dgamma, None),
            })
        })
    }

    fn norm_sums(
        &self,
        op: &kind::NormBackwardSums,
        out: &mut B::ViewMut<'_>,
        dgamma: &mut B::ViewMut<'_>,
        dbeta: Option<&mut B::ViewMut<'_>>,
    ) -> Swept {
        let kind::NormBackwardSums { of, input, sums, squares, gamma, gradient, write, .. } = *op;
        let rule = self.rank.normalization(of);
        let norm = self.norm_input(rule, input, sums, squares, gamma)?;
        let dy = self.read(gradient)?;
        let add = self.step.accumulates(write);
        let shape = self.norm_shape(input, rule.epsilon);
        self.backend.norm_backward_sums(shape, norm, dy, out, dgamma, dbeta, add)?;
        Ok(norm.x.elements())
    }

    pub(super) fn norm_backward(&mut self, op: &kind::NormBackward) -> Swept {
        let kind::NormBackward { of, input, sums, squares, gamma, gradient, reduced, output, write } = *op;
        self.write(output, |this, dx| {
            let rule = this.rank.normalization(of);
            let norm = this.norm_input(rule, input, sums, squares, gamma)?;
            let dy = this.read(gradient)?;
            let reduced = this.read(reduced)?;
            let add = this.step.accumulates(write);
            let shape = this.norm_shape(input, rule.epsilon);
            this.backend.norm_backward(shape, norm, dy, reduced, dx, add)?;
            Ok(norm.x.elements())
        })
    }

    pub(super) fn norm_shape(&self, input: ValueId, eps: f64) -> NormShape {
        let Shape { rows, cols } = self.step.shape(input);
        NormShape { rows, cols, width: self.rank.value(input).cols, eps }
    }

    pub(super) fn norm_input(
        &self,
        rule: Normalization,
        input: ValueId,
        sums: Option<ValueId>,
        squares: ValueId,
        gamma: ValueId,
    ) -> Result<NormInput<B::View<'_>>, EngineError> {
        let statistics = Statistics { sums: self.read_some(sums)?, squares: self.read(squares)? };
        Ok(NormInput { x: self.read(input)?, statistics, gamma: self.gamma(gamma, rule)? })
    }

    pub(super) fn gamma(&self, gamma: ValueId, rule: Normalization) -> Result<Gamma<B::View<'_>>, EngineError> {
        Ok(Gamma { stored: self.read(gamma)?, offset: rule.offset })
    }

    pub(super) fn head_norm(&mut self, op: &kind::HeadNorm) -> Swept {
        let kind::HeadNorm { block, keys, input, gamma, beta, output } = *op;
        let in_place = self.rank.storage(input) == self.rank.storage(output);
        self.write(output, |this, qkv| {
            if !in_place {
                this.backend.copy(qkv, this.read(input)?)?;
            }
            let (norm, rule) = this.heads_normed(block, keys, output);
            this.backend.head_norm_forward(norm, this.gamma(gamma, rule)?, this.read_some(beta)?, qkv)
        })
    }

    pub(super) fn head_norm_backward(&mut self, op: &kind::HeadNormBackward) -> Swept {
        self.write(op.output, |this, dqkv| {
            this.write(op.gamma_gradient, |this, dgamma| match op.beta_gradient {
                Some(beta) => this.write(beta, |this, dbeta| this.head_gradients(op, dqkv, dgamma, Some(dbeta))),
                None => this.head_gradients(op, dqkv, dgamma, None),
            })
        })
    }

    fn head_gradients(
        &self,
        op: &kind::HeadNormBackward,
        dqkv: &mut B::ViewMut<'_>,
        dgamma: &mut B::ViewMut<'_>,
        dbeta: Option<&mut B::ViewMut<'_>>,
    ) -> Swept {
        let kind::HeadNormBackward { block, keys, input, gamma, write, .. } = *op;
        let (norm, rule) = self.heads_normed(block, keys, input);
        let x = self.read(input)?;
        let gamma = self.gamma(gamma, rule)?;
        let add = self.step.accumulates(write);
        self.backend.head_norm_backward(norm, x, gamma, dqkv, dgamma, dbeta, add)
    }

    /// The norm of a block's queries, or keys, of which `qkv` has this rank's.
    fn heads_normed(&self, block: BlockKind, keys: bool, qkv: ValueId) -> (HeadNorm, Normalization) {
        let rule = self.rank.normalization(NormOf::Heads(block));
        let Shape { rows, cols } = self.step.shape(qkv);
        let GroupShape { groups, heads, head_dim, value_dim, .. } = self.rank.groups(block, rows, cols);
        let centered = rule.kind == Norm::Layer;
        (HeadNorm { groups, heads, head_dim, value_dim, keys, centered, eps: rule.epsilon }, rule)
    }
}
