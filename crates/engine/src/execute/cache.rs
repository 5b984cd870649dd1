//! Generation: keys and values of earlier passes, and the rows that give logits.

use quadrille_spec::Axis;
use quadrille_step::{BlockKind, Purpose, Wanted, kind};
use quadrille_tensor::{CacheShape, Shape};

use super::Done;
use crate::backend::{View, ViewMut};
use crate::{Backend, EngineError, RankEngine};

impl<B: Backend> RankEngine<'_, B> {
    pub(super) fn store_keys_values(&mut self, op: &kind::StoreKeysValues) -> Result<usize, EngineError> {
        let kind::StoreKeysValues { block, input: qkv, output: cache } = *op;
        let shape = self.cache_shape(block);
        let part = self.microbatch;
        self.write(cache, |rank, cache| {
            let starts = rank.starts();
            let qkv = rank.read(qkv)?;
            let cache = &mut B::part(cache, part * shape.elements()..(part + 1) * shape.elements());
            rank.backend.store_keys_values(shape, starts, qkv, cache)?;
            Ok(rank.keys_and_values(block, qkv.elements()))
        })
    }

    pub(super) fn cached_attention(&mut self, op: &kind::CachedAttention) -> Done {
        let kind::CachedAttention { block, qkv, cache, output } = *op;
        let shape = self.cache_shape(block);
        let part = self.microbatch;
        self.write(output, |rank, out| {
            let starts = rank.starts();
            let qkv = rank.read(qkv)?;
            let cache = rank.read(cache)?.part(part * shape.elements()..(part + 1) * shape.elements());
            rank.backend.cached_attention(shape, starts, qkv, cache, out)?;
            let window = shape.window.unwrap_or(usize::MAX);
            let seen: usize = starts.iter().map(|start| (start + shape.tokens).min(window)).sum();
            let pair = shape.head_dim + shape.value_dim;
            rank.flops.attention_forward += 2 * (seen * shape.tokens * shape.heads * pair) as u64;
            Ok(())
        })
    }

    /// A microbatch's wanted rows, behind those of the microbatches before it.
    pub(super) fn collect_rows(&mut self, op: &kind::CollectRows) -> Result<usize, EngineError> {
        let kind::CollectRows { wanted, input, output } = *op;
        self.write(output, |rank, collected| {
            let tokens = rank.program.layout.seq_len;
            let Shape { rows, cols } = rank.shape(input);
            let first = rank.first_sequence();
            let sequences = rows / tokens;
            let x = rank.read(input)?;
            let len = collected.elements() / rank.program.layout.microbatches();
            let collected = &mut B::part(collected, rank.microbatch * len..(rank.microbatch + 1) * len);
            match wanted {
                Wanted::Every => rank.backend.copy(collected, x),
                Wanted::Newest => {
                    let newest = &rank.pass.newest[first..first + sequences];
                    rank.backend.newest_rows(cols, tokens, newest, x, collected)
                }
            }?;
            Ok(len)
        })
    }

    /// What the microbatch has of a block's cache.
    fn cache_shape(&self, block: BlockKind) -> CacheShape {
        let layout = &self.program.layout;
        let attention = &block.of(&self.program.model).attention;
        let heads = attention.heads / layout.grid.size(Axis::X);
        let Purpose::Generation(generation) = self.program.purpose else { return CacheShape::default() };
        CacheShape {
            sequences: layout.microbatch / layout.grid.size(Axis::Z),
            tokens: layout.seq_len,
            capacity: generation.capacity,
            heads,
            kv_heads: heads / self.group_heads(block),
            head_dim: attention.head_dim,
            value_dim: attention.value_dim,
            window: attention.window,
            scale: attention.score_scale,
            cap: attention.cap,
        }
    }

    /// Of so many elements of a block's queries, keys and values those of keys and values.
    fn keys_and_values(&self, block: BlockKind, elements: usize) -> usize {
        let groups = self.groups(block, 1, elements);
        groups.groups * groups.pair()
    }

    /// Positions in the cache before the pass, by the microbatch's sequences on this rank.
    fn starts(&self) -> &[usize] {
        let layout = &self.program.layout;
        let first = self.first_sequence();
        &self.pass.starts[first..first + layout.microbatch / layout.grid.size(Axis::Z)]
    }
}
