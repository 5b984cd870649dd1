//! Attention of this rank's tokens and heads.

use quadrille_spec::Attention;
use quadrille_step::{BlockKind, DropoutSite, ValueId, kind};
use quadrille_tensor as kernels;
use quadrille_tensor::AttentionShape;

use super::Done;
use crate::{EngineError, RankEngine, Real};

impl<T: Real> RankEngine<'_, T> {
    pub(super) fn attention(&mut self, op: &kind::Attention) -> Done {
        let kind::Attention { block, dropout, qkv, keys_values, output, statistics } = *op;
        self.write(output, |rank, out| {
            rank.write(statistics, |rank, statistics| {
                let shape = rank.attention_shape(block, output);
                let keep = dropout.map(|site| rank.attention_mask(site, block, output, shape));
                let dropout = keep.as_ref().map(|(scale, keep)| (*scale, keep as _));
                let (qkv, keys_values) = (rank.read(qkv)?, rank.read_some(keys_values)?);
                kernels::attention_forward(&rank.pool, shape, qkv, keys_values, out, statistics, dropout);
                rank.flops.attention_forward += flops(shape, out.len());
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

    fn attention_gradients(&mut self, op: &kind::AttentionBackward, dqkv: &mut [T], dkv: Option<&mut [T]>) -> Done {
        let kind::AttentionBackward { block, qkv, keys_values, result, statistics, gradient, dropout, .. } = *op;
        let shape = self.attention_shape(block, result);
        let (qkv, out, dout) = (self.read(qkv)?, self.read(result)?, self.read(gradient)?);
        let (statistics, heads) = (self.read(statistics)?, out.len());
        let keep = dropout.map(|site| self.attention_mask(site, block, result, shape));
        let dropout = keep.as_ref().map(|(scale, keep)| (*scale, keep as _));
        let keys_values = self.read_some(keys_values)?.zip(dkv);
        kernels::attention_backward(&self.pool, shape, qkv, keys_values, out, statistics, dout, dqkv, dropout);
        self.flops.attention_backward += 2 * flops(shape, heads);
        Ok(())
    }

    /// Scale and mask of a dropout over attention probabilities, by local sequence and head, query and key.
    fn attention_mask(
        &self,
        site: DropoutSite,
        block: BlockKind,
        output: ValueId,
        shape: AttentionShape,
    ) -> (T, impl Fn(usize, usize, usize, usize) -> bool + Sync + use<T>) {
        let mask = self.step_dropout(site);
        let seq_len = shape.seq_len;
        let first_sequence = self.rows_of(output).sequence(0);
        let first_head = self.first_col(output) / shape.head_dim;
        let heads = block.of(&self.program.model).attention.heads;
        let keep = move |sequence: usize, head: usize, query: usize, key: usize| {
            let row = ((first_sequence + sequence) * heads + first_head + head) * seq_len + query;
            mask.keeps((row * seq_len + key) as u64)
        };
        (T::from_f64(mask.scale), keep)
    }

    /// The shape of a block's attention whose local result is `output`.
    fn attention_shape(&self, block: BlockKind, output: ValueId) -> AttentionShape {
        let (rows, cols) = self.dims(output);
        let Attention { head_dim, causal, window, cap, .. } = block.of(&self.program.model).attention;
        let (seq_len, context) = (self.program.layout.seq_len, self.context_part());
        let (sequences, heads) = (rows / context.tokens(seq_len), cols / head_dim);
        let kv_heads = heads / self.group_heads(block);
        AttentionShape { sequences, seq_len, heads, kv_heads, head_dim, causal, window, cap, context }
    }

    /// Heads of a block that share a key and value.
    pub(super) fn group_heads(&self, block: BlockKind) -> usize {
        self.program.layout.group_heads(&block.of(&self.program.model).attention)
    }

    /// Queries and keys turned by their positions, or their gradients turned back.
    pub(super) fn rotate(&mut self, op: &kind::Rotate) -> Result<usize, EngineError> {
        let kind::Rotate { block, back, output, .. } = *op;
        self.write(output, |rank, qkv| {
            let ((rows, cols), heads, tokens) = (rank.dims(output), rank.group_heads(block), rank.rows_of(output));
            let groups = cols / ((heads + 2) * block.of(&rank.program.model).attention.head_dim);
            let (pool, table, pass) = (&rank.pool, rank.rotary(block), &rank.pass);
            let at = |row: usize| pass.position(tokens, row).unwrap_or_else(|| tokens.token(row));
            Ok(kernels::rotate(pool, rows, groups, heads, table, at, qkv, back))
        })
    }
}

/// Scores and weighted values for `outputs` elements, without causal discount.
fn flops(shape: AttentionShape, outputs: usize) -> u64 {
    4 * shape.seq_len as u64 * outputs as u64
}
