//! What a block keeps for its backward pass and what it computes again there.

use quadrille_spec::Recompute;

use super::{Group, Sizes};
use crate::native::AttentionKernel;

/// The values of a block, as flags: which of them are kept, or made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::native) struct Values {
    /// Row statistics of both norms.
    pub statistics: bool,
    /// Outputs of both norms, as they lie in the residual stream.
    pub normed: bool,
    /// The same gathered for the products.
    pub gathered_normed: bool,
    /// Queries, keys and values.
    pub qkv: bool,
    /// The attention's output.
    pub attention: bool,
    /// Stored attention: probabilities, their dropout mask and the result of dropout.
    pub scores: bool,
    /// The attention's output gathered for the projection.
    pub gathered_attention: bool,
    /// The residual stream after the attention.
    pub stream: bool,
    /// The input of the activation function.
    pub pre: bool,
    /// Its output.
    pub activated: bool,
    /// The same gathered for the down product.
    pub gathered_activated: bool,
    /// The residual stream after the block.
    pub output: bool,
    /// Panels of tokens of SUMMA products that are repeated: kept for it; or, of what is made, there already.
    pub panels: bool,
}

impl Values {
    /// All that a forward pass makes.
    pub fn all(s: &Sizes) -> Self {
        let (over_x, over_y) = (s.gathers(Group::X), s.gathers(Group::Y));
        Self {
            statistics: true,
            normed: true,
            gathered_normed: over_x,
            qkv: true,
            attention: true,
            scores: s.stores_scores(),
            gathered_attention: over_y,
            stream: true,
            pre: true,
            activated: true,
            gathered_activated: over_y,
            output: true,
            panels: false,
        }
    }

    /// What the forward pass keeps for the backward pass.
    pub fn kept(s: &Sizes) -> Self {
        let everything = Self::needed(s);
        let (over_x, over_y) = (s.gathers(Group::X), s.gathers(Group::Y));
        // Communication-aware recomputation keeps what collectives have made.
        let communicated = |group: Group| s.keep_communicated && s.panels.is_none() && s.members(group) > 1;
        match s.recompute {
            Recompute::None => everything,
            // Korthikanti et al. 2022: where scores are stored, they alone are computed again.
            Recompute::Selective if s.stores_scores() => Self { scores: false, ..everything },
            Recompute::Selective => Self {
                normed: false,
                activated: false,
                gathered_normed: s.keep_communicated && over_x,
                gathered_activated: s.keep_communicated && over_y,
                ..everything
            },
            Recompute::Full { .. } => Self {
                statistics: s.keep_communicated && s.members(s.column_group) > 1,
                gathered_normed: s.keep_communicated && over_x,
                qkv: communicated(Group::Y),
                gathered_attention: s.keep_communicated && over_y,
                stream: communicated(Group::X),
                pre: communicated(Group::Y),
                gathered_activated: s.keep_communicated && over_y,
                output: communicated(Group::X),
                panels: s.keep_communicated && s.panels.is_some(),
                ..Self::default()
            },
        }
    }

    /// What the backward pass needs, without what it gathers again.
    pub fn needed(s: &Sizes) -> Self {
        let gathered = |group| s.gathers(group) && s.framework.keeps_gathered_inputs;
        Self {
            statistics: true,
            normed: !gathered(Group::X),
            gathered_normed: gathered(Group::X),
            qkv: true,
            attention: true,
            scores: s.framework.attention == AttentionKernel::Stored,
            gathered_attention: gathered(Group::Y),
            stream: true,
            pre: true,
            activated: !gathered(Group::Y),
            gathered_activated: gathered(Group::Y),
            output: true,
            panels: false,
        }
    }

    /// What recomputation makes in a block's backward pass; `output`: also that which the next block of its segment
    /// begins with.
    pub fn again(s: &Sizes, output: bool) -> Self {
        if s.recompute == Recompute::None {
            return Self::default();
        }
        let kept = Self::kept(s);
        let (over_x, over_y) = (s.gathers(Group::X), s.gathers(Group::Y));
        let keeps = s.framework.keeps_gathered_inputs;
        if s.recompute == Recompute::Selective && s.stores_scores() {
            return Self { scores: true, ..Self::default() };
        }
        let full = matches!(s.recompute, Recompute::Full { .. });
        let [qkv, stream, pre] = [kept.qkv, kept.stream, kept.pre].map(|kept| full && !kept);
        let output = full && output && !kept.output;
        let (normed, activated) = (!kept.gathered_normed, !kept.gathered_activated);
        Self {
            statistics: full && !kept.statistics,
            normed,
            // Where gathered inputs are not kept, the products of weight gradients gather theirs in any case.
            gathered_normed: over_x && normed && (keeps || qkv || pre),
            qkv,
            attention: full,
            scores: full && s.stores_scores(),
            gathered_attention: over_y && full && !kept.gathered_attention && (keeps || stream),
            stream,
            pre,
            activated,
            gathered_activated: over_y && activated && (keeps || output),
            output,
            panels: kept.panels,
        }
    }
}
