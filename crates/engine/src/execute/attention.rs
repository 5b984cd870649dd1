//! Attention of this rank's tokens and heads.

use quadrille_spec::Attention;
use quadrille_step::{BlockKind, DropoutSite, ValueId, kind};
use quadrille_tensor::{AttentionShape, LatentShape, Shape};

use super::Done;
use crate::backend::{AttentionMask, View, ViewMut};
use crate::{Backend, EngineError, RankEngine};

impl<B: Backend> RankEngine<'_, B> {
    pub(super) fn attention(&mut self, op: &kind::Attention) -> Done {
        let kind::Attention { block, dropout, qkv, keys_values, output, statistics } = *op;
        self.write(output, |rank, out| {
            rank.write(statistics, |rank, statistics| {
                let shape = rank.attention_shape(block, output);
                let mask = dropout.map(|site| rank.attention_mask(site, block, output, shape));
                let qkv = rank.read(qkv)?;
                let keys_values = rank.read_some(keys_values)?;
                rank.backend.attention_forward(shape, qkv, keys_values, out, statistics, mask.as_ref())?;
                rank.flops.attention_forward += flops(shape, out.elements());
                Ok(())
            })
        })
    }

    pub(super) fn attention_backward(&mut self, op: &kind::AttentionBackward) -> Done {
        self.write(op.output, |rank, dqkv| match op.keys_values_gradient {
            Some(whole) => rank.write(whole, |rank, dkv| rank.attention_gradients(op, dqkv, Some(dkv))),
            None => rank.attention_gradients(op, dqkv, None),
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
        self.flops.attention_backward += 2 * flops(shape, heads);
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
            dropout: self.step_dropout(site),
            first_sequence: self.rows_of(output).sequence(0),
            first_head: self.first_col(output) / shape.value_dim,
            heads: block.of(&self.program.model).attention.heads,
            seq_len: shape.seq_len,
        }
    }

    /// The shape of a block's attention whose local result is `output`.
    fn attention_shape(&self, block: BlockKind, output: ValueId) -> AttentionShape {
        let Shape { rows, cols } = self.shape(output);
        let Attention { head_dim, value_dim, causal, window, score_scale: scale, cap, .. } =
            block.of(&self.program.model).attention;
        let seq_len = self.program.layout.seq_len;
        let context = self.context_part();
        let sequences = rows / context.tokens(seq_len);
        let heads = cols / value_dim;
        let kv_heads = heads / self.group_heads(block);
        AttentionShape { sequences, seq_len, heads, kv_heads, head_dim, value_dim, causal, window, scale, cap, context }
    }

    /// Heads of a block that share a key and value.
    pub(super) fn group_heads(&self, block: BlockKind) -> usize {
        self.program.layout.group_heads(&block.of(&self.program.model).attention)
    }

    /// Queries, keys and values beside each other, of what makes them apart.
    pub(super) fn join_latent(&mut self, op: &kind::JoinLatent) -> Result<usize, EngineError> {
        let kind::JoinLatent { block, queries, keys_values, shared, output } = *op;
        self.write(output, |rank, qkv| {
            let shape = rank.latent_shape(block, output);
            rank.backend.join_latent(shape, rank.read(queries)?, rank.read(keys_values)?, rank.read(shared)?, qkv)?;
            Ok(qkv.elements())
        })
    }

    pub(super) fn split_latent(&mut self, op: &kind::SplitLatent) -> Result<usize, EngineError> {
        let kind::SplitLatent { block, gradient, queries, keys_values, shared } = *op;
        let shape = self.latent_shape(block, gradient);
        self.write(queries, |rank, queries| {
            rank.write(keys_values, |rank, keys_values| {
                rank.write(shared, |rank, shared| {
                    let gradient = rank.read(gradient)?;
                    rank.backend.split_latent(shape, gradient, queries, keys_values, shared)?;
                    Ok(gradient.elements())
                })
            })
        })
    }

    /// The shape of a block's queries, keys and values, which `qkv` has beside each other.
    fn latent_shape(&self, block: BlockKind, qkv: ValueId) -> LatentShape {
        let Attention { head_dim, value_dim, latent, .. } = block.of(&self.program.model).attention;
        let Shape { rows, cols } = self.shape(qkv);
        let shared = latent.map_or(0, |latent| latent.shared_key);
        LatentShape { rows, heads: cols / (2 * head_dim + value_dim), head_dim, value_dim, shared }
    }

    /// Queries and keys turned by their positions, or their gradients turned back.
    pub(super) fn rotate(&mut self, op: &kind::Rotate) -> Result<usize, EngineError> {
        let kind::Rotate { block, back, output, .. } = *op;
        self.write(output, |rank, qkv| {
            let Shape { rows, cols } = rank.shape(output);
            rank.backend.rotate(rank.groups(block, rows, cols), rank.angles(block), rank.positions(output), qkv, back)
        })
    }
}

/// Scores and weighted values for `outputs` elements, of the keys of a window or of all, without causal discount.
fn flops(shape: AttentionShape, outputs: usize) -> u64 {
    let keys = shape.window.map_or(shape.seq_len, |window| window.min(shape.seq_len));
    2 * (keys * (outputs / shape.value_dim) * (shape.head_dim + shape.value_dim)) as u64
}
