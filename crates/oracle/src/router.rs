//! A router: scores of the experts for every token, the choice of `k` of them, their weights, and the losses that keep
//! loads equal and logits small; then the same backwards. `E` experts; keys, by which is chosen, are the scores, with the
//! experts' biases added if they have some.

use std::ops::Range;

use quadrille_spec::{BalanceScope, ExpertGroups, Experts, Router, RouterScores};

use crate::attention::softmax;
use crate::capacity;
use crate::decisions::Margin;

/// The entry of rows of padding in ids: they choose no expert.
pub(crate) const NO_EXPERT: u32 = u32::MAX;

/// What a router says of a batch.
pub(crate) struct Routed {
    /// `[n, E]`.
    logits: Vec<f64>,
    /// `[n, E]`.
    scores: Vec<f64>,
    /// `[n, E]`.
    keys: Vec<f64>,
    /// The experts that each row chooses, `[n, k]`, in the order of choice; [`NO_EXPERT`] of padding.
    pub(crate) ids: Vec<u32>,
    /// What the chosen are multiplied with, `[n, k]`.
    pub(crate) weights: Vec<f64>,
    /// True if the expert has a place for the row, `[n, k]`; false for padding.
    pub(crate) kept: Vec<bool>,
}

/// The batch as a router sees it.
#[derive(Clone, Copy)]
pub(crate) struct Rows {
    pub(crate) sequences: usize,
    pub(crate) seq_len: usize,
    /// Whether experts have places for some rows only.
    pub(crate) drops: bool,
}

impl Routed {
    /// From `logits[n, E]` and `bias[E]`, if there is one; `forced` are ids that were chosen elsewhere, `present[n]` is false for
    /// padding.
    pub(crate) fn new(
        experts: &Experts,
        rows: Rows,
        present: &[bool],
        logits: Vec<f64>,
        bias: Option<&[f64]>,
        forced: Option<&[u32]>,
    ) -> Self {
        let scores: Vec<f64> = logits.chunks(experts.count).flat_map(|row| scores(experts.router, row)).collect();
        let bias_of = |at: usize| bias.map_or(0.0, |bias| bias[at % experts.count]);
        let keys: Vec<f64> = scores.iter().enumerate().map(|(at, score)| score + bias_of(at)).collect();
        let choices = |(keys, present): (&[f64], &bool)| {
            if *present { choice(keys, experts) } else { vec![NO_EXPERT; experts.per_token] }
        };
        let own = || keys.chunks(experts.count).zip(present).flat_map(choices).collect();
        let ids = forced.map_or_else(own, <[u32]>::to_vec);
        let rows_of = scores.chunks(experts.count).zip(ids.chunks(experts.per_token));
        let weights: Vec<f64> = rows_of.flat_map(|(scores, ids)| weights(experts.router, scores, ids)).collect();
        let kept = capacity::kept(experts, rows, &ids, &weights);
        Self { logits, scores, keys, ids, weights, kept }
    }

    /// How many rows choose each expert, dropped choices included.
    pub(crate) fn loads(&self, experts: &Experts) -> Vec<f64> {
        loads(experts, &self.ids)
    }

    /// True if a row holds a token.
    fn is_present(&self, experts: &Experts, row: usize) -> bool {
        self.ids[row * experts.per_token] != NO_EXPERT
    }

    /// Rows that hold tokens.
    fn tokens(&self, experts: &Experts) -> impl Iterator<Item = usize> {
        (0..self.logits.len() / experts.count).filter(|row| self.is_present(experts, *row))
    }

    /// The balance loss (Switch Transformer: Fedus et al. 2021, equation 4, of `k` choices): the mean over tokens of
    /// `alpha sum_e f_e p_e`, with the loads `f` of a token's scope: that over scopes of `alpha sum_e f_e P_e`, weighted by their
    /// tokens.
    pub(crate) fn balance(&self, experts: &Experts, rows: Rows) -> f64 {
        let shares = self.shares(experts);
        let of_scope = |(range, loads): (Range<usize>, Vec<f64>)| -> f64 {
            let tokens = range.filter(|row| self.is_present(experts, *row));
            let of_row = |row: usize| -> f64 {
                shares[row * experts.count..][..experts.count]
                    .iter()
                    .zip(&loads)
                    .map(|(share, load)| load * share)
                    .sum()
            };
            tokens.map(of_row).sum()
        };
        let sum: f64 = self.scopes(experts, rows).map(of_scope).sum();
        experts.router.balance_loss * sum / self.tokens(experts).count() as f64
    }

    /// The z loss (ST-MoE: Zoph et al. 2022, equation 5): `beta` times the mean of the squared logarithms of the sums of
    /// exponentials.
    pub(crate) fn z_loss(&self, experts: &Experts) -> f64 {
        let of_row = |row: usize| log_sum(&self.logits[row * experts.count..][..experts.count]).powi(2);
        experts.router.z_loss * self.tokens(experts).map(of_row).sum::<f64>() / self.tokens(experts).count() as f64
    }

    /// `dlogits[n, E]` from `dweights[n, k]`, 0 where a choice was dropped, and from both losses.
    pub(crate) fn backward(&self, experts: &Experts, rows: Rows, dweights: &[f64]) -> Vec<f64> {
        let count = experts.count;
        let k = experts.per_token;
        let router = experts.router;
        let n = self.logits.len() / count;
        let tokens = self.tokens(experts).count() as f64;
        let dshares = self.balance_backward(experts, rows);
        let mut dlogits = Vec::with_capacity(self.logits.len());
        for row in 0..n {
            if !self.is_present(experts, row) {
                dlogits.extend(vec![0.0; count]);
                continue;
            }
            let logits = &self.logits[row * count..][..count];
            let scores = &self.scores[row * count..][..count];
            let ids = &self.ids[row * k..][..k];
            let mut dscores = weights_backward(router, scores, ids, &dweights[row * k..][..k]);
            let of_balance = shares_backward(router.scores, scores, &dshares[row * count..][..count]);
            (0..count).for_each(|e| dscores[e] += of_balance[e]);
            let of_scores = scores_backward(router.scores, scores, &dscores);
            let z = 2.0 * router.z_loss * log_sum(logits) / tokens;
            dlogits.extend(of_scores.iter().zip(softmax(logits)).map(|(d, part)| d + z * part));
        }
        dlogits
    }

    /// The gradient of every share by the balance loss: counts are constants.
    fn balance_backward(&self, experts: &Experts, rows: Rows) -> Vec<f64> {
        let tokens = self.tokens(experts).count() as f64;
        let mut d = vec![0.0; self.scores.len()];
        for (range, loads) in self.scopes(experts, rows) {
            for row in range.filter(|row| self.is_present(experts, *row)) {
                for (d, load) in d[row * experts.count..][..experts.count].iter_mut().zip(&loads) {
                    *d = experts.router.balance_loss * load / tokens;
                }
            }
        }
        d
    }

    /// Rows of every scope of the balance loss, and `f_e`, the load of each expert as a multiple of the mean load, dropped choices
    /// included.
    fn scopes(&self, experts: &Experts, rows: Rows) -> impl Iterator<Item = (Range<usize>, Vec<f64>)> {
        let (scopes, tokens) = match experts.router.balance {
            BalanceScope::Sequence => (rows.sequences, rows.seq_len),
            BalanceScope::Batch => (1, rows.sequences * rows.seq_len),
            BalanceScope::None => (0, 0),
        };
        (0..scopes).map(move |scope| {
            let rows = scope * tokens..(scope + 1) * tokens;
            let loads = loads(experts, &self.ids[rows.start * experts.per_token..rows.end * experts.per_token]);
            let mean = loads.iter().sum::<f64>() / experts.count as f64;
            (rows, loads.into_iter().map(|load| load / mean).collect())
        })
    }

    /// The scores of every row as parts of their sum, `[n, E]`.
    fn shares(&self, experts: &Experts) -> Vec<f64> {
        self.scores.chunks(experts.count).flat_map(|scores| shares(experts.router.scores, scores)).collect()
    }

    /// How clearly the ids are the ones to be chosen, and who has a place.
    pub(crate) fn margin(&self, experts: &Experts, rows: Rows) -> Margin {
        let never = f64::INFINITY;
        let mut margin = Margin { choice: never, order: never, largest: 0.0, drop: never };
        for row in self.tokens(experts) {
            let keys = &self.keys[row * experts.count..][..experts.count];
            let ids = &self.ids[row * experts.per_token..][..experts.per_token];
            let is_chosen = |id: usize| ids.contains(&(id as u32));
            let chosen: Vec<f64> = ids.iter().map(|id| keys[*id as usize]).collect();
            let (open, of_groups) = groups_of(keys, ids, experts);
            let others = (0..keys.len()).filter(|id| open[*id] && !is_chosen(*id)).map(|id| keys[id]);
            let least = chosen.iter().copied().fold(never, f64::min);
            margin.choice = margin.choice.min(least - others.fold(f64::NEG_INFINITY, f64::max)).min(of_groups);
            margin.order = chosen.windows(2).map(|pair| pair[0] - pair[1]).fold(margin.order, f64::min);
            margin.largest = keys.iter().map(|key| key.abs()).fold(margin.largest, f64::max);
        }
        margin.drop = capacity::margin(experts, rows, &self.ids, &self.weights, &self.kept);
        margin
    }
}

/// Number of choices of each expert.
fn loads(experts: &Experts, ids: &[u32]) -> Vec<f64> {
    let mut loads = vec![0.0; experts.count];
    ids.iter().filter(|id| **id != NO_EXPERT).for_each(|id| loads[*id as usize] += 1.0);
    loads
}

/// The scores of a row of logits.
fn scores(router: Router, logits: &[f64]) -> Vec<f64> {
    match router.scores {
        RouterScores::Softmax => softmax(logits),
        RouterScores::Sigmoid => logits.iter().map(|logit| 1.0 / (1.0 + (-logit).exp())).collect(),
    }
}

/// `dlogits` of a row.
fn scores_backward(kind: RouterScores, scores: &[f64], dscores: &[f64]) -> Vec<f64> {
    let mean: f64 = scores.iter().zip(dscores).map(|(score, d)| score * d).sum();
    let of_one = |(score, d): (&f64, &f64)| match kind {
        RouterScores::Softmax => score * (d - mean),
        RouterScores::Sigmoid => d * score * (1.0 - score),
    };
    scores.iter().zip(dscores).map(of_one).collect()
}

/// The numbers of the `k` largest keys, of all or of the chosen groups, the largest first; of equal ones the lower number first.
fn choice(keys: &[f64], experts: &Experts) -> Vec<u32> {
    let mut ids = largest_first(keys);
    if let Some(groups) = experts.router.groups {
        let chosen = &largest_first(&group_keys(keys, groups, experts.per_token))[..groups.chosen];
        ids.retain(|id| chosen.contains(&(id / (experts.count / groups.count) as u32)));
    }
    ids.truncate(experts.per_token);
    ids
}

/// The numbers of all keys, those of the largest first; equal ones keep their order.
fn largest_first(keys: &[f64]) -> Vec<u32> {
    let mut ids: Vec<u32> = (0..keys.len() as u32).collect();
    ids.sort_by(|a, b| keys[*b as usize].total_cmp(&keys[*a as usize]));
    ids
}

/// Of each group the mean of its largest keys, as many as a token takes of a group if it takes as many of each.
fn group_keys(keys: &[f64], groups: ExpertGroups, per_token: usize) -> Vec<f64> {
    let counted = per_token / groups.chosen;
    let of_group = |keys: &[f64]| {
        let largest = largest_first(keys).into_iter().take(counted);
        largest.map(|id| keys[id as usize]).sum::<f64>() / counted as f64
    };
    keys.chunks(keys.len() / groups.count).map(of_group).collect()
}

/// The experts that were open to a token that chose these, and how clearly these were the groups to be chosen: the least key of
/// a chosen group less the largest of one that is not. Where experts are of fewer groups, the best others were chosen, too.
fn groups_of(keys: &[f64], ids: &[u32], experts: &Experts) -> (Vec<bool>, f64) {
    let Some(groups) = experts.router.groups else { return (vec![true; keys.len()], f64::INFINITY) };
    let size = experts.count / groups.count;
    let of_groups = group_keys(keys, groups, experts.per_token);
    let mut order = largest_first(&of_groups);
    // Stable: those that experts are of come first.
    order.sort_by_key(|group| !ids.iter().any(|id| *id as usize / size == *group as usize));
    let used = order.iter().filter(|group| ids.iter().any(|id| *id as usize / size == **group as usize)).count();
    let (chosen, others) = order.split_at(groups.chosen.max(used));
    let key = |group: &u32| of_groups[*group as usize];
    let least = chosen.iter().map(key).fold(f64::INFINITY, f64::min);
    let largest = others.iter().map(key).fold(f64::NEG_INFINITY, f64::max);
    let open = (0..keys.len()).map(|id| chosen.contains(&((id / size) as u32))).collect();
    // More groups than may be chosen are never right.
    let margin = if used > groups.chosen { f64::NEG_INFINITY } else { least - largest };
    (open, margin)
}

/// Factors of the chosen experts of a row; 0 of padding.
fn weights(router: Router, scores: &[f64], ids: &[u32]) -> Vec<f64> {
    if ids[0] == NO_EXPERT {
        return vec![0.0; ids.len()];
    }
    let chosen = ids.iter().map(|id| scores[*id as usize]);
    let sum = if router.normalize { chosen.clone().sum() } else { 1.0 };
    chosen.map(|score| score / sum * router.scale).collect()
}

/// `dscores` of a row from the gradients of its weights.
fn weights_backward(router: Router, scores: &[f64], ids: &[u32], dweights: &[f64]) -> Vec<f64> {
    let chosen = || ids.iter().map(|id| scores[*id as usize]);
    let sum: f64 = chosen().sum();
    let mean: f64 = chosen().zip(dweights).map(|(score, d)| score / sum * d * router.scale).sum();
    let mut dscores = vec![0.0; scores.len()];
    for (id, d) in ids.iter().zip(dweights) {
        let d = d * router.scale;
        dscores[*id as usize] += if router.normalize { (d - mean) / sum } else { d };
    }
    dscores
}

/// The scores of a row as parts of their sum, which softmax's are.
fn shares(kind: RouterScores, scores: &[f64]) -> Vec<f64> {
    match kind {
        RouterScores::Softmax => scores.to_vec(),
        RouterScores::Sigmoid => {
            let sum: f64 = scores.iter().sum();
            scores.iter().map(|score| score / sum).collect()
        }
    }
}

/// `dscores` of a row from the gradients of its shares.
fn shares_backward(kind: RouterScores, scores: &[f64], dshares: &[f64]) -> Vec<f64> {
    match kind {
        RouterScores::Softmax => dshares.to_vec(),
        RouterScores::Sigmoid => {
            let sum: f64 = scores.iter().sum();
            let mean: f64 = scores.iter().zip(dshares).map(|(score, d)| score / sum * d).sum();
            dshares.iter().map(|d| (d - mean) / sum).collect()
        }
    }
}

/// The logarithm of the sum of exponentials, the largest subtracted first so that nothing overflows.
fn log_sum(logits: &[f64]) -> f64 {
    let max = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    max + logits.iter().map(|logit| (logit - max).exp()).sum::<f64>().ln()
}

#[cfg(test)]
mod tests {
    use quadrille_spec::{FeedForward, Model};

    use super::*;

    /// Four experts, or eight in four groups.
    fn experts(per_token: usize, chosen: Option<usize>) -> Experts {
        let model = Model::gpt(1, 8, 1, 8, 8);
        let FeedForward::Dense(expert) = model.blocks.first().feed_forward else { unreachable!("GPT has no experts") };
        let router = Router {
            scores: RouterScores::Sigmoid,
            groups: chosen.map(|chosen| ExpertGroups { count: 4, chosen }),
            normalize: false,
            scale: 1.0,
            balance: BalanceScope::None,
            balance_loss: 0.0,
            z_loss: 0.0,
            bias_rate: 0.0,
        };
        let count = if chosen.is_some() { 8 } else { 4 };
        Experts { count, per_token, expert, shared: None, router, capacity: None }
    }

    #[test]
    fn the_largest_keys_are_chosen_and_of_equal_ones_the_lower_number() {
        assert_eq!(choice(&[0.1, 0.4, 0.2, 0.3], &experts(2, None)), [1, 3]);
        assert_eq!(choice(&[0.2, 0.2, 0.4, 0.2], &experts(3, None)), [2, 0, 1]);
        assert_eq!(choice(&[0.25; 4], &experts(2, None)), [0, 1]);
    }

    /// Means of both keys: 0.5, 0.55, 0.45, 0.1; largest ones: 0.9, 0.6, 0.5, 0.1.
    const EIGHT: [f64; 8] = [0.9, 0.1, 0.6, 0.5, 0.5, 0.4, 0.1, 0.1];

    #[test]
    fn groups_are_chosen_by_as_many_keys_as_a_token_takes_of_them() {
        assert_eq!(choice(&EIGHT, &experts(2, Some(1))), [2, 3]);
        assert_eq!(choice(&EIGHT, &experts(2, Some(2))), [0, 2]);
        assert_eq!(choice(&EIGHT, &experts(4, Some(2))), [0, 2, 3, 1]);
        assert_eq!(choice(&[0.2; 8], &experts(4, Some(2))), [0, 1, 2, 3]);
    }

    /// The margin of a token of [`EIGHT`] whose experts these are.
    fn margin(ids: &[u32], chosen: usize) -> f64 {
        let experts = experts(ids.len(), Some(chosen));
        let logits = EIGHT.map(|score| -(1.0 / score - 1.0_f64).ln()).to_vec();
        let rows = Rows { sequences: 1, seq_len: 1, drops: false };
        Routed::new(&experts, rows, &[true], logits, None, Some(ids)).margin(&experts, rows).choice
    }

    #[test]
    fn margins_say_how_clear_the_choice_of_groups_was() {
        let is = |ids: &[u32], chosen: usize, expected: f64| {
            let found = margin(ids, chosen);
            assert!((found - expected).abs() < 1e-12, "{ids:?} of {chosen} groups: {found}");
        };
        // Of one group: the second by mean is 0.05 behind; another one is wrong by as much.
        is(&[2, 3], 1, 0.05);
        is(&[0, 1], 1, -0.05);
        is(&[4, 5], 1, -0.1);
        // Of two groups by their largest keys, 0.6 to 0.5: experts are as clear.
        is(&[0, 2], 2, 0.1);
        is(&[0, 4], 2, -0.1);
        // Both of one group: the other chosen one is the best of the rest, which has a better expert.
        is(&[2, 3], 2, -0.4);
        assert_eq!(margin(&[0, 2], 1), f64::NEG_INFINITY);
    }
}
