//! Why grids were refused.

use std::collections::BTreeMap;

use crate::{Model, SpecError};

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
            SpecError::Unknown { what, .. } | SpecError::Syntax { what, .. } | SpecError::Empty { what, .. } => {
                (*what).to_owned()
            }
            SpecError::Number { .. } => "number".to_owned(),
            SpecError::NoLegalGrid { .. } => "grid".to_owned(),
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

    /// Why none of the grids of `ranks` ranks is legal, with the numbers of ranks next to it that have one.
    pub(crate) fn none_legal(&self, model: &Model, ranks: usize, nearest: Vec<usize>) -> SpecError {
        let rules = self.by_frequency();
        let total: usize = rules.iter().map(|(count, ..)| count).sum();
        let reason = rules.first().map_or_else(String::new, |(count, rule, example)| {
            format!("of {total} grids, {count} refused for '{rule}', e.g. {example}")
        });
        SpecError::NoLegalGrid { ranks, model: model.name.clone(), reason, nearest }
    }
}
