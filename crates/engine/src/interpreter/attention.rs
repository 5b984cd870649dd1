//! Attention of this rank's tokens and heads.

use quadrille_spec::Attention;
use quadrille_step::{BlockKind, DropoutSite, ValueId, kind};
use quadrille_tensor::{AttentionShape, LatentShape, Shape};

use super::{Done, Interpreter};
use crate::backend::{AttentionMask, View, ViewMut};
use crate::{Backend, EngineError};

impl<B: Backend> Interpreter<'_, B> {
    pub(super) fn attention(&mut self, op: &kind::Attention) -> Done {
        let kind::Attention { block, dropout, qkv, keys_values, output, statistics } = *op;
        self.write(output, |this, out| {
            this.write(statistics, |this, statistics| {
                let shape = this.attention_shape(block, output);
                let mask = dropout.map(|site| this.attention_mask(site, block, output, shape));
                let qkv = this.read(qkv)?;
                let keys_values = this.read_some(keys_values)?;
                this.backend.attention_forward(shape, qkv, keys_values, out, statistics, mask.as_ref())?;
                this.observers.ledger.flops.attention_forward += flops(shape, out.elements());
                Ok(())
            })
        })
    }

    pub(super) fn attention_backward(&mut self, op: &kind::AttentionBackward) -> Done {
        self.write(op.output, |this, dqkv| match op.keys_values_gradient {
            Some(whole) => this.write(whole, |this, dkv| this.attention_gradients(op, dqkv, Some(dkv))),
            None => this.attention_gradients(op, dqkv, None),
        })
    }

    fn attention_gradients(
        &mut self,
        op: &kind::AttentionBackward,
        dqkv: &mut B::ViewMut<'_>,
        dkv: Option<&mut B::ViewMut<'_>>,
    ) -> Done {
        let kind::AttentionBackward { block, qkv, keys_values, result, statistics, gradient, dropout, .. } = *op;
        let shape = self.attention_shape(block, result);
        let qkv = self.read(qkv)?;
        let out = self.read(result)?;
        let dout = self.read(gradient)?;
        let statistics = self.read(statistics)?;
        let heads = out.elements();
        let mask = dropout.map(|site| self.attention_mask(site, block, result, shape));
        let keys_values = self.read_some(keys_values)?.zip(dkv);
        let mask = mask.as_ref();
        self.backend.attention_backward(shape, qkv, keys_values, out, statistics, dout, dqkv, mask)?;
        self.observers.ledger.flops.attention_backward += 2 * flops(shape, heads);
        Ok(())
    }

    /// A dropout over the attention probabilities of a block whose local result is `output`.
    fn attention_mask(
        &self,
        site: DropoutSite,
        block: BlockKind,
        output: ValueId,
        shape: AttentionShape,
    ) -> AttentionMask {
        AttentionMask {
            dropout: self.step.dropout(site),
            first_sequence: self.step.rows_of(output).sequence(0),
            first_head: self.rank.first_col(output) / shape.value_dim,
            heads: block.of(&self.rank.program.model).attention.heads,
            seq_len: shape.seq_len,
        }
    }

    /// The shape of a block's attention whose local result is `output`.
    fn attention_shape(&self, block: BlockKind, output: ValueId) -> AttentionShape {
        let Shape { rows, cols } = self.step.shape(output);
        let Attention { head_dim, value_dim, causal, window, score_scale: scale, cap, .. } =
            block.of(&self.rank.program.model).attention;
        let seq_len = self.rank.program.layout.seq_len;
        let context = self.rank.context_part();
        let sequences = rows / context.tokens(seq_len);
        let heads = cols / value_dim;
        let kv_heads = heads / self.rank.group_heads(block);
        AttentionShape { sequences, seq_len, heads, kv_heads, head_dim, value_dim, causal, window, scale, cap, context }
    }

    /// Queries, keys and values beside each other, of what makes them apart.
    pub(super) fn join_latent(&mut self, op: &kind::JoinLatent) -> Result<usize, EngineError> {
        let kind::JoinLatent { block, queries, keys_values, shared, output } = *op;
        self.write(output, |this, qkv| {
            let shape = this.latent_shape(block, output);
            this.backend.join_latent(shape, this.read(queries)?, this.read(keys_values)?, this.read(shared)?, qkv)?;
            Ok(qkv.elements())
        })
    }

    pub(super) fn split_latent(&mut self, op: &kind::SplitLatent) -> Result<usize, EngineError> {
        let kind::SplitLatent { block, gradient, queries, keys_values, shared } = *op;
        let shape = self.latent_shape(block, gradient);
        self.write(queries, |this, queries| {
            this.write(keys_values, |this, keys_values| {
                this.write(shared, |this, shared| {
                    let gradient = this.read(gradient)?;
                    this.backend.split_latent(shape, gradient, queries, keys_values, shared)?;
                    Ok(gradient.elements())
                })
            })
        })
    }

    /// The shape of a block's queries, keys and values, which `qkv` has beside each other.
    fn latent_shape(&self, block: BlockKind, qkv: ValueId) -> LatentShape {
        let Attention { head_dim, value_dim, latent, .. } = block.of(&self.rank.program.model).attention;
        let Shape { rows, cols } = self.step.shape(qkv);
        let shared = latent.map_or(0, |latent| latent.shared_key);
        LatentShape { rows, heads: cols / (2 * head_dim + value_dim), head_dim, value_dim, shared }
    }

    /// Queries and keys turned by their positions, or their gradients turned back.
    pub(super) fn rotate(&mut self, op: &kind::Rotate) -> Result<usize, EngineError> {
        let kind::Rotate { block, back, output, .. } = *op;
        self.write(output, |this, qkv| {
            let Shape { rows, cols } = this.step.shape(output);
            let groups = this.rank.groups(block, rows, cols);
            this.backend.rotate(groups, &this.angles[block.0], this.step.positions(output), qkv, back)
        })
    }
}

/// Scores and weighted values for `outputs` elements, of the keys of a window or of all, without causal discount.
fn flops(shape: AttentionShape, outputs: usize) -> u64 {
    let keys = shape.window.map_or(shape.seq_len, |window| window.min(shape.seq_len));
    2 * (keys * (outputs / shape.value_dim) * (shape.head_dim + shape.value_dim)) as u64
}
