//! Why grids were refused, and what would be possible instead.

use std::collections::{BTreeMap, BTreeSet};

use quadrille_spec::{LayoutRequest, Model, SpecError};

/// How many grids each rule refused, with one refusal as example.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Refusals {
    by_rule: BTreeMap<String, (usize, SpecError)>,
}

impl Refusals {
    /// Counts one refused grid under the rule that it broke first.
    pub(crate) fn count(&mut self, refusal: SpecError) {
        let rule = match &refusal {
            SpecError::Indivisible { axes, dimension, .. } => format!("{axes} divides {dimension}"),
            SpecError::Invalid { field, .. } => field.clone(),
            SpecError::Unknown { what, .. } | SpecError::Syntax { what, .. } => (*what).to_owned(),
        };
        self.by_rule.entry(rule).or_insert((0, refusal)).0 += 1;
    }

    /// Number of refused grids, rule, and an example, the rule that refuses most first.
    pub fn by_frequency(&self) -> Vec<(usize, &str, &SpecError)> {
        let mut rules: Vec<_> =
            self.by_rule.iter().map(|(rule, (count, example))| (*count, rule.as_str(), example)).collect();
        // Stable: rules of equal frequency stay in alphabetical order.
        rules.sort_by_key(|(count, ..)| std::cmp::Reverse(*count));
        rules
    }
}

/// A search without a result.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PlanError {
    /// Every grid of that many ranks breaks a rule.
    #[error("no legal grid of {ranks} ranks for {model}: {reason}; {}", remedy(nearest))]
    NoLegalGrid {
        /// The wanted number of ranks.
        ranks: usize,
        /// The model's name.
        model: String,
        /// The rule that refused most grids, with an example.
        reason: String,
        /// The rank counts next below and above that have a legal grid.
        nearest: Vec<usize>,
    },
    /// A number of ranks that no grid has, or nodes that the cluster does not have.
    #[error(transparent)]
    Spec(#[from] SpecError),
}

impl PlanError {
    /// Describes why none of the grids of `ranks` ranks is legal. `is_possible` says whether a number of ranks has a
    /// legal grid.
    pub(crate) fn none_legal(
        model: &Model,
        ranks: usize,
        template: &LayoutRequest,
        refusals: Refusals,
        is_possible: impl Fn(usize) -> bool,
    ) -> Self {
        let nearest = nearest(model, ranks, template, is_possible);
        let rules = refusals.by_frequency();
        let total: usize = rules.iter().map(|(count, ..)| count).sum();
        let reason = rules.first().map_or_else(String::new, |(count, rule, example)| {
            format!("of {total} grids, {count} break the rule on '{rule}', e.g. {example}")
        });
        Self::NoLegalGrid { ranks, model: model.name.clone(), reason, nearest }
    }
}

/// How many rank counts on either side of the wanted one are tried as remedies.
const REMEDIES_TRIED: usize = 50;

/// The rank counts next below and above `ranks` that are possible. Only products of a divisor of the heads (x), of
/// hidden (y) and of the batch (z times data) can be, which leaves few to try.
fn nearest(model: &Model, ranks: usize, template: &LayoutRequest, is_possible: impl Fn(usize) -> bool) -> Vec<usize> {
    // Far larger counts are no remedy.
    let most = ranks.saturating_mul(4);
    let mut counts = BTreeSet::from([1]);
    for dimension in [model.heads, model.hidden, template.global_batch] {
        let divisors: Vec<_> = (1..=dimension.min(most)).filter(|d| dimension.is_multiple_of(*d)).collect();
        let products = counts.iter().flat_map(|count| divisors.iter().map(move |d| count * d));
        counts = products.filter(|count| *count <= most).collect();
    }
    let below = counts.range(..ranks).rev().take(REMEDIES_TRIED).find(|count| is_possible(**count));
    let above = counts.range(ranks + 1..).take(REMEDIES_TRIED).find(|count| is_possible(**count));
    below.into_iter().chain(above).copied().collect()
}

fn remedy(nearest: &[usize]) -> String {
    match nearest {
        [] => "no other number of ranks helps: change batch, sequence length or node size".to_owned(),
        [one] => format!("the nearest number of ranks with a legal grid is {one}"),
        counts => {
            let counts: Vec<_> = counts.iter().map(usize::to_string).collect();
            format!("the nearest numbers of ranks with a legal grid are {}", counts.join(" and "))
        }
    }
}
