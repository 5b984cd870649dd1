//! Passes of generation: attention to keys and values of earlier passes in a cache, and logits of the wanted positions
//! on every rank.
//!
//! A pass takes the next tokens of each sequence. How many of a sequence's positions are in the cache is known when the
//! pass runs: sequences may differ. Rows of a pass beyond a sequence's tokens are padding: what they write to the cache
//! lies behind the sequence, where no query sees it until it is overwritten.
//!
//! The passes of microbatches end in the residual stream's wanted rows, collected for all of them. After the last one
//! come the final norm, the head, the gathering of the logits, and their broadcast to the other stages: once for all.

use quadrille_spec::{Axis, CollectiveKind, Layout, Model};

use crate::blocks::norm;
use crate::builder::Builder;
use crate::ends;
use crate::operation::{Collective, Members, NormOf, Operation, Reduction, Wanted};
use crate::value::Home;
use crate::{Extent, Layer, ParameterId, Sharding, StepError, ValueId, kind};

type Built<T> = Result<T, StepError>;

/// What a program of generation is made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Generation {
    /// Positions of a sequence that the cache has room for.
    pub capacity: usize,
    /// Which positions of a pass give logits.
    pub wanted: Wanted,
}

impl Generation {
    /// Positions of a sequence in a pass of so many tokens that give logits.
    pub fn wanted_of(&self, tokens: usize) -> usize {
        match self.wanted {
            Wanted::Newest => 1,
            Wanted::Every => tokens,
        }
    }

    pub(crate) fn check(self, model: &Model, layout: &Layout) -> Built<()> {
        let rule = if model.patch_values.is_some() {
            "a model of patches has no tokens to generate"
        } else if !model.blocks.kinds().iter().all(|block| block.attention.causal) {
            "a model without a causal mask does not predict the next token"
        } else if layout.seq_len > self.capacity {
            "the cache has fewer positions than a pass"
        } else if self.capacity > model.seq_len {
            "the cache has more positions than the model"
        } else {
            return Ok(());
        };
        Err(StepError::Generation { model: model.name.clone(), rule })
    }
}

/// Attention of the pass's queries: keys and values go into the cache, and are read from there.
pub(crate) fn attention(b: &mut Builder, generation: Generation, index: usize, qkv: ValueId) -> Built<ValueId> {
    let rows = b.layout.global_batch * generation.capacity;
    let attention = b.model.blocks[index].attention;
    let cols = b.keys_values_extent(index, false);
    let sharding = Sharding::new(&b.rows(), &[Axis::X]);
    let cache = outlasting(b, format!("block.{index}.cache"), [rows.into(), cols], sharding)?;
    b.caches.push(cache);
    b.push(kind::StoreKeysValues { block: b.block_kind(index), input: qkv, output: cache });
    let sharding = Sharding::new(&b.rows(), &[Axis::X]);
    let shape = [Extent::Tokens, attention.width().into()];
    let output = b.value("attention", shape, sharding, Home::ACTIVATIONS)?;
    b.push(kind::CachedAttention { block: b.block_kind(index), qkv, cache, output });
    Ok(output)
}

/// The end of a microbatch's pass on the last stage.
pub(crate) fn collect(
    b: &mut Builder,
    generation: Generation,
    table: Option<ParameterId>,
    input: ValueId,
) -> Built<()> {
    let rows = b.layout.global_batch * generation.wanted_of(b.layout.seq_len);
    let sharding = b.residual_sharding();
    let width = b.model.hidden;
    let output = outlasting(b, "collected".to_owned(), [rows.into(), width.into()], sharding)?;
    b.push(kind::CollectRows { wanted: generation.wanted, input, output });
    b.collected = Some((table, output));
    Ok(())
}

/// Emits what follows the last pass; returns the logits `[rows, padded vocabulary]`, whole on every rank. Rows are in the
/// order of (data, z, microbatch, sequence, position).
pub(crate) fn logits(b: &mut Builder, generation: Generation) -> Built<ValueId> {
    b.layer = Layer::Head;
    let stages = b.axis_size(Axis::Pipe);
    let logits = match b.collected {
        Some((table, collected)) => {
            let normed = norm(b, "final_norm", NormOf::Final, collected)?;
            let logits = ends::logits(b, table, normed)?;
            let logits = ends::capped(b, logits);
            let whole = b.transition(logits, &Sharding::default())?;
            let storage = b.values[whole.0].storage;
            b.storages[storage.0].persistent = true;
            whole
        }
        None => {
            let rows = b.layout.global_batch * generation.wanted_of(b.layout.seq_len);
            let shape = [rows.into(), Extent::Padded(b.model.vocab)];
            outlasting(b, "logits".to_owned(), shape, Sharding::default())?
        }
    };
    if stages > 1 {
        let collective = Collective {
            kind: CollectiveKind::Broadcast,
            axes: Axis::Pipe.only(),
            members: Members::Root(stages - 1),
            reduction: Reduction::Sum,
            input: logits,
            output: logits,
        };
        b.push(Operation::Issue(collective));
        b.push(Operation::Wait(collective));
    }
    Ok(logits)
}

/// A value of activations that outlasts passes.
fn outlasting(b: &mut Builder, name: String, shape: [Extent; 2], sharding: Sharding) -> Built<ValueId> {
    let value = b.weight_value(name, shape, sharding, Home::ACTIVATIONS)?;
    let storage = b.values[value.0].storage;
    b.storages[storage.0].persistent = true;
    Ok(value)
}
