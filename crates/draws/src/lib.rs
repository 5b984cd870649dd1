//! Random descriptions of blocks: what [`quadrille_spec::Classic`] does not say, in blocks that may differ. Tests of several
//! crates draw them here; depends on `spec` alone.

#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::disallowed_methods, clippy::disallowed_types, clippy::print_stdout, clippy::print_stderr)
)]

mod mixtures;

use proptest::option;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use quadrille_spec::{
    Activation, Attention, Block, Blocks, FeedForward, Latent, Model, Norm, NormPlace, Normalization, NormedOver,
    Perceptron, QueryKeyNorm, Residual, ResidualOrder, Rotary, RotaryScaling,
};

pub use mixtures::{Mixture, mixtures};

/// What a kind of block has that others may not have.
#[derive(Debug, Clone)]
struct Kind {
    /// Times the heads of the flat description.
    more_heads: usize,
    keys: Index,
    /// Columns of a head; none: as they share the stream.
    head_dim: Option<usize>,
    /// Columns of a value; none: as many as of a key.
    value_dim: Option<usize>,
    latent: Option<Narrow>,
    /// Times the width of the flat description.
    wider: usize,
    biases: [bool; 4],
    window: Option<usize>,
    score_scale: f64,
    cap: Option<f64>,
    qk_norm: Option<(Norm, NormedOver)>,
    rotary: Option<f64>,
    /// A part of a head turns, if it has one.
    part: bool,
    scaling: RotaryScaling,
    norm: Norm,
    offset: bool,
    norm_place: NormPlace,
    residual: Residual,
    activation: Activation,
}

impl Kind {
    fn block(&self, usual: &Block, hidden: usize, x: usize) -> Block {
        let Block { attention, feed_forward, norm, .. } = *usual;
        let heads = attention.heads * self.more_heads;
        let keys: Vec<usize> =
            (1..=heads).filter(|n| heads.is_multiple_of(*n) && (n.is_multiple_of(x) || x.is_multiple_of(*n))).collect();
        let head_dim = self.head_dim.unwrap_or(attention.head_dim);
        let latent = self.latent.as_ref().and_then(|latent| latent.of(hidden, head_dim));
        let [qkv_bias, projection_bias, up_bias, down_bias] = self.biases;
        let columns = if self.part { (head_dim / 4 * 2).max(2) } else { head_dim };
        let scaling = self.scaling;
        let turns = columns <= head_dim && columns.is_multiple_of(2);
        let rotary = self.rotary.filter(|_| turns).map(|base| Rotary { base, columns, scaling });
        let norm = Normalization { offset: self.offset, ..norm };
        Block {
            attention: Attention {
                heads,
                kv_heads: if latent.is_some() { heads } else { *self.keys.get(&keys) },
                head_dim,
                value_dim: self.value_dim.unwrap_or(head_dim),
                latent,
                causal: attention.causal,
                window: self.window.filter(|_| attention.causal),
                score_scale: self.score_scale,
                cap: self.cap,
                qk_norm: self.qk_norm.map(|(kind, over)| QueryKeyNorm { rule: Normalization { kind, ..norm }, over }),
                rotary,
                qkv_bias: qkv_bias && latent.is_none(),
                projection_bias,
            },
            feed_forward: FeedForward::Dense(Perceptron {
                width: width(&feed_forward) * self.wider,
                activation: self.activation,
                up_bias,
                down_bias,
            }),
            norm: Normalization { kind: self.norm, ..norm },
            norm_place: self.norm_place,
            residual: self.residual,
        }
    }
}

/// Latent attention, whose rows are as wide as the stream or wider: every y that cuts the one cuts the others.
#[derive(Debug, Clone)]
struct Narrow {
    /// Times the stream.
    queries: Option<usize>,
    keys_values: usize,
    shared_key: Index,
}

impl Narrow {
    /// Of keys of so many columns, if one of them can be shared and one not.
    fn of(&self, hidden: usize, head_dim: usize) -> Option<Latent> {
        (head_dim > 1).then(|| Latent {
            queries: self.queries.map(|times| times * hidden),
            keys_values: self.keys_values * hidden,
            shared_key: 1 + self.shared_key.index(head_dim - 1),
        })
    }
}

/// Of a perceptron, or of one of several experts.
fn width(feed_forward: &FeedForward) -> usize {
    match feed_forward {
        FeedForward::Dense(perceptron) => perceptron.width,
        FeedForward::Experts(experts) => experts.expert.width,
    }
}

fn kinds() -> impl Strategy<Value = Kind> {
    let heads =
        (select(vec![None, Some(2), Some(4), Some(6), Some(3)]), select(vec![None, None, Some(2), Some(4), Some(3)]));
    let narrow = (select(vec![None, Some(1), Some(2)]), 1..=2_usize, any::<Index>())
        .prop_map(|(queries, keys_values, shared_key)| Narrow { queries, keys_values, shared_key });
    let sizes = (1..=2_usize, any::<Index>(), heads, option::weighted(0.3, narrow), 1..=2_usize);
    let attention = (
        select(vec![None, Some(2), Some(3), Some(5)]),
        (select(vec![1.0, 1.0, 1.7]), select(vec![None, Some(1.5), Some(5.0)])),
        select(vec![
            None,
            Some((Norm::Layer, NormedOver::Head)),
            Some((Norm::Rms, NormedOver::Head)),
            Some((Norm::Layer, NormedOver::AllHeads)),
            Some((Norm::Rms, NormedOver::AllHeads)),
        ]),
        select(vec![None, Some(10.0), Some(10_000.0)]),
        any::<bool>(),
        select(vec![
            RotaryScaling::None,
            RotaryScaling::Linear { factor: 3.0 },
            RotaryScaling::Llama3 { factor: 8.0, low: 1.0, high: 4.0, positions: 20 },
            RotaryScaling::Yarn { factor: 4.0, low: 0.5, high: 2.0, positions: 20 },
        ]),
    );
    let stream = (
        any::<bool>(),
        select(NormPlace::ALL.map(|(_, it)| it).to_vec()),
        select(ResidualOrder::ALL.map(|(_, it)| it).to_vec()),
        select(vec![1.0, 1.0, 0.25]),
    );
    let others = (any::<[bool; 4]>(), any::<bool>(), select(Activation::ALL.map(|(_, it)| it).to_vec()));
    (sizes, attention, stream, others).prop_map(
        |(
            (more_heads, keys, (head_dim, value_dim), latent, wider),
            (window, (score_scale, cap), qk_norm, rotary, part, scaling),
            (offset, norm_place, order, scale),
            (biases, rms, activation),
        )| Kind {
            more_heads,
            keys,
            head_dim,
            value_dim,
            latent,
            wider,
            biases,
            window,
            score_scale,
            cap,
            qk_norm,
            rotary,
            part,
            scaling,
            offset,
            norm_place,
            residual: Residual { order, scale },
            norm: if rms { Norm::Rms } else { Norm::Layer },
            activation,
        },
    )
}

/// Blocks of one or two random kinds, between ends that may scale and cap.
#[derive(Debug, Clone)]
pub struct Description {
    /// Of models of tokens.
    embedding_scale: f64,
    logit_cap: Option<f64>,
    kinds: [Kind; 2],
    /// By place, over and over: which kind.
    order: Vec<usize>,
}

impl Description {
    /// The model with such blocks and ends, whose sizes are small multiples of those of its own first block, and whose heads may be cut
    /// over `x` ranks if those of the model may.
    pub fn of(&self, model: &Model, x: usize) -> Model {
        let kinds = self.kinds.each_ref().map(|kind| kind.block(model.blocks.first(), model.hidden, x));
        let block = |place: usize| kinds[self.order[place % self.order.len()]];
        let (embedding_scale, logit_cap) = match model.patch_values {
            None => (self.embedding_scale, self.logit_cap),
            Some(_) => (1.0, None),
        };
        let blocks = Blocks::new(block(0), (1..model.layers()).map(block));
        Model { embedding_scale, logit_cap, blocks, ..model.clone() }
    }
}

/// Blocks of two random kinds in turn, in other patterns, or all of one: heads wider and narrower than their share of the
/// stream, values of other widths, latent attention, biases by projection, windows, soft caps, norms of queries and keys,
/// turning and not, any function of the perceptron. Embedded tokens with a factor, and capped logits.
pub fn descriptions() -> impl Strategy<Value = Description> {
    let orders = select(vec![vec![0], vec![0, 1], vec![0, 1], vec![0, 0, 1], vec![1, 0, 0, 0, 0, 0]]);
    let ends = (select(vec![1.0, 1.0, 3.5]), select(vec![None, Some(0.7), Some(10.0)]));
    (kinds(), kinds(), orders, ends).prop_map(|(even, odd, order, (embedding_scale, logit_cap))| Description {
        kinds: [even, odd],
        order,
        embedding_scale,
        logit_cap,
    })
}
