//! The rules of the sizes of axes.

use super::{Check, Rule, schedule};
use crate::error::common_divisor;
use crate::layout::MAX_GLOBAL_BATCH;
use crate::remedy::{Broken, Values, Way};
use crate::{Axis, Block, Field, Layout, Model};

/// What refusals call the width of a perceptron.
pub(super) const PERCEPTRON: &str = "the perceptron's width";

pub(super) const CHECKS: [Check; 7] = [schedule::PIECES, HEADS, KEYS, HIDDEN, TILES, CONTEXT, BATCH];

/// x cuts the heads and the perceptron.
pub(super) const HEADS: Check = Check {
    rule: Rule::X,
    keeps: |layout, model| {
        let x = layout.grid.size(Axis::X);
        let cut = |block: &Block| [block.attention.heads, block.perceptron.width];
        model.blocks.kinds().iter().flat_map(cut).all(|size| size.is_multiple_of(x))
    },
    tell: |layout, model| Broken::indivisible(Axis::X, layout.grid.size(Axis::X), &cut_by_x(model)),
};

fn cut_by_x(model: &Model) -> Vec<(&'static str, usize)> {
    let of_block = |block: &Block| [("heads", block.attention.heads), (PERCEPTRON, block.perceptron.width)];
    model.blocks.kinds().iter().flat_map(of_block).collect()
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
        let ways = vec![Way::sizes(Axis::X, x, Values::Divisors(common_divisor(&cut_by_x(model))))];
        Broken::new(Axis::X, x, rule, ways)
    },
};

fn holds_whole_keys(x: usize, block: &Block) -> bool {
    let keys = block.attention.kv_heads;
    keys.is_multiple_of(x) || x.is_multiple_of(keys)
}

/// y cuts the residual stream.
pub(super) const HIDDEN: Check = Check {
    rule: Rule::Y,
    keeps: |layout, model| model.hidden.is_multiple_of(layout.grid.size(Axis::Y)),
    tell: |layout, model| Broken::indivisible(Axis::Y, layout.grid.size(Axis::Y), &[("hidden", model.hidden)]),
};

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

fn tiles(layout: &Layout, model: &Model, block: &Block) -> [(&'static str, usize); 5] {
    let [x, y] = [Axis::X, Axis::Y].map(|axis| layout.grid.size(axis));
    let (h, Block { attention, perceptron, .. }) = (model.hidden, block);
    let rows = if layout.kv_copies(attention) > 1 { h / y } else { 0 };
    [
        ("the tile of the qkv weight", (h / y) * (layout.qkv_width(attention) / x)),
        ("the tile of the projection weight", (attention.width() / x) * (h / y)),
        ("the tile of the up weight", (h / y) * (perceptron.up_width() / x)),
        ("the tile of the down weight", (perceptron.width * h) / (x * y)),
        ("the rows of the qkv weight's tile (x copies keys)", rows),
    ]
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

/// Data cuts the batch.
pub(super) const BATCH: Check = Check {
    rule: Rule::Data,
    keeps: |layout, _| layout.global_batch.is_multiple_of(layout.grid.size(Axis::Data)),
    tell: |layout, _| {
        let (data, batch) = (layout.grid.size(Axis::Data), layout.global_batch);
        let ways = vec![batches(layout, data), Way::sizes(Axis::Data, data, Values::Divisors(batch))];
        Broken::new(Field::GlobalBatch, batch, format!("it must be a multiple of data={data}"), ways)
    },
};

/// Batches near the present one that so many sequences divide.
pub(super) fn batches(layout: &Layout, unit: usize) -> Way {
    Way::sizes(Field::GlobalBatch, layout.global_batch, Values::Multiples(unit, MAX_GLOBAL_BATCH))
}
