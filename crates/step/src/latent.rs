//! Latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1): queries, keys and values by way of narrow rows.
//!
//! Narrow rows are cut like the stream: what makes them contracts over y, where their columns are scattered, and so they are
//! normed and widened as the stream is. What makes them reads the rows of the stream where they lie, so that its weights are
//! whole but for y and z. The part of a key that all heads share comes in the rows of queries, to every rank along x.

use quadrille_spec::{Axis, InputLayer, LatentLayers};

use crate::backward::{JoinNode, Node};
use crate::blocks::{INIT_STD, linear, norm, product};
use crate::builder::Builder;
use crate::operation::NormOf;
use crate::value::Home;
use crate::{Extent, Initial, ParameterId, Sharding, StepError, ValueId, kind};

type Built<T> = Result<T, StepError>;

/// Queries, keys and values of the normed stream.
pub(crate) fn queries_keys_values(
    b: &mut Builder,
    index: usize,
    layers: LatentLayers,
    normed: ValueId,
) -> Built<ValueId> {
    let LatentLayers { query_latent, queries, key_value_latent, keys_values, shared_key } = layers;
    let read = query_latent.map_or(Ok(normed), |layer| narrow(b, index, layer, normed))?;
    let queries = widened(b, index, queries, read)?;
    let read = narrow(b, index, key_value_latent, normed)?;
    let keys_values = widened(b, index, keys_values, read)?;
    let shared = shared(b, index, shared_key, normed)?;

    let block = b.block_kind(index);
    let extents = [Extent::Tokens, b.keys_values_extent(index, true)];
    let output = b.value(format!("block.{index}.qkv"), extents, *b.sharding(queries), Home::ACTIVATIONS)?;
    b.push(kind::JoinLatent { block, queries, keys_values, shared, output });
    b.record(Node::JoinLatent(JoinNode { block, queries, keys_values, shared, output }));
    Ok(output)
}

/// Columns of heads, of narrow rows or of the stream.
fn widened(b: &mut Builder, index: usize, layer: InputLayer, input: ValueId) -> Built<ValueId> {
    let (name, weight) = weight(b, index, layer)?;
    linear(b, &name, input, weight)
}

/// Narrow rows of the stream, normed.
fn narrow(b: &mut Builder, index: usize, layer: InputLayer, normed: ValueId) -> Built<ValueId> {
    let partial = narrowed(b, index, layer, normed)?;
    let cut = *b.sharding(normed);
    let rows = b.reshard(partial, &cut)?;
    let Some(name) = layer.kind.norm() else { return Ok(rows) };
    norm(b, &format!("block.{index}.{name}"), NormOf::Stream(b.block_kind(index)), rows)
}

/// The columns of a key that all heads share, in the rows of queries.
fn shared(b: &mut Builder, index: usize, layer: InputLayer, normed: ValueId) -> Built<ValueId> {
    let partial = narrowed(b, index, layer, normed)?;
    let rows = Sharding::new(&b.rows(), &[]);
    let gathered = b.reshard(partial, &rows.partial(Axis::Y.only()))?;
    b.reshard(gathered, &Sharding::new(&b.rows_with(Axis::Y), &[]))
}

/// A product of the stream, as it lies, with a weight whose outputs no axis cuts: a partial sum over y.
fn narrowed(b: &mut Builder, index: usize, layer: InputLayer, normed: ValueId) -> Built<ValueId> {
    let (name, weight) = weight(b, index, layer)?;
    let output = product(b, &name, normed, weight)?;
    b.record(Node::Linear { weight, input: normed, kept: normed, output });
    Ok(output)
}

/// The name and the weight of a layer: y cuts what it reads, and x what it gives, if that is of heads.
fn weight(b: &mut Builder, index: usize, layer: InputLayer) -> Built<(String, ParameterId)> {
    let InputLayer { kind, inputs, outputs } = layer;
    let name = format!("block.{index}.{}", kind.name());
    let cut: &[Axis] = if kind.is_of_heads() { &[Axis::X] } else { &[] };
    let stored = Sharding::new(&[Axis::Y], cut).flat(&[Axis::Z]);
    let shape = [inputs.into(), outputs.into()];
    let weight = b.parameter(format!("{name}.weight"), shape, stored, Initial::Normal(INIT_STD), true)?;
    Ok((name, weight))
}
