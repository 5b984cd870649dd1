//! The rules of pieces of layers, of schedules, of recomputation, and of buckets.

use super::pass::cut_unevenly;
use super::{Check, Rule};
use crate::remedy::{Broken, Change, Values, Way};
use crate::{Axis, Field, Layout, Model, Offload, Recompute, Schedule, counted};

pub(super) const CHECKS: [Check; 5] = [PIECES, PASSES, SEVERAL, MICROBATCHES, GROUPS];

/// Of the list of pieces, and of what the search does not vary.
pub(super) const LISTED: [Check; 3] = [SUM, BLOCKS, BUCKETS];

/// Of what is computed again.
pub(super) const RECOMPUTE: [Check; 2] = [EVERY, KEPT];

/// Every piece of layers but the first and the last has at least one block.
pub(super) const PIECES: Check = Check {
    rule: Rule::Pieces,
    keeps: |layout, model| {
        layout.chunks > 0 && layout.grid.size(Axis::Pipe).saturating_mul(layout.chunks) <= model.layers() + 2
    },
    tell: |layout, model| {
        let stages = layout.grid.size(Axis::Pipe);
        let chunks = layout.chunks;
        let most = model.layers() + 2;
        let pieces = if chunks == 1 { stages.to_string() } else { format!("{stages} with chunks = {chunks}") };
        let rule = format!(
            "every piece of layers but the first (embedding) and the last (head) has a block, so that a model of {} has at \
             most {most} pieces (pipe * chunks)",
            model.layers()
        );
        let ways = vec![
            Way::sizes(Axis::Pipe, stages, Values::Multiples(1, most / chunks.max(1))),
            Way::sizes(Field::Chunks, chunks, Values::Multiples(1, most / stages)),
            Way::Choice(Change::Set(Field::Chunks, 1.into())),
        ];
        Broken::new(Axis::Pipe, pieces, rule, ways)
    },
};

impl Layout {
    /// Most passes of all stages together, three for every microbatch and piece: their lists are held in memory.
    pub const MOST_PASSES: usize = 1 << 24;
}

/// A schedule lists every pass of every stage.
const PASSES: Check = Check {
    rule: Rule::Passes,
    keeps: |layout, _| {
        let pieces = 3 * layout.grid.size(Axis::Pipe).saturating_mul(layout.chunks);
        pieces.saturating_mul(layout.microbatches()) <= Layout::MOST_PASSES
    },
    tell: |layout, _| {
        let microbatches = layout.microbatches();
        let most = Layout::MOST_PASSES;
        let rule = format!(
            "a schedule lists at most {most} passes (3 * pipe * chunks * microbatches), and has {microbatches} microbatches"
        );
        cut_unevenly(layout, rule, vec![Way::Choice(Change::Set(Field::Chunks, 1.into()))])
    },
};

/// Only the interleaved schedule has several chunks.
const SEVERAL: Check = Check {
    rule: Rule::Interleaved,
    keeps: |layout, _| {
        let several = layout.schedule == Schedule::Interleaved && layout.grid.size(Axis::Pipe) > 1;
        layout.chunks == 1 || several
    },
    tell: |layout, _| {
        let rule = "only the interleaved schedule on at least 2 stages has several chunks";
        let ways = [Change::to(Field::Schedule, Schedule::Interleaved), Change::Set(Field::Chunks, 1.into())];
        Broken::new(Field::Chunks, layout.chunks, rule, ways.map(Way::Choice).to_vec())
    },
};

fn plain() -> Way {
    Way::Choice(Change::to(Field::Schedule, Schedule::OneForwardOneBackward))
}

/// The interleaved schedule has as many microbatches as stages.
const MICROBATCHES: Check = Check {
    rule: Rule::Interleaved,
    keeps: |layout, _| {
        layout.schedule != Schedule::Interleaved || layout.grid.size(Axis::Pipe) <= layout.microbatches()
    },
    tell: |layout, _| {
        let stages = layout.grid.size(Axis::Pipe);
        let microbatches = layout.microbatches();
        let rule =
            format!("the interleaved schedule needs at least pipe={stages} microbatches, and has {microbatches}");
        cut_unevenly(layout, rule, vec![plain()])
    },
};

/// Its groups of microbatches, the last too, are at least as long as the pipeline (Megatron-LM's rule).
const GROUPS: Check = Check {
    rule: Rule::Interleaved,
    keeps: |layout, _| {
        let stages = layout.grid.size(Axis::Pipe);
        let group = layout.microbatch_group;
        let all = layout.microbatches();
        let whole = |rest: usize| rest == 0 || rest >= stages;
        layout.schedule != Schedule::Interleaved || (stages..=all).contains(&group) && whole(all % group)
    },
    tell: |layout, _| {
        let stages = layout.grid.size(Axis::Pipe);
        let microbatches = layout.microbatches();
        let rule = format!("groups of {microbatches} microbatches, the last too, have at least pipe={stages}");
        let near = Way::sizes(Field::MicrobatchGroup, layout.microbatch_group, Values::Multiples(1, microbatches));
        Broken::new(Field::MicrobatchGroup, layout.microbatch_group, rule, vec![near, plain()])
    },
};

/// The pieces are as many as stages and chunks say, and hold every layer once.
const SUM: Check = Check {
    rule: Rule::Pieces,
    keeps: |layout, model| {
        let sum = layout.stage_blocks.iter().try_fold(0_usize, |sum, blocks| sum.checked_add(*blocks));
        layout.stage_blocks.len() == layout.pieces() && sum == Some(model.layers())
    },
    tell: |layout, model| {
        let pieces = counted(layout.pieces(), "piece");
        let layers = counted(model.layers(), "layer");
        let rule = format!("it must list {pieces} (pipe * chunks) with the model's {layers} in all");
        Broken::new(Field::StageBlocks, listed(layout), rule, even())
    },
};

/// The first piece has the embedding, the last the head; all others have blocks.
const BLOCKS: Check = Check {
    rule: Rule::Pieces,
    keeps: |layout, _| {
        let inner = layout.stage_blocks.iter().skip(1).take(layout.pieces().saturating_sub(2));
        inner.into_iter().all(|blocks| *blocks > 0)
    },
    tell: |layout, _| {
        let rule = format!("every piece but the first and the last of {} has at least one block", layout.pieces());
        Broken::new(Field::StageBlocks, listed(layout), rule, even())
    },
};

/// Programs have operations for each bucket: of so many at most, however few of the parameters a rank updates.
const MOST_BUCKETS: u64 = 100_000;

const BUCKETS: Check = Check {
    rule: Rule::Buckets,
    keeps: |layout, model| {
        layout.offload == Offload::None || model.parameters() / MOST_BUCKETS < layout.bucket.max(1) as u64
    },
    tell: |layout, model: &Model| {
        let parameters = model.parameters();
        let least = parameters / MOST_BUCKETS + 1;
        let rule = format!("{parameters} parameters are cut into at most {MOST_BUCKETS} buckets");
        Broken::new(
            Field::Bucket,
            layout.bucket,
            rule,
            vec![Way::Choice(Change::Set(Field::Bucket, (least as usize).into()))],
        )
    },
};

fn even() -> Vec<Way> {
    vec![Way::Choice(Change::Leave(Field::StageBlocks))]
}

/// The first pieces, as users write them.
fn listed(layout: &Layout) -> String {
    let shown = 32.min(layout.stage_blocks.len());
    let listed = layout.stage_blocks[..shown].iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    if shown < layout.stage_blocks.len() { listed + ",..." } else { listed }
}

/// Segments are no longer than the model.
const EVERY: Check = Check {
    rule: Rule::Recompute,
    keeps: |layout, model| !matches!(layout.recompute, Recompute::Full { every } if every > model.layers()),
    tell: |layout, model: &Model| {
        let every = if let Recompute::Full { every } = layout.recompute { every } else { 0 };
        let rule = format!("it keeps the input of every {every}-th block, and the model has {}", model.layers());
        let longest = Change::to(Field::Recompute, Recompute::Full { every: model.layers() });
        Broken::new(Field::Recompute, layout.recompute, rule, vec![Way::Choice(longest)])
    },
};

/// What was communicated is kept of something that is computed again.
const KEPT: Check = Check {
    rule: Rule::Recompute,
    keeps: |layout, _| !layout.keep_communicated || layout.recompute != Recompute::None,
    tell: |_, _| {
        let ways = [Change::to(Field::Recompute, Recompute::Selective), Change::Leave(Field::Cac)];
        let rule = "it says what recomputation keeps; nothing is recomputed";
        Broken::new(Field::Cac, "on", rule, ways.map(Way::Choice).to_vec())
    },
};
