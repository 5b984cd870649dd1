//! Why grids were refused, and what would be possible instead.

use std::collections::{BTreeMap, BTreeSet};

use quadrille_cost::native::PriceError;
use quadrille_spec::{LayoutRequest, Model, SpecError};

/// How many grids each rule refused, with one refusal as example.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Refusals {
    by_rule: BTreeMap<String, (usize, SpecError)>,
}

impl Refusals {
    /// Counts one refused grid under what it was refused for first.
    pub(crate) fn count(&mut self, refusal: SpecError) {
        let rule = match &refusal {
            SpecError::Indivisible { axes, dimension, .. } => format!("{axes} does not divide {dimension}"),
            SpecError::Refused(refusal) => refusal.kind.clone(),
            SpecError::Invalid { field, .. } => field.clone(),
            SpecError::Unknown { what, .. } | SpecError::Syntax { what, .. } => (*what).to_owned(),
            SpecError::Number(_) => "number".to_owned(),
        };
        self.by_rule.entry(rule).or_insert((0, refusal)).0 += 1;
    }

    /// Number of refused grids, what they were refused for (`x does not divide heads`, or a field such as `microbatch`),
    /// and an example, what refuses most first.
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
    /// A fault that does not depend on the grid: number of ranks, batch, sequence length, size of nodes.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// A grid without a price.
    #[error(transparent)]
    Price(#[from] PriceError),
}

impl PlanError {
    /// Describes why none of the grids of `ranks` ranks is legal, and the numbers of ranks next to it that have one.
    pub(crate) fn none_legal(model: &Model, ranks: usize, refusals: &Refusals, nearest: Vec<usize>) -> Self {
        let rules = refusals.by_frequency();
        let total: usize = rules.iter().map(|(count, ..)| count).sum();
        let reason = rules.first().map_or_else(String::new, |(count, rule, example)| {
            format!("of {total} grids, {count} refused for '{rule}', e.g. {example}")
        });
        Self::NoLegalGrid { ranks, model: model.name.clone(), reason, nearest }
    }
}

/// How many rank counts on either side of the wanted one are tried as remedies.
const REMEDIES_TRIED: usize = 50;

/// The rank counts next below and above `ranks` that are possible. Only products of a divisor of the heads (x), of
/// hidden (y) and of the batch (z times data) can be, which leaves few to try.
pub(crate) fn nearest(
    model: &Model,
    ranks: usize,
    template: &LayoutRequest,
    is_possible: impl Fn(usize) -> bool,
) -> Vec<usize> {
    // Far larger counts are no remedy.
    let most = ranks.saturating_mul(4);
    let mut counts = BTreeSet::from([1]);
    for dimension in [model.blocks.first().attention.heads, model.hidden, template.global_batch] {
        let divisors: Vec<_> = (1..=dimension.min(most)).filter(|d| dimension.is_multiple_of(*d)).collect();
        let products = counts.iter().flat_map(|count| divisors.iter().map(move |d| count * d));
        counts = products.filter(|count| *count <= most).collect();
    }
    let below = counts.range(..ranks).rev().take(REMEDIES_TRIED);
    let above = counts.range(ranks + 1..).take(REMEDIES_TRIED);
    let possible = |count: &usize| is_possible(*count);
    below.copied().find(possible).into_iter().chain(above.copied().find(possible)).collect()
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
