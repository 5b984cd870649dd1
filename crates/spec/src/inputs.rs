//! The linear layers that make queries, keys and values.

use crate::{Attention, Latent};

/// A linear layer on the way from the stream to queries, keys and values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InputLayer {
    /// Which one.
    pub kind: InputKind,
    /// Columns that it reads.
    pub inputs: usize,
    /// Columns that it gives.
    pub outputs: usize,
}

/// What a layer on the way to queries, keys and values makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InputKind {
    /// All of them.
    Qkv,
    /// Of latent attention: the narrow rows that make queries.
    QueryLatent,
    /// Of latent attention: queries.
    Queries,
    /// Of latent attention: the narrow rows that make keys and values.
    KeyValueLatent,
    /// Of latent attention: values, and of keys what each head has for itself.
    KeysValues,
    /// Of latent attention: of keys what all heads share.
    SharedKey,
}

impl InputKind {
    /// The layer's name in a block.
    pub fn name(self) -> &'static str {
        match self {
            Self::Qkv => "qkv",
            Self::QueryLatent => "query_latent",
            Self::Queries => "queries",
            Self::KeyValueLatent => "key_value_latent",
            Self::KeysValues => "keys_values",
            Self::SharedKey => "shared_key",
        }
    }

    /// The name of the norm of its result, if that is normed: narrow rows are.
    pub fn norm(self) -> Option<&'static str> {
        match self {
            Self::QueryLatent => Some("query_latent_norm"),
            Self::KeyValueLatent => Some("key_value_latent_norm"),
            Self::Qkv | Self::Queries | Self::KeysValues | Self::SharedKey => None,
        }
    }

    /// Whether its columns are of heads, one after the other; else all heads share them.
    pub fn is_of_heads(self) -> bool {
        match self {
            Self::Qkv | Self::Queries | Self::KeysValues => true,
            Self::QueryLatent | Self::KeyValueLatent | Self::SharedKey => false,
        }
    }

    /// What refusals call a rank's part of its weight.
    pub(crate) fn tile(self) -> &'static str {
        match self {
            Self::Qkv => "the tile of the qkv weight",
            Self::QueryLatent => "the tile of the query latent's weight",
            Self::Queries => "the tile of the queries' weight",
            Self::KeyValueLatent => "the tile of the key and value latent's weight",
            Self::KeysValues => "the tile of the keys' and values' weight",
            Self::SharedKey => "the tile of the shared key's weight",
        }
    }

    fn layer(self, inputs: usize, outputs: usize) -> InputLayer {
        InputLayer { kind: self, inputs, outputs }
    }
}

/// The layers of latent attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LatentLayers {
    /// Makes the narrow rows of queries; `None`: the stream makes queries.
    pub query_latent: Option<InputLayer>,
    /// Makes queries.
    pub queries: InputLayer,
    /// Makes the narrow rows of keys and values.
    pub key_value_latent: InputLayer,
    /// Makes values, and what each key has for itself.
    pub keys_values: InputLayer,
    /// Makes what all keys share.
    pub shared_key: InputLayer,
}

impl Attention {
    /// The layers that make queries, keys and values of a stream of `hidden` columns.
    pub fn input_layers(&self, hidden: usize) -> impl Iterator<Item = InputLayer> + use<> {
        let layers = match self.latent_layers(hidden) {
            None => [Some(InputKind::Qkv.layer(hidden, self.qkv_width())), None, None, None, None],
            Some(LatentLayers { query_latent, queries, key_value_latent, keys_values, shared_key }) => {
                [query_latent, Some(queries), Some(key_value_latent), Some(keys_values), Some(shared_key)]
            }
        };
        layers.into_iter().flatten()
    }

    /// The same by what they make, if attention is latent.
    pub fn latent_layers(&self, hidden: usize) -> Option<LatentLayers> {
        let Latent { queries, keys_values, shared_key } = self.latent?;
        Some(LatentLayers {
            query_latent: queries.map(|narrow| InputKind::QueryLatent.layer(hidden, narrow)),
            queries: InputKind::Queries.layer(queries.unwrap_or(hidden), self.queries_width()),
            key_value_latent: InputKind::KeyValueLatent.layer(hidden, keys_values),
            keys_values: InputKind::KeysValues.layer(keys_values, self.heads * (self.pair_width() - shared_key)),
            shared_key: InputKind::SharedKey.layer(hidden, shared_key),
        })
    }
}
