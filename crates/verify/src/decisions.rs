//! Which experts the tokens of a layout's step chose: put together from its ranks, and judged by the serial model's keys.

use std::collections::BTreeMap;

use quadrille_engine::Chosen;
use quadrille_oracle::{Decisions, Margin};
use quadrille_spec::Model;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a layout's tokens chose, beside what the serial model's would have.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DecisionsReport {
    /// Tokens that chose, once in every block that has experts, in all steps.
    pub made: u64,
    /// Those that chose otherwise than in the serial model that goes its own way; 0 where it follows the layout's choices.
    pub differing: u64,
    /// The least that a chosen expert's key was above one that was not chosen, or was chosen later, as a part of the largest
    /// key; below 0 where it was not above it.
    pub smallest_margin: f64,
}

impl DecisionsReport {
    /// Before the first step.
    pub const NONE: Self = Self { made: 0, differing: 0, smallest_margin: f64::INFINITY };
}

/// The decisions of a step's tokens from the recorded choices of each rank; `present` is false for padding, which has none.
///
/// # Errors
/// A token for which ranks chose differently, or nobody did.
pub(crate) fn decisions<'r>(
    model: &Model,
    present: &[bool],
    ranks: impl IntoIterator<Item = &'r Vec<Chosen>>,
) -> Result<Decisions, String> {
    let chosen = |block: usize| model.blocks[block].feed_forward.experts().map(|experts| experts.per_token);
    let mut open: BTreeMap<usize, Vec<Option<&[usize]>>> = (0..model.layers())
        .filter(|block| chosen(*block).is_some())
        .map(|block| (block, vec![None; present.len()]))
        .collect();
    for Chosen { block, token, experts } in ranks.into_iter().flatten() {
        let place = open.get_mut(block).and_then(|tokens| tokens.get_mut(*token));
        let Some(place) = place else { return Err(format!("token {token} of block {block} is none of the step's")) };
        match place {
            Some(other) if *other != experts.as_slice() => {
                return Err(format!("block {block}, token {token}: ranks chose {other:?} and {experts:?}"));
            }
            _ => *place = Some(experts),
        }
    }
    let whole = |(block, tokens): (usize, Vec<Option<&[usize]>>)| {
        let per_token = chosen(block).unwrap_or(0);
        let of_token = |(token, ids): (usize, Option<&[usize]>)| match (ids, present[token]) {
            (Some(ids), true) => Ok(ids.iter().map(|id| *id as u32).collect()),
            (None, false) => Ok(vec![Decisions::NO_EXPERT; per_token]),
            (None, true) => Err(format!("block {block}, token {token}: no rank chose")),
            (Some(ids), false) => Err(format!("block {block}, token {token}: padding chose {ids:?}")),
        };
        let ids = tokens.into_iter().enumerate().map(of_token).collect::<Result<Vec<Vec<u32>>, String>>()?;
        Ok((block, ids.concat()))
    };
    Ok(Decisions { blocks: open.into_iter().map(whole).collect::<Result<_, String>>()? })
}

/// The smallest of all margins, as parts of the largest keys.
pub(crate) fn smallest(margins: &BTreeMap<usize, Margin>) -> f64 {
    let relative = |margin: &Margin| margin.choice.min(margin.order) / margin.largest;
    margins.values().map(relative).fold(f64::INFINITY, f64::min)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rank(choices: &[(usize, &[usize])]) -> Vec<Chosen> {
        let chosen =
            |(token, experts): &(usize, &[usize])| Chosen { block: 1, token: *token, experts: experts.to_vec() };
        choices.iter().map(chosen).collect()
    }

    #[test]
    fn every_token_is_decided_and_replicas_agree() {
        let text = Model::preset_text("moe-tiny").unwrap();
        let every = [("expert_every".to_owned(), "2".to_owned())];
        let model = Model::from_toml(text, &every).unwrap();
        let [left, right] = [rank(&[(0, &[2, 1]), (1, &[0, 3])]), rank(&[(1, &[0, 3])])];
        let found = decisions(&model, &[true; 2], [&left, &right]).unwrap();
        assert_eq!(found.blocks, [(1, vec![2, 1, 0, 3])].into());
        let missing = decisions(&model, &[true; 3], [&left, &right]).unwrap_err();
        assert_eq!(missing, "block 1, token 2: no rank chose");
        let other = rank(&[(1, &[3, 0])]);
        let differing = decisions(&model, &[true; 2], [&left, &other]).unwrap_err();
        assert_eq!(differing, "block 1, token 1: ranks chose [0, 3] and [3, 0]");
        let padded = decisions(&model, &[true, true, false], [&left, &right]).unwrap();
        assert_eq!(padded.blocks, [(1, vec![2, 1, 0, 3, u32::MAX, u32::MAX])].into());
        let padding = decisions(&model, &[true, false], [&left, &right]).unwrap_err();
        assert_eq!(padding, "block 1, token 1: padding chose [0, 3]");
    }

    #[test]
    fn the_smallest_margin_is_a_part_of_its_own_blocks_largest_key() {
        let margin = |choice, order, largest| Margin { choice, order, largest, drop: f64::INFINITY };
        let margins = [(0, margin(0.1, 0.2, 0.5)), (2, margin(0.3, 0.08, 0.8))].into();
        assert!((smallest(&margins) - 0.1).abs() < 1e-12);
    }
}
