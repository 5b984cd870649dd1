//! Queries and keys that are normed over all heads together. Their columns lie between each other's and the values', so they
//! are taken out, normed as the residual stream is, their statistics reduced over what cuts the heads, and put back.
//!
//! Where several ranks hold the same key, both a row's sums and its width have as many copies of it, so its statistics are
//! those of the keys there are. The same is true of what the norm subtracts from a copy's gradient: the copies' gradients
//! add up to the key's.

use crate::backward::Node;
use crate::blocks::norm;
use crate::builder::Builder;
use crate::operation::NormOf;
use crate::value::Home;
use crate::{Extent, StepError, ValueId, kind};

/// The queries, keys and values `raw` of a block with normed queries and keys.
pub(crate) fn all_heads_normed(b: &mut Builder, index: usize, raw: ValueId) -> Result<ValueId, StepError> {
    let block = b.block_kind(index);
    let attention = b.model.blocks[index].attention;
    let [rows, _] = b.shape(raw);
    let cut = *b.sharding(raw);
    let name = b.values[raw.0].name.clone();
    let of_keys = Extent::KeysValues { beside: 0, heads: attention.kv_heads, each: attention.head_dim };
    let queries = b.value("queries", [rows, attention.queries_width().into()], cut, Home::ACTIVATIONS)?;
    let keys = b.value("keys", [rows, of_keys], cut, Home::ACTIVATIONS)?;
    b.push(kind::SplitHeads { block, input: raw, queries, keys });
    b.record(Node::SplitHeads { block, input: raw, queries, keys });

    let queries = norm(b, &format!("block.{index}.query_norm"), NormOf::Heads(block), queries)?;
    let keys = norm(b, &format!("block.{index}.key_norm"), NormOf::Heads(block), keys)?;
    let output = b.like(name, raw)?;
    b.push(kind::JoinHeads { block, queries, keys, beside: Some(raw), output });
    b.record(Node::JoinHeads { block, queries, keys, beside: raw, output });
    Ok(output)
}
