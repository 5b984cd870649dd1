//! The rules of how a microbatch is cut in a pass.

use super::grid::{batches, widths};
use super::{Check, Rule, experts};
use crate::error::common_divisor;
use crate::remedy::{Broken, Change, Values, Way};
use crate::{Activations, Axis, Block, Field, Layout, Linear, Model};

pub(super) const CHECKS: [Check; 17] = [
    experts::PRODUCTS,
    LATENT,
    SUMMA,
    SUMMA_ROWS,
    PANELS,
    CONTRACTIONS,
    PATCHES,
    SHARE,
    SPLIT,
    CHUNKS,
    SEQUENCES,
    ROWS,
    experts::ROWS,
    experts::ROOM,
    experts::QUEUES,
    experts::DISPATCH,
    experts::BALANCE,
];

/// SUMMA cuts activations over both axes.
const SUMMA: Check = Check {
    rule: Rule::Summa,
    keeps: |layout, _| layout.linear == Linear::Pmm || layout.activations == Activations::Scattered,
    tell: |_, _| {
        let ways = [Change::to(Field::Activations, Activations::Scattered), Change::to(Field::Linear, Linear::Pmm)];
        let rule = "SUMMA cuts activations over x and y";
        Broken::new(Field::Activations, "replicated", rule, ways.map(Way::Choice).to_vec())
    },
};

/// y cuts contractions, as x does.
const SUMMA_ROWS: Check = Check {
    rule: Rule::Summa,
    keeps: |layout, model| layout.linear == Linear::Pmm || divides_contracted(layout.grid.size(Axis::Y), model),
    tell: |layout, model| {
        Broken::indivisible(Axis::Y, layout.grid.size(Axis::Y), &contracted(model).collect::<Vec<_>>())
    },
};

/// What the products of blocks contract over.
fn contracted<'a>(model: &'a Model) -> impl Iterator<Item = (&'static str, usize)> + 'a {
    let of_block = |block: &'a Block| widths(block).chain([("the width of all heads", block.attention.width())]);
    [("hidden", model.hidden)].into_iter().chain(model.blocks.kinds().iter().flat_map(of_block))
}

fn divides_contracted(size: usize, model: &Model) -> bool {
    size > 0 && contracted(model).all(|(_, dimension)| dimension.is_multiple_of(size))
}

/// Latent attention has no panels.
const LATENT: Check = Check {
    rule: Rule::Summa,
    keeps: |layout, model| {
        layout.linear == Linear::Pmm || model.blocks.kinds().iter().all(|block| block.attention.latent.is_none())
    },
    tell: |_, _| {
        let ways = vec![Way::Choice(Change::to(Field::Linear, Linear::Pmm))];
        Broken::new(Field::Linear, Linear::Summa, "latent attention has no panels", ways)
    },
};

/// Every panel lies on one rank of either axis.
const PANELS: Check = Check {
    rule: Rule::Summa,
    keeps: |layout, _| {
        let panels = layout.summa_panels;
        let whole = |axis| panels.is_multiple_of(layout.grid.size(axis));
        layout.linear == Linear::Pmm || panels > 0 && whole(Axis::X) && whole(Axis::Y)
    },
    tell: |layout, model| {
        let [x, y] = [Axis::X, Axis::Y].map(|axis| layout.grid.size(axis));
        let rule = format!("a panel lies on one rank of x={x} and one of y={y}");
        let values = Values::Divisors(common_divisor(&contracted(model).collect::<Vec<_>>()));
        let near = Way::sizes(Field::SummaPanels, layout.summa_panels, values);
        Broken::new(Field::SummaPanels, layout.summa_panels, rule, vec![near])
    },
};

/// Panels cut every contraction.
const CONTRACTIONS: Check = Check {
    rule: Rule::Summa,
    keeps: |layout, model| layout.linear == Linear::Pmm || divides_contracted(layout.summa_panels, model),
    tell: |layout, model| {
        Broken::indivisible(Field::SummaPanels, layout.summa_panels, &contracted(model).collect::<Vec<_>>())
    },
};

/// Patches are embedded by a weight that is cut like the residual stream's columns; the head's is as large.
pub(super) const PATCHES: Check = Check {
    rule: Rule::Z,
    keeps: |layout, model| patch_tile(layout, model).is_multiple_of(layout.grid.size(Axis::Z)),
    tell: |layout, model| {
        let tile = [("the tile of the embedding weight", patch_tile(layout, model))];
        Broken::indivisible(Axis::Z, layout.grid.size(Axis::Z), &tile)
    },
};

fn patch_tile(layout: &Layout, model: &Model) -> usize {
    let cut = layout.grid.size(if layout.linear == Linear::Summa { Axis::X } else { Axis::Y });
    model.patch_values.unwrap_or(0) * (model.hidden / cut)
}

/// Sequences of a (data, expert) rank in a step.
pub(super) fn share(layout: &Layout) -> usize {
    layout.global_batch / layout.grid.batch_shares()
}

/// Microbatches cut the share of a (data, expert) rank.
pub(super) const SHARE: Check = Check {
    rule: Rule::Microbatch,
    keeps: |layout, _| share(layout).is_multiple_of(layout.microbatch),
    tell: |layout, _| {
        let (rank, by) = match layout.grid.size(Axis::Expert) {
            1 => ("data", "data"),
            _ => ("(data, expert)", "(data * expert)"),
        };
        let rule = format!("it must divide the {} sequences of a {rank} rank (global-batch / {by})", share(layout));
        cut_unevenly(layout, rule, vec![])
    },
};

/// z splits the sequences of a pass.
pub(super) const SPLIT: Check = Check {
    rule: Rule::Microbatch,
    keeps: |layout, _| layout.microbatch.is_multiple_of(layout.grid.size(Axis::Z)),
    tell: |layout, _| {
        let z = layout.grid.size(Axis::Z);
        let rule = format!("it must be a multiple of z={z}, over which it is split");
        cut_unevenly(layout, rule, vec![Way::sizes(Axis::Z, z, Values::Divisors(layout.microbatch))])
    },
};

/// So do overlap chunks.
const CHUNKS: Check = Check {
    rule: Rule::Microbatch,
    keeps: |layout, _| (layout.microbatch / layout.grid.size(Axis::Z)).is_multiple_of(layout.overlap_chunks),
    tell: |layout, _| {
        let z = layout.grid.size(Axis::Z);
        let chunks = layout.overlap_chunks;
        cut_unevenly(
            layout,
            format!("z={z} and {chunks} overlap chunks split its sequences"),
            vec![fewer_chunks(layout)],
        )
    },
};

fn fewer_chunks(layout: &Layout) -> Way {
    Way::sizes(Field::OverlapChunks, layout.overlap_chunks, Values::Divisors(layout.overlap_chunks))
}

fn replicated() -> Way {
    Way::Choice(Change::to(Field::Activations, Activations::Replicated))
}

/// And y, of scattered activations.
const SEQUENCES: Check = Check {
    rule: Rule::Microbatch,
    keeps: |layout, _| {
        let sequences = layout.microbatch / layout.grid.size(Axis::Z) / layout.overlap_chunks;
        !layout.scatters_rows() || sequences.is_multiple_of(layout.grid.size(Axis::Y))
    },
    tell: |layout, _| {
        let [y, z] = [Axis::Y, Axis::Z].map(|axis| layout.grid.size(axis));
        let (by, factors) = match layout.overlap_chunks {
            1 => ("z*y", format!("{z}*{y}")),
            chunks => ("z*y*overlap-chunks", format!("{z}*{y}*{chunks}")),
        };
        let rule = format!("scattered activations split its sequences over {by} = {factors}");
        cut_unevenly(layout, rule, vec![replicated(), fewer_chunks(layout)])
    },
};

/// x splits token rows, of scattered activations and between stages.
const ROWS: Check = Check {
    rule: Rule::Microbatch,
    keeps: |layout, _| {
        let scattered = layout.activations == Activations::Scattered;
        let cut = layout.linear == Linear::Pmm && (scattered || layout.grid.size(Axis::Pipe) > 1);
        !cut || (layout.rows() / layout.overlap_chunks).is_multiple_of(layout.grid.size(Axis::X))
    },
    tell: |layout, model| {
        let x = layout.grid.size(Axis::X);
        let rows = layout.rows() / layout.overlap_chunks;
        let scattered = layout.activations == Activations::Scattered;
        let what = if scattered { "scattered activations split" } else { "the transfer between stages splits" };
        let context = layout.grid.size(Axis::Context);
        let pieces = if context == 1 { 1 } else { 2 * context };
        let whole = batches(layout, layout.grid.batch_shares() * layout.sequence_unit() * x);
        let shorter = Way::sizes(Field::SeqLen, layout.seq_len, Values::Multiples(pieces, model.seq_len));
        let fewer = Way::sizes(Axis::X, x, Values::Divisors(x));
        let rule = format!("{what} its {rows} token rows over x={x}");
        cut_unevenly(layout, rule, vec![replicated(), whole, shorter, fewer])
    },
};

/// A microbatch that something does not divide: other microbatches, batches of which each (data, expert) rank takes as
/// many sequences as are cut, or of whole microbatches, then other ways.
pub(super) fn cut_unevenly(layout: &Layout, rule: String, others: Vec<Way>) -> Broken {
    let shares = layout.grid.batch_shares();
    let mut ways = vec![
        Way::sizes(Field::Microbatch, layout.microbatch, Values::Divisors(share(layout))),
        batches(layout, shares * layout.sequence_unit()),
        batches(layout, shares.saturating_mul(layout.microbatch)),
    ];
    ways.extend(others);
    Broken::new(Field::Microbatch, layout.microbatch, rule, ways)
}
