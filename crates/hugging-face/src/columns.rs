//! Which columns of a logical tensor a tensor of the library holds.

use quadrille_spec::{Attention, Model};

/// Columns of a logical tensor, in the order of the library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Columns {
    /// All, in the order that they have here.
    All,
    /// Of a qkv: all queries, then all keys, then all values.
    QueriesKeysValues,
    /// Of a qkv: the queries of all heads.
    Queries,
    /// Of a qkv: the keys.
    Keys,
    /// Of a qkv: the values.
    Values,
    /// Of a gated perceptron: the gates.
    Gates,
    /// Of a gated perceptron: what the gates are multiplied with.
    Ups,
    /// Of a gated perceptron: all gates, then all that they are multiplied with.
    GatesUps,
}

impl Columns {
    /// The columns by number, of a tensor of the model with `cols` columns.
    pub fn numbers(self, model: &Model, cols: usize) -> Vec<usize> {
        let attention = model.blocks.first().attention;
        let Attention { heads, kv_heads, head_dim: d, value_dim: v, .. } = attention;
        let group = heads / kv_heads;
        let stride = group * d + attention.pair_width();
        // Of every group `len` columns, after the first `skip`.
        let of_groups = |skip: usize, len: usize| {
            (0..kv_heads).flat_map(move |number| (0..len).map(move |i| number * stride + skip + i))
        };
        let queries = of_groups(0, group * d);
        let keys = of_groups(group * d, d);
        let values = of_groups((group + 1) * d, v);
        match self {
            Self::All => (0..cols).collect(),
            Self::QueriesKeysValues => queries.chain(keys).chain(values).collect(),
            Self::Queries => queries.collect(),
            Self::Keys => keys.collect(),
            Self::Values => values.collect(),
            Self::Gates => (0..cols).step_by(2).collect(),
            Self::Ups => (1..cols).step_by(2).collect(),
            Self::GatesUps => (0..cols).step_by(2).chain((1..cols).step_by(2)).collect(),
        }
    }

    /// How many there are.
    pub(crate) fn count(self, model: &Model, cols: usize) -> usize {
        let attention = &model.blocks.first().attention;
        match self {
            Self::All | Self::QueriesKeysValues | Self::GatesUps => cols,
            Self::Queries => attention.queries_width(),
            Self::Keys => attention.kv_heads * attention.head_dim,
            Self::Values => attention.kv_heads * attention.value_dim,
            Self::Gates | Self::Ups => cols / 2,
        }
    }
}
