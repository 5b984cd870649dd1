//! The places of experts: every group of `g` consecutive tokens of a sequence has `C` of each expert, and who comes too late
//! is dropped.

use std::cmp::Ordering;
use std::ops::Range;

use quadrille_spec::{Capacity, DropOrder, Experts};

use crate::router::{NO_EXPERT, Rows};

/// True for each choice, `[n, k]`, that has a place, false for padding, from the `ids[n, k]` and `weights[n, k]` of all choices.
pub(crate) fn kept(experts: &Experts, rows: Rows, ids: &[u32], weights: &[f64]) -> Vec<bool> {
    let Some(capacity) = experts.capacity.filter(|_| rows.drops) else {
        return ids.iter().map(|id| *id != NO_EXPERT).collect();
    };
    let mut kept = vec![false; ids.len()];
    for group in groups(experts, &capacity, rows) {
        let mut waiting: Vec<usize> = group.filter(|choice| ids[*choice] != NO_EXPERT).collect();
        let mut free = vec![places(experts, &capacity, waiting.len() / experts.per_token); experts.count];
        waiting.sort_by(|a, b| before(experts, capacity.drop, weights, *a, *b));
        for choice in waiting {
            let free = &mut free[ids[choice] as usize];
            kept[choice] = *free > 0;
            *free = free.saturating_sub(1);
        }
    }
    kept
}

/// By how much the least weight that has a place of an expert in a group is above the largest that has none, at least;
/// infinite where weights do not decide.
pub(crate) fn margin(experts: &Experts, rows: Rows, ids: &[u32], weights: &[f64], kept: &[bool]) -> f64 {
    let mut margin = f64::INFINITY;
    let Some(capacity) = experts.capacity.filter(|capacity| capacity.drop == DropOrder::Score && rows.drops) else {
        return margin;
    };
    for group in groups(experts, &capacity, rows) {
        for expert in 0..experts.count as u32 {
            let of =
                |has_place| group.clone().filter(move |choice| ids[*choice] == expert && kept[*choice] == has_place);
            let least = of(true).map(|choice| weights[choice]).fold(f64::INFINITY, f64::min);
            let most = of(false).map(|choice| weights[choice]).fold(f64::NEG_INFINITY, f64::max);
            margin = margin.min(least - most);
        }
    }
    margin
}

/// Where the choices of every group lie in `[n, k]`.
fn groups(experts: &Experts, capacity: &Capacity, rows: Rows) -> impl Iterator<Item = Range<usize>> {
    let tokens = capacity.group.unwrap_or(rows.seq_len);
    assert!(rows.seq_len.is_multiple_of(tokens), "groups of {tokens} tokens in sequences of {}", rows.seq_len);
    let choices = tokens * experts.per_token;
    (0..rows.sequences * rows.seq_len / tokens).map(move |group| group * choices..(group + 1) * choices)
}

/// `C` of a group of `tokens`.
fn places(experts: &Experts, capacity: &Capacity, tokens: usize) -> usize {
    let wanted = capacity.factor * experts.per_token as f64 * tokens as f64 / experts.count as f64;
    // What is whole but for rounding is whole.
    ((wanted * (1.0 - 1e-12)).ceil() as usize).min(tokens)
}

/// Which of two choices of a group, by their indices in `[n, k]`, comes first.
fn before(experts: &Experts, drop: DropOrder, weights: &[f64], a: usize, b: usize) -> Ordering {
    let number = |choice: usize| choice % experts.per_token;
    let by_number = number(a).cmp(&number(b)).then(a.cmp(&b));
    match drop {
        DropOrder::Choice => by_number,
        DropOrder::Score => rounded(weights[b]).total_cmp(&rounded(weights[a])).then(by_number),
    }
}

/// A weight in 13 binary digits: those are equal that differ by rounding alone.
fn rounded(weight: f64) -> f64 {
    // What is next to nothing has no more digits to tell.
    if weight < 1e-300 {
        return 0.0;
    }
    let place = 2.0_f64.powi(weight.log2().floor() as i32 - 12);
    (weight / place).round() * place
}

#[cfg(test)]
mod tests {
    use quadrille_spec::{Model, SpecError};

    use super::*;

    fn experts(overrides: &[(&str, &str)]) -> Result<Experts, SpecError> {
        let text =
            "name = \"moe\"\nlayers = 1\nhidden = 2\nheads = 1\nvocab = 7\nseq_len = 4\nexperts = 2\ncapacity = 1.0\n";
        let owned: Vec<_> = overrides.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        Ok(*Model::from_toml(text, &owned)?.blocks.first().feed_forward.experts().unwrap())
    }

    fn dropped(experts: &Experts, sequences: usize, ids: &[u32], weights: &[f64]) -> Vec<usize> {
        let kept = kept(experts, Rows { sequences, seq_len: 4, drops: true }, ids, weights);
        (0..ids.len()).filter(|choice| !kept[*choice]).collect()
    }

    /// Four tokens that choose both of two experts, which have half of the places that this takes: two.
    const IDS: [u32; 8] = [0, 1, 0, 1, 1, 0, 0, 1];
    const WEIGHTS: [f64; 8] = [0.6, 0.4, 0.7, 0.3, 0.9, 0.1, 0.8, 0.2];

    #[test]
    fn first_choices_come_first() {
        // Expert 0: tokens 0, 1, 3 choose it first, token 2 second. Expert 1: token 2 first, then 0, 1, 3.
        let experts = experts(&[("capacity", "0.5")]).unwrap();
        assert_eq!(places(&experts, &experts.capacity.unwrap(), 4), 2);
        assert_eq!(dropped(&experts, 1, &IDS, &WEIGHTS), [3, 5, 6, 7]);
    }

    #[test]
    fn weights_are_compared_in_thirteen_digits() {
        assert_eq!([0.0, 1e-310, 1.0, 0.75].map(rounded), [0.0, 0.0, 1.0, 0.75]);
        let next = 1.0 + 1.0 / 4096.0;
        let middle = 1.0 + 0.5 / 4096.0;
        assert_eq!([1.0 - 1e-15, middle - 1e-15, middle, next + 1e-15].map(rounded), [1.0, 1.0, next, next]);
    }

    #[test]
    fn or_the_highest_weights() {
        // Expert 0: 0.8 and 0.7 before 0.6 and 0.1. Expert 1: 0.9 and 0.4 before 0.3 and 0.2.
        let experts = experts(&[("capacity", "0.5"), ("drop", "score")]).unwrap();
        assert_eq!(dropped(&experts, 1, &IDS, &WEIGHTS), [0, 3, 5, 7]);
        let rows = Rows { sequences: 1, seq_len: 4, drops: true };
        let kept = kept(&experts, rows, &IDS, &WEIGHTS);
        let margin = margin(&experts, rows, &IDS, &WEIGHTS, &kept);
        assert!((margin - 0.1).abs() < 1e-15, "{margin}");
        // Of equal weights first choices, then earlier tokens.
        assert_eq!(dropped(&experts, 1, &IDS, &[0.5; 8]), [3, 5, 6, 7]);
    }

    #[test]
    fn groups_and_sequences_are_apart() {
        let experts = experts(&[("capacity", "0.5"), ("capacity_group", "2")]).unwrap();
        // One place of each expert for two tokens.
        assert_eq!(dropped(&experts, 1, &IDS, &WEIGHTS), [2, 3, 5, 7]);
        let twice = dropped(&experts, 2, &IDS.repeat(2), &WEIGHTS.repeat(2));
        assert_eq!(twice, [2, 3, 5, 7, 10, 11, 13, 15]);
    }

    #[test]
    fn all_have_places_where_experts_have_as_many_as_tokens() {
        let experts = experts(&[]).unwrap();
        assert_eq!(places(&experts, &experts.capacity.unwrap(), 4), 4);
        assert!(dropped(&experts, 1, &[0, 1].repeat(4), &[0.5; 8]).is_empty());
        assert_eq!(places(&Experts { per_token: 1, ..experts }, &experts.capacity.unwrap(), 3), 2);
    }
}
