//! The rules of the sizes of axes.

use super::{Check, Rule, experts, schedule};
use crate::error::common_divisor;
use crate::layout::MAX_GLOBAL_BATCH;
use crate::remedy::{Broken, Values, Way};
use crate::{Axis, Block, FeedForward, Field, InputKind, InputLayer, Layout, Model, Perceptron};

pub(super) const CHECKS: [Check; 11] = [
    schedule::PIECES,
    experts::SPREAD,
    HEADS,
    KEYS,
    HIDDEN,
    VOCABULARY,
    TILES,
    CONTEXT,
    BATCH,
    experts::LOADS,
    experts::PIECES,
];

/// How many times as large padding may make a vocabulary, and the rows that any may be padded to.
const MOST_PADDING: (usize, usize) = (16, 1 << 16);

/// The most rows that a vocabulary may be padded to for its parts: counts of layouts stay far from overflow.
fn most_padded(model: &Model) -> usize {
    MOST_PADDING.1.max(MOST_PADDING.0 * model.vocab)
}

/// Parts of a vocabulary are padded, but not to many times what there is.
const VOCABULARY: Check = Check {
    rule: Rule::Vocabulary,
    keeps: |layout, model| layout.vocab_multiple == 1 || layout.padded_vocab(model) <= most_padded(model),
    tell: |layout, model| {
        let parts = layout.grid.size(Axis::X) * layout.grid.size(Axis::Y);
        let padded = layout.padded_vocab(model);
        let most = most_padded(model);
        let rule = format!(
            "x*y={parts} parts of the vocabulary of {} are padded to {padded} rows, at most {most}",
            model.vocab
        );
        let values = Values::Multiples(1, (most / parts).max(1));
        let ways = vec![Way::sizes(Field::VocabMultiple, layout.vocab_multiple, values)];
        Broken::new(Field::VocabMultiple, layout.vocab_multiple, rule, ways)
    },
};

/// The widths of a block's perceptrons that x cuts, as refusals call them.
fn cut_widths(layout: &Layout, block: &Block) -> impl Iterator<Item = (&'static str, usize)> {
    let whole = block.feed_forward.experts().is_some() && layout.experts_over.contains(Axis::X);
    widths(block).skip(usize::from(whole))
}

/// The widths of a block's perceptrons, as refusals call them.
pub(super) fn widths(block: &Block) -> impl Iterator<Item = (&'static str, usize)> {
    let (first, shared) = match &block.feed_forward {
        FeedForward::Dense(perceptron) => (("the perceptron's width", perceptron.width), None),
        FeedForward::Experts(experts) => (("the experts' width", experts.expert.width), experts.shared),
    };
    [first].into_iter().chain(shared.map(|shared| ("the shared perceptron's width", shared.width)))
}

/// x cuts the heads and the perceptrons.
pub(super) const HEADS: Check = Check {
    rule: Rule::X,
    keeps: |layout, model| {
        let x = layout.grid.size(Axis::X);
        cut_by_x(layout, model).all(|(_, size)| size.is_multiple_of(x))
    },
    tell: |layout, model| {
        Broken::indivisible(Axis::X, layout.grid.size(Axis::X), &cut_by_x(layout, model).collect::<Vec<_>>())
    },
};

fn cut_by_x<'a>(layout: &'a Layout, model: &'a Model) -> impl Iterator<Item = (&'static str, usize)> + 'a {
    let of_block =
        move |block: &'a Block| [("heads", block.attention.heads)].into_iter().chain(cut_widths(layout, block));
    model.blocks.kinds().iter().flat_map(of_block)
}

/// x cuts keys and values in whole heads: each rank holds several of them, or a copy of one.
pub(super) const KEYS: Check = Check {
    rule: Rule::X,
    keeps: |layout, model| {
        let x = layout.grid.size(Axis::X);
        model.blocks.kinds().iter().all(|block| holds_whole_keys(x, block))
    },
    tell: |layout, model| {
        let x = layout.grid.size(Axis::X);
        let broken = model.blocks.kinds().iter().find(|block| !holds_whole_keys(x, block));
        let keys = broken.unwrap_or(model.blocks.first()).attention.kv_heads;
        let rule = format!("it must divide kv_heads = {keys}, or be a multiple of it: each rank holds whole keys");
        let cut: Vec<_> = cut_by_x(layout, model).collect();
        let ways = vec![Way::sizes(Axis::X, x, Values::Divisors(common_divisor(&cut)))];
        Broken::new(Axis::X, x, rule, ways)
    },
};

fn holds_whole_keys(x: usize, block: &Block) -> bool {
    let keys = block.attention.kv_heads;
    keys.is_multiple_of(x) || x.is_multiple_of(keys)
}

/// y cuts the residual stream, and what attention narrows it to.
pub(super) const HIDDEN: Check = Check {
    rule: Rule::Y,
    keeps: |layout, model| cut_by_y(model).all(|(_, size)| size.is_multiple_of(layout.grid.size(Axis::Y))),
    tell: |layout, model| Broken::indivisible(Axis::Y, layout.grid.size(Axis::Y), &cut_by_y(model).collect::<Vec<_>>()),
};

fn cut_by_y(model: &Model) -> impl Iterator<Item = (&'static str, usize)> + '_ {
    let layers = model.blocks.kinds().iter().flat_map(|block| block.attention.input_layers(model.hidden));
    let narrow = layers.filter(|layer| layer.kind.norm().is_some());
    [("hidden", model.hidden)].into_iter().chain(narrow.map(|layer| (layer.kind.name(), layer.outputs)))
}

/// z cuts every weight tile once more, flat; where ranks hold copies of keys, z takes whole rows of them.
pub(super) const TILES: Check = Check {
    rule: Rule::Z,
    keeps: |layout, model| {
        let z = layout.grid.size(Axis::Z);
        let whole = |(_, tile): &(&str, usize)| tile.is_multiple_of(z);
        let of_blocks = model.blocks.kinds().iter().flat_map(|block| tiles(layout, model, block));
        of_blocks.chain([table(layout, model)]).all(|tile| whole(&tile))
    },
    tell: |layout, model| {
        let of_blocks = model.blocks.kinds().iter().flat_map(|block| tiles(layout, model, block));
        let tiles: Vec<_> = of_blocks.chain([table(layout, model)]).collect();
        Broken::indivisible(Axis::Z, layout.grid.size(Axis::Z), &tiles)
    },
};

fn tiles<'a>(
    layout: &'a Layout,
    model: &Model,
    block: &'a Block,
) -> impl Iterator<Item = (&'static str, usize)> + use<'a> {
    let [x, y] = [Axis::X, Axis::Y].map(|axis| layout.grid.size(axis));
    let h = model.hidden;
    let Block { attention, feed_forward, .. } = block;
    let rows = if layout.kv_copies(attention) > 1 { h / y } else { 0 };
    let of_inputs = attention.input_layers(h).map(move |InputLayer { kind, inputs, outputs }| {
        // With the copies of keys.
        let columns = if kind == InputKind::Qkv { layout.qkv_width(attention) } else { outputs };
        (kind.tile(), (inputs / y) * if kind.is_of_heads() { columns / x } else { columns })
    });
    let of_projection = [("the tile of the projection weight", (attention.width() / x) * (h / y))];
    let perceptron = |[up, down]: [&'static str; 2], count: usize, x: usize, perceptron: &Perceptron| {
        [(up, count * (h / y) * (perceptron.up_width() / x)), (down, count * (perceptron.width * h) / (x * y))]
    };
    let (first, shared) = match feed_forward {
        FeedForward::Dense(dense) => {
            (perceptron(["the tile of the up weight", "the tile of the down weight"], 1, x, dense), None)
        }
        FeedForward::Experts(experts) => {
            let names = ["the tile of the experts' up weight", "the tile of the experts' down weight"];
            let shared = ["the tile of the shared up weight", "the tile of the shared down weight"];
            let of_shared = experts.shared.map(|it| perceptron(shared, 1, x, &it));
            // Over z there are whole experts or parts of tiles.
            let over = layout.experts_over;
            let own = if over.contains(Axis::Z) { 0 } else { experts.count / layout.grid.size_of(over) };
            let cut_by_x = if over.contains(Axis::X) { 1 } else { x };
            (perceptron(names, own, cut_by_x, &experts.expert), of_shared)
        }
    };
    let copied = [("the rows of the qkv weight's tile (x copies keys)", rows)];
    of_inputs.chain(of_projection).chain(first).chain(shared.into_iter().flatten()).chain(copied)
}

/// The table of tokens; patches have a weight in its place, which depends on linear layers, too.
fn table(layout: &Layout, model: &Model) -> (&'static str, usize) {
    let [x, y] = [Axis::X, Axis::Y].map(|axis| layout.grid.size(axis));
    let table = if model.patch_values.is_some() { 0 } else { layout.padded_vocab(model) / (x * y) * model.hidden };
    ("the tile of the embedding table", table)
}

/// Every rank of the context axis holds two equal chunks of a sequence, so that causal work is equal.
const CONTEXT: Check = Check {
    rule: Rule::Context,
    keeps: |layout, _| {
        let context = layout.grid.size(Axis::Context);
        context == 1 || layout.seq_len.is_multiple_of(2 * context)
    },
    tell: |layout, model| {
        let context = layout.grid.size(Axis::Context);
        let rule = format!("context={context} cuts a sequence into {} equal pieces, two for each rank", 2 * context);
        let ways = vec![
            Way::sizes(Field::SeqLen, layout.seq_len, Values::Multiples(2 * context, model.seq_len)),
            Way::sizes(Axis::Context, context, Values::Divisors(layout.seq_len)),
        ];
        Broken::new(Field::SeqLen, layout.seq_len, rule, ways)
    },
};

/// Data and expert cut the batch.
pub(super) const BATCH: Check = Check {
    rule: Rule::Data,
    keeps: |layout, _| layout.global_batch.is_multiple_of(layout.grid.batch_shares()),
    tell: |layout, _| {
        let shares = layout.grid.batch_shares();
        let batch = layout.global_batch;
        let cutting = Axis::BATCH.into_iter().filter(|axis| layout.grid.size(*axis) > 1);
        let sizes: Vec<(Axis, usize)> = cutting.map(|axis| (axis, layout.grid.size(axis))).collect();
        let named = sizes.iter().map(|(axis, size)| format!("{axis}={size}")).collect::<Vec<_>>().join(" times ");
        let smaller = sizes.iter().map(|(axis, size)| Way::sizes(*axis, *size, Values::Divisors(batch)));
        let ways = [batches(layout, shares)].into_iter().chain(smaller).collect();
        Broken::new(Field::GlobalBatch, batch, format!("it must be a multiple of {named}"), ways)
    },
};

/// Batches near the present one that so many sequences divide.
pub(super) fn batches(layout: &Layout, unit: usize) -> Way {
    Way::sizes(Field::GlobalBatch, layout.global_batch, Values::Multiples(unit, MAX_GLOBAL_BATCH))
}
