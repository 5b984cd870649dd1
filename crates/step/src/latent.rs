//! Latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1): queries, keys and values by way of narrow rows.
//!
//! Narrow rows are cut like the stream: what makes them contracts over y, where their columns are scattered, and so they are
//! normed and widened as the stream is. What makes them reads the rows of the stream where they lie, so that its weights are
//! whole but for y and z. The part of a key that all heads share comes in the rows of queries, to every rank along x.

use quadrille_spec::{Axis, Latent};

use crate::backward::{JoinNode, Node};
use crate::blocks::{INIT_STD, NORMAL, linear, norm, product, weight};
use crate::builder::Builder;
use crate::operation::NormOf;
use crate::value::Home;
use crate::{Extent, Initial, Sharding, StepError, ValueId, kind};

type Built<T> = Result<T, StepError>;

/// Queries, keys and values of the normed stream.
pub(crate) fn queries_keys_values(b: &mut Builder, index: usize, latent: &Latent, normed: ValueId) -> Built<ValueId> {
    let attention = b.model.blocks[index].attention;
    let (of_queries, read) = match latent.queries {
        None => (b.model.hidden, normed),
        Some(width) => (width, narrow(b, index, "query_latent", width, normed)?),
    };
    let queries = widened(b, index, "queries", [of_queries, attention.queries_width()], read)?;
    let read = narrow(b, index, "key_value_latent", latent.keys_values, normed)?;
    let own = attention.heads * (attention.pair_width() - latent.shared_key);
    let keys_values = widened(b, index, "keys_values", [latent.keys_values, own], read)?;
    let shared = shared_key(b, index, latent.shared_key, normed)?;

    let (block, extents) = (b.block_kind(index), [Extent::Tokens, b.keys_values_extent(index, true)]);
    let output = b.value(format!("block.{index}.qkv"), extents, *b.sharding(queries), Home::ACTIVATIONS)?;
    b.push(kind::JoinLatent { block, queries, keys_values, shared, output });
    b.record(Node::JoinLatent(JoinNode { block, queries, keys_values, shared, output }));
    Ok(output)
}

/// Columns of heads, of narrow rows or of the stream.
fn widened(b: &mut Builder, index: usize, layer: &str, shape: [usize; 2], input: ValueId) -> Built<ValueId> {
    let name = format!("block.{index}.{layer}");
    let weight = weight(b, &name, shape.map(Extent::from), NORMAL, INIT_STD)?;
    linear(b, &name, input, weight)
}

/// Narrow rows of the stream, normed.
fn narrow(b: &mut Builder, index: usize, layer: &str, width: usize, normed: ValueId) -> Built<ValueId> {
    let partial = narrowed(b, index, layer, width, normed)?;
    let cut = *b.sharding(normed);
    let rows = b.reshard(partial, &cut)?;
    let of = NormOf::Stream(b.block_kind(index));
    norm(b, &format!("block.{index}.{layer}_norm"), of, rows)
}

/// The columns of a key that all heads share, in the rows of queries.
fn shared_key(b: &mut Builder, index: usize, width: usize, normed: ValueId) -> Built<ValueId> {
    let partial = narrowed(b, index, "shared_key", width, normed)?;
    let rows = Sharding::new(&b.rows(), &[]);
    let gathered = b.reshard(partial, &rows.partial(Axis::Y.only()))?;
    b.reshard(gathered, &Sharding::new(&b.rows_with(Axis::Y), &[]))
}

/// A product of the stream, as it lies, with a weight `[hidden, width]` whose outputs no axis cuts: a partial sum over y.
fn narrowed(b: &mut Builder, index: usize, layer: &str, width: usize, normed: ValueId) -> Built<ValueId> {
    let name = format!("block.{index}.{layer}");
    let stored = Sharding::new(&[Axis::Y], &[]).flat(&[Axis::Z]);
    let shape = [b.model.hidden.into(), width.into()];
    let weight = b.parameter(format!("{name}.weight"), shape, stored, Initial::Normal(INIT_STD), true)?;
    let output = product(b, &name, normed, weight)?;
    b.record(Node::Linear { weight, input: normed, output });
    Ok(output)
}
