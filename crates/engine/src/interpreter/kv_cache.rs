//! Generation: keys and values of earlier passes, and the rows that give logits.

use quadrille_spec::Axis;
use quadrille_step::{BlockKind, Purpose, Wanted, kind};
use quadrille_tensor::{CacheShape, Shape};

use super::{Done, Interpreter};
use crate::backend::{View, ViewMut};
use crate::{Backend, EngineError};

impl<B: Backend> Interpreter<'_, B> {
    pub(super) fn store_keys_values(&mut self, op: &kind::StoreKeysValues) -> Result<usize, EngineError> {
        let kind::StoreKeysValues { block, input: qkv, output: cache } = *op;
        let shape = self.cache_shape(block);
        let part = self.step.microbatch;
        self.write(cache, |this, cache| {
            let starts = this.starts();
            let qkv = this.read(qkv)?;
            let cache = &mut B::part(cache, part * shape.elements()..(part + 1) * shape.elements());
            this.backend.store_keys_values(shape, starts, qkv, cache)?;
            Ok(this.keys_and_values(block, qkv.elements()))
        })
    }

    pub(super) fn cached_attention(&mut self, op: &kind::CachedAttention) -> Done {
        let kind::CachedAttention { block, qkv, cache, output } = *op;
        let shape = self.cache_shape(block);
        let part = self.step.microbatch;
        self.write(output, |this, out| {
            let starts = this.starts();
            let qkv = this.read(qkv)?;
            let cache = this.read(cache)?.part(part * shape.elements()..(part + 1) * shape.elements());
            this.backend.cached_attention(shape, starts, qkv, cache, out)?;
            let window = shape.window.unwrap_or(usize::MAX);
            let seen: usize = starts.iter().map(|start| (start + shape.tokens).min(window)).sum();
            let pair = shape.head_dim + shape.value_dim;
            this.observers.ledger.flops.attention_forward += 2 * (seen * shape.tokens * shape.heads * pair) as u64;
            Ok(())
        })
    }

    /// A microbatch's wanted rows, behind those of the microbatches before it.
    pub(super) fn collect_rows(&mut self, op: &kind::CollectRows) -> Result<usize, EngineError> {
        let kind::CollectRows { wanted, input, output } = *op;
        self.write(output, |this, collected| {
            let tokens = this.rank.program.layout.seq_len;
            let Shape { rows, cols } = this.step.shape(input);
            let first = this.step.first_sequence();
            let sequences = rows / tokens;
            let x = this.read(input)?;
            let len = collected.elements() / this.rank.program.layout.microbatches();
            let collected = &mut B::part(collected, this.step.microbatch * len..(this.step.microbatch + 1) * len);
            match wanted {
                Wanted::Every => this.backend.copy(collected, x),
                Wanted::Newest => {
                    let newest = &this.step.pass.newest[first..first + sequences];
                    this.backend.newest_rows(cols, tokens, newest, x, collected)
                }
            }?;
            Ok(len)
        })
    }

    /// What the microbatch has of a block's cache.
    fn cache_shape(&self, block: BlockKind) -> CacheShape {
        let layout = &self.rank.program.layout;
        let attention = &block.of(&self.rank.program.model).attention;
        let heads = attention.heads / layout.grid.size(Axis::X);
        let Purpose::Generation(generation) = self.rank.program.purpose else { return CacheShape::default() };
        CacheShape {
            sequences: layout.microbatch / layout.grid.size(Axis::Z),
            tokens: layout.seq_len,
            capacity: generation.capacity,
            heads,
            kv_heads: heads / self.rank.group_heads(block),
            head_dim: attention.head_dim,
            value_dim: attention.value_dim,
            window: attention.window,
            scale: attention.score_scale,
            cap: attention.cap,
        }
    }

    /// Of so many elements of a block's queries, keys and values those of keys and values.
    fn keys_and_values(&self, block: BlockKind, elements: usize) -> usize {
        let groups = self.rank.groups(block, 1, elements);
        groups.groups * groups.pair()
    }

    /// Positions in the cache before the pass, by the microbatch's sequences on this rank.
    fn starts(&self) -> &[usize] {
        let layout = &self.rank.program.layout;
        let first = self.step.first_sequence();
        &self.step.pass.starts[first..first + layout.microbatch / layout.grid.size(Axis::Z)]
    }
}
