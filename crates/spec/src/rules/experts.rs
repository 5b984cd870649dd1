//! The rules of experts: groups of tokens that share their places lie whole on one rank, so that no rank asks another who
//! is dropped.

use super::pass::share;
use super::{Check, Rule};
use crate::remedy::{Broken, Change, Values, Way};
use crate::{Activations, Axis, BalanceScope, Dispatch, Experts, Field, Layout, Linear, Model};

/// The experts of the kinds of blocks that have them.
fn mixtures(model: &Model) -> impl Iterator<Item = &Experts> {
    model.blocks.kinds().iter().filter_map(|block| block.feed_forward.experts())
}

/// Tokens of the first group, of any kind of block, that does not divide so many rows.
fn divided(layout: &Layout, model: &Model, rows: usize) -> Option<usize> {
    let mut groups = mixtures(model).filter_map(|experts| Some(experts.capacity?.group(layout.seq_len)));
    groups.find(|group| !rows.is_multiple_of(*group))
}

/// The experts that drop nothing, of the kinds of blocks that have them.
fn dropless(model: &Model) -> impl Iterator<Item = &Experts> {
    mixtures(model).filter(|experts| experts.capacity.is_none())
}

/// Rows that the tokens which a rank has at a time choose, if they cannot be cut over these ranks.
fn uncut(layout: &Layout, model: &Model, ranks: usize) -> Option<usize> {
    let chosen = |experts: &Experts| experts.per_token * layout.rows() / layout.overlap_chunks;
    dropless(model).map(chosen).find(|rows| !rows.is_multiple_of(ranks))
}

/// Rows of a sequence that follow each other on a rank.
fn consecutive(layout: &Layout) -> usize {
    match layout.grid.size(Axis::Context) {
        1 => layout.seq_len,
        context => layout.seq_len / (2 * context),
    }
}

/// Rows of the residual stream that a rank has at a time.
fn held(layout: &Layout) -> usize {
    let scattered = layout.activations == Activations::Scattered;
    let cut = if scattered { layout.grid.size(Axis::X) } else { 1 };
    layout.rows() / layout.overlap_chunks / cut
}

/// The change of the model that would help as well.
fn smaller(rows: usize) -> String {
    format!("a `model.capacity_group` that divides {rows} would lie on one, too")
}

/// Groups cut a sequence, and its pieces of context ranks.
pub(super) const PIECES: Check = Check {
    rule: Rule::Experts,
    keeps: |layout, model| divided(layout, model, consecutive(layout)).is_none(),
    tell: |layout, model| {
        let context = layout.grid.size(Axis::Context);
        let rows = consecutive(layout);
        let group = divided(layout, model, rows).unwrap_or(1);
        if context == 1 {
            let rule = format!("experts' groups of {group} tokens cut a sequence evenly; {}", smaller(rows));
            let ways = vec![Way::sizes(Field::SeqLen, layout.seq_len, Values::Multiples(group, model.seq_len))];
            return Broken::new(Field::SeqLen, layout.seq_len, rule, ways);
        }
        let rule = format!(
            "a rank has pieces of {rows} tokens of a sequence, and experts' groups of {group} lie on one rank; {}",
            smaller(rows)
        );
        let ways = vec![
            Way::sizes(Axis::Context, context, Values::Divisors((layout.seq_len / group / 2).max(1))),
            Way::sizes(Axis::Context, context, Values::Divisors(context)),
        ];
        Broken::new(Axis::Context, context, rule, ways)
    },
};

/// Ranks have whole experts, as many each, of axes that cut the rows of tokens.
pub(super) const SPREAD: Check = Check {
    rule: Rule::Experts,
    keeps: |layout, model| {
        let over = layout.experts_over;
        let ranks = layout.grid.size_of(over);
        let divided = mixtures(model).all(|experts| experts.count.is_multiple_of(ranks));
        over.is_empty() || mixtures(model).next().is_some() && divided
    },
    tell: |layout, model| {
        let over = layout.experts_over;
        let leave = vec![Way::Choice(Change::Leave(Field::ExpertsOver))];
        if mixtures(model).next().is_none() {
            return Broken::new(Field::ExpertsOver, over, "the model has no experts", leave);
        }
        let ranks = layout.grid.size_of(over);
        let mut counts = mixtures(model).map(|experts| experts.count);
        let uneven = counts.find(|count| !count.is_multiple_of(ranks)).unwrap_or(1);
        let rule = format!("its {ranks} ranks have equally many of the {uneven} experts");
        let sizes = over.iter().map(|axis| {
            let size = layout.grid.size(axis);
            Way::sizes(axis, size, Values::Divisors((uneven / (ranks / size)).max(1)))
        });
        Broken::new(Field::ExpertsOver, over, rule, sizes.chain(leave).collect())
    },
};

/// Only what has experts sends rows to them. Ranks along x that all send all tokens cannot have experts of their own: each expert
/// would get them several times.
pub(super) const DISPATCH: Check = Check {
    rule: Rule::Experts,
    keeps: |layout, model| {
        let duplicates = layout.dispatch == Dispatch::Duplicated;
        !duplicates || mixtures(model).next().is_some() && !layout.experts_over.contains(Axis::X)
    },
    tell: |layout, model| {
        if mixtures(model).next().is_none() {
            let ways = vec![Way::Choice(Change::Leave(Field::Dispatch))];
            return Broken::new(Field::Dispatch, layout.dispatch, "the model has no experts", ways);
        }
        let ways = vec![
            Way::Choice(Change::to(Field::Dispatch, Dispatch::Dropped)),
            Way::Choice(Change::to(Field::Activations, Activations::Scattered)),
        ];
        let rule = "ranks along x, over which experts are spread, send each its part of the tokens";
        Broken::new(Field::Dispatch, layout.dispatch, rule, ways)
    },
};

/// Experts are cut like the weights of whole tiles.
pub(super) const PRODUCTS: Check = Check {
    rule: Rule::Experts,
    keeps: |layout, model| layout.linear == Linear::Pmm || mixtures(model).next().is_none(),
    tell: |_, _| {
        let ways = vec![Way::Choice(Change::to(Field::Linear, Linear::Pmm))];
        Broken::new(Field::Linear, Linear::Summa, "experts have no panels", ways)
    },
};

/// x cuts scattered rows between groups.
pub(super) const ROWS: Check = Check {
    rule: Rule::Experts,
    keeps: |layout, model| divided(layout, model, held(layout)).is_none(),
    tell: |layout, model| {
        let [x, context] = [Axis::X, Axis::Context].map(|axis| layout.grid.size(axis));
        let rows = held(layout);
        let group = divided(layout, model, rows).unwrap_or(1);
        let rule = format!(
            "each of its ranks has {rows} token rows, and experts' groups of {group} lie on one rank; {}",
            smaller(rows)
        );
        let whole = layout.rows() / layout.overlap_chunks / group;
        let ways = vec![
            Way::sizes(Axis::X, x, Values::Divisors(whole)),
            Way::sizes(Field::Microbatch, layout.microbatch, Values::Divisors(share(layout))),
            Way::sizes(Axis::Context, context, Values::Divisors(context)),
            Way::Choice(Change::to(Field::Activations, Activations::Replicated)),
        ];
        Broken::new(Axis::X, x, rule, ways)
    },
};

/// The loads of a step are known before its first backward pass.
pub(super) const BALANCE: Check = Check {
    rule: Rule::Experts,
    keeps: |layout, model| {
        let of_step = |experts: &Experts| experts.router.balance == BalanceScope::Batch;
        layout.microbatches() * layout.overlap_chunks == 1 || !mixtures(model).any(of_step)
    },
    tell: |layout, _| {
        if layout.microbatches() == 1 {
            let rule = "experts that `model.balance`=batch balances over a step need all of it at once";
            let ways = vec![Way::Choice(Change::Leave(Field::OverlapChunks))];
            return Broken::new(Field::OverlapChunks, layout.overlap_chunks, rule, ways);
        }
        let rule = format!(
            "experts that `model.balance`=batch balances over a step need all of it in one microbatch, and it has {}",
            layout.microbatches()
        );
        let ways = vec![Way::Choice(Change::Set(Field::Microbatch, share(layout).into()))];
        Broken::new(Field::Microbatch, layout.microbatch, rule, ways)
    },
};

/// Loads are counted in a type that has every whole number up to here, and a mean below it is never passed unseen.
const MOST_MEAN_LOAD: usize = 1 << 24;

/// The experts with biases whose mean load in a step cannot be counted, if there are some.
fn uncounted<'m>(layout: &Layout, model: &'m Model) -> Option<&'m Experts> {
    let chosen = |experts: &Experts| layout.tokens_per_step().saturating_mul(experts.per_token);
    let is_counted = |experts: &Experts| chosen(experts) / experts.count < MOST_MEAN_LOAD;
    mixtures(model).find(|experts| experts.router.has_bias() && !is_counted(experts))
}

/// Whoever moves by loads counts them.
pub(super) const LOADS: Check = Check {
    rule: Rule::Experts,
    keeps: |layout, model| uncounted(layout, model).is_none(),
    tell: |layout, model| {
        let most = uncounted(layout, model).map_or(1, |experts| experts.count * MOST_MEAN_LOAD / experts.per_token);
        let rule = format!(
            "loads that `model.router_bias_rate` follows are counted below {MOST_MEAN_LOAD} tokens of an expert in the mean, \
             less than {most} tokens of a step"
        );
        let shares = layout.grid.batch_shares();
        let fewer = most.saturating_sub(1) / layout.seq_len / shares * shares;
        let ways = vec![Way::Choice(Change::Set(Field::GlobalBatch, fewer.max(shares).into()))];
        Broken::new(Field::GlobalBatch, layout.global_batch, rule, ways)
    },
};

/// Only what gets rows as they come needs room for more than others get.
pub(super) const ROOM: Check = Check {
    rule: Rule::Experts,
    keeps: |layout, model| layout.expert_rows == 0 || dropless(model).next().is_some(),
    tell: |layout, model| {
        let rule = match mixtures(model).next() {
            None => "the model has no experts",
            Some(_) => "only experts that drop nothing get unequal rows, those of `model.capacity` have places",
        };
        let leave = vec![Way::Choice(Change::Leave(Field::ExpertRows))];
        Broken::new(Field::ExpertRows, layout.expert_rows, rule, leave)
    },
};

/// Where experts drop nothing, ranks along x with the same tokens send equal parts of the rows that these choose, and ranks along
/// y have equal parts of what equal loads bring.
pub(super) const QUEUES: Check = Check {
    rule: Rule::Experts,
    keeps: |layout, model| uncut(layout, model, cuts(layout)).is_none(),
    tell: |layout, model| {
        let ranks = cuts(layout);
        let x = layout.grid.size(Axis::X);
        let rows = uncut(layout, model, ranks).unwrap_or(1);
        let rule = format!("the {rows} rows that tokens choose in a pass are cut into {ranks} equal parts");
        let ways = vec![
            Way::sizes(Axis::X, x, Values::Divisors(rows)),
            Way::sizes(Field::Microbatch, layout.microbatch, Values::Divisors(share(layout))),
        ];
        Broken::new(Axis::X, x, rule, ways)
    },
};

/// Into how many parts the rows that a rank's tokens choose are cut along x and y.
fn cuts(layout: &Layout) -> usize {
    let [x, y] = [Axis::X, Axis::Y].map(|axis| layout.grid.size(axis));
    let own_x = layout.experts_over.contains(Axis::X);
    match (layout.scatters_rows(), layout.dispatch) {
        (true, _) if own_x => x * y,
        // Both cut tokens too.
        (true, _) => 1,
        (false, Dispatch::Dropped) => x,
        (false, Dispatch::Duplicated) => 1,
    }
}
