//! Latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1): queries, keys and values by way of narrow rows.
//!
//! Letters: h' = local columns of the stream, q and l = columns of the rows that make queries, and keys and values, k = columns
//! of the key that all heads share. Narrow rows are cut like the stream: what makes them contracts over y, and they are norms'
//! and products' inputs as the stream is. Their weights are whole but for y, since no axis cuts both sides of a product of
//! scattered rows; the rows of what all heads share are those of queries in the end, in every rank along x.

use quadrille_spec::{Axis, Latent};

use crate::backward::{JoinNode, Node};
use crate::blocks::{INIT_STD, NORMAL, linear, norm, product, weight};
use crate::builder::Builder;
use crate::value::Home;
use crate::{Extent, ParameterId, Sharding, StepError, ValueId, kind};

type Built<T> = Result<T, StepError>;

/// Queries, keys and values of the normed stream.
pub(crate) fn queries_keys_values(b: &mut Builder, index: usize, latent: &Latent, normed: ValueId) -> Built<ValueId> {
    let attention = b.model.blocks[index].attention;
    let name = |what: &str| format!("block.{index}.{what}");
    let (widest, widths) =
        (b.model.hidden, [attention.queries_width(), attention.heads * (attention.pair_width() - latent.shared_key)]);
    let (source, source_width) = match latent.queries {
        None => (normed, widest),
        Some(width) => (narrow(b, index, "query_latent", width, normed)?, width),
    };
    let of_queries = weight(b, &name("queries"), [source_width.into(), widths[0].into()], NORMAL, INIT_STD)?;
    let queries = linear(b, &name("queries"), source, of_queries)?;

    let source = narrow(b, index, "key_value_latent", latent.keys_values, normed)?;
    let of_pairs = weight(b, &name("keys_values"), [latent.keys_values.into(), widths[1].into()], NORMAL, INIT_STD)?;
    let keys_values = linear(b, &name("keys_values"), source, of_pairs)?;

    let shared = shared_key(b, index, latent.shared_key, normed)?;
    let (block, extents) = (b.block_kind(index), [Extent::Tokens, b.keys_values_extent(index, true)]);
    let output = b.value(name("qkv"), extents, *b.sharding(queries), Home::ACTIVATIONS)?;
    b.push(kind::JoinHeads { block, queries, keys_values, shared, output });
    b.record(Node::Join(JoinNode { block, queries, keys_values, shared, output }));
    Ok(output)
}

/// Narrow rows of the stream, normed.
fn narrow(b: &mut Builder, index: usize, layer: &str, width: usize, normed: ValueId) -> Built<ValueId> {
    let name = format!("block.{index}.{layer}");
    let weight = whole_weight(b, &name, width)?;
    let partial = product(b, &name, normed, weight)?;
    b.record(Node::Linear { weight, input: normed, output: partial });
    let cut = *b.sharding(normed);
    let rows = b.reshard(partial, &cut)?;
    norm(b, &format!("{name}_norm"), Some(index), rows)
}

/// The columns of a key that all heads share, in the rows of queries.
fn shared_key(b: &mut Builder, index: usize, width: usize, normed: ValueId) -> Built<ValueId> {
    let name = format!("block.{index}.shared_key");
    let weight = whole_weight(b, &name, width)?;
    let partial = product(b, &name, normed, weight)?;
    b.record(Node::Linear { weight, input: normed, output: partial });
    let rows = Sharding::new(&b.rows(), &[]);
    let gathered = b.reshard(partial, &rows.partial(Axis::Y.only()))?;
    b.reshard(gathered, &Sharding::new(&b.rows_with(Axis::Y), &[]))
}

/// A weight `[hidden, width]` whose outputs no axis cuts.
fn whole_weight(b: &mut Builder, name: &str, width: usize) -> Built<ParameterId> {
    let stored = Sharding::new(&[Axis::Y], &[]).flat(&[Axis::Z]);
    let (shape, initial) = ([b.model.hidden.into(), width.into()], crate::Initial::Normal(INIT_STD));
    b.parameter(format!("{name}.weight"), shape, stored, initial, true)
}
