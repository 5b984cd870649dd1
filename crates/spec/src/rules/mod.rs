//! The rules of a layout: each with the words of its refusal beside it. What would keep a broken rule is found by trying
//! (`remedy.rs`).
//!
//! A rule looks at numbers alone, so that a search can hold millions of layouts against it; words are made only for those
//! that are told.

mod experts;
mod grid;
mod pass;
mod schedule;
#[cfg(test)]
mod tests;

use std::fmt;

use crate::remedy::Broken;
use crate::{Layout, Model};

/// Nothing, or the rule that is broken.
pub(crate) type Kept = Result<(), Broken>;

/// What refused layouts are counted under.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// x cuts heads and perceptrons, and keys in whole heads.
    X,
    /// y cuts the residual stream, and what attention narrows it to.
    Y,
    /// z cuts every weight's tile.
    Z,
    /// Each context rank has two equal pieces of a sequence.
    Context,
    /// Data and expert cut the batch.
    Data,
    /// Pieces of layers have a block.
    Pieces,
    /// The passes of all stages together can be listed.
    Passes,
    /// Several chunks, and the groups of microbatches of the interleaved schedule.
    Interleaved,
    /// Microbatches cut the share of a data rank, and are cut by z, y, x and overlap chunks.
    Microbatch,
    /// SUMMA's activations, sizes and panels.
    Summa,
    /// Experts' groups of tokens lie whole on one rank, and loads are known before they are balanced.
    Experts,
    /// Recomputation of more blocks than there are, or nothing to keep.
    Recompute,
    /// Buckets of offloaded states are not too many.
    Buckets,
    /// Padding does not make a vocabulary many times as large.
    Vocabulary,
    /// Rules of the framework that trains, beside those of all layouts.
    Framework,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::X => "x divides the heads and the perceptron's width, and cuts keys and values in whole heads",
            Self::Y => "y divides the hidden size, and the widths of latents",
            Self::Z => "z divides every weight's tile",
            Self::Context => "context cuts sequences into two equal pieces a rank",
            Self::Data => "data, and expert with it, divides the global batch",
            Self::Pieces => "every piece of layers has a block",
            Self::Passes => "not too many passes are listed",
            Self::Interleaved => "interleaved chunks and groups of microbatches",
            Self::Microbatch => "the microbatch is cut evenly",
            Self::Summa => "SUMMA cuts evenly into panels",
            Self::Experts => "experts are spread evenly, and their groups of tokens lie whole on one rank",
            Self::Recompute => "recomputed blocks",
            Self::Buckets => "not too many buckets of states",
            Self::Vocabulary => "a vocabulary is not padded to many times its size",
            Self::Framework => "rules of the framework that trains",
        })
    }
}

/// What a rule depends on. Those of a scope may take for granted that those before it are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// The sizes of the axes, the batch and the sequence.
    Grid,
    /// How a microbatch is cut in a pass: activations, linear layers, overlap chunks.
    Pass,
    /// The schedule with its chunks and groups; not the list of pieces.
    Schedule,
    /// What is computed again.
    Recompute,
}

/// A rule, and how it is told that a layout breaks it.
struct Check {
    rule: Rule,
    keeps: fn(&Layout, &Model) -> bool,
    tell: fn(&Layout, &Model) -> Broken,
}

impl Check {
    fn check(&self, layout: &Layout, model: &Model) -> Kept {
        if (self.keeps)(layout, model) { Ok(()) } else { Err((self.tell)(layout, model)) }
    }
}

impl Scope {
    /// Every scope, each behind those that it depends on.
    pub const ALL: [Self; 4] = [Self::Grid, Self::Pass, Self::Schedule, Self::Recompute];

    fn checks(self) -> &'static [Check] {
        match self {
            Self::Grid => &grid::CHECKS,
            Self::Pass => &pass::CHECKS,
            Self::Schedule => &schedule::CHECKS,
            Self::Recompute => &schedule::RECOMPUTE,
        }
    }
}

/// Of a layout that no pass over rows of its own breaks: what cuts weights and the batch.
const SIZES: [Check; 9] = [
    experts::SPREAD,
    grid::HEADS,
    grid::KEYS,
    grid::HIDDEN,
    grid::TILES,
    pass::PATCHES,
    grid::BATCH,
    pass::SHARE,
    pass::SPLIT,
];

impl Layout {
    /// The first rule of a scope that the layout breaks, if it breaks one.
    pub fn broken_rule(&self, model: &Model, scope: Scope) -> Option<Rule> {
        scope.checks().iter().find(|check| !(check.keeps)(self, model)).map(|check| check.rule)
    }

    /// Every rule but that of pieces, which is asked before they are listed.
    pub(crate) fn check(&self, model: &Model) -> Kept {
        let checks = Scope::ALL.into_iter().flat_map(Scope::checks).chain(&schedule::LISTED);
        checks.into_iter().try_for_each(|check| check.check(self, model))
    }

    /// Whether there are as many blocks as pieces need.
    pub(crate) fn check_pieces(&self, model: &Model) -> Kept {
        schedule::PIECES.check(self, model)
    }

    /// The rules of a layout that no pass over rows of its own breaks: those of what cuts weights and the batch.
    pub(crate) fn check_sizes(&self, model: &Model) -> Kept {
        SIZES.iter().try_for_each(|check| check.check(self, model))
    }
}
