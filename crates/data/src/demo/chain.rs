//! A Markov chain that writes one token per transition, and the exact entropy of what it writes.
//!
//! Each state is a place of a grammar or a position inside one of its words. No word of a place begins with the whole
//! of another, so a token and the state before it tell the state after it. Hence the entropy of the tokens is that of the
//! transitions: with `n_s` the expected visits to state `s` in a sentence, and `H_s` the entropy of its transitions,
//!
//! entropy rate = sum_s n_s H_s / sum_s n_s = entropy of a sentence / expected tokens of a sentence
//!
//! (nats per token). The states of one sentence do not repeat, so the `n_s` follow by one pass in order; divided by
//! their sum they are the share of positions in a long text at which the chain is in `s`.

use std::collections::BTreeMap;

use super::grammar::Choice;

#[derive(Debug)]
struct Transition {
    token: u32,
    weight: u32,
    next: usize,
}

/// The chain; state 0 is the beginning of a sentence.
#[derive(Debug)]
pub(super) struct Chain {
    states: Vec<Vec<Transition>>,
    /// Expected visits to each state in one sentence.
    visits: Vec<f64>,
}

impl Chain {
    /// The chain of a grammar whose places lead to later places or to place 0; `spell` gives a word's tokens.
    pub fn new(places: &[Vec<Choice>], spell: impl Fn(&str) -> Vec<u32>) -> Self {
        let mut states: Vec<Vec<Transition>> = places.iter().map(|_| Vec::new()).collect();
        let mut order = Vec::new(); // every state before those that follow it
        for (place, choices) in places.iter().enumerate() {
            order.push(place);
            for (word, weight, next_place) in choices {
                let tokens = spell(word);
                let mut state = place;
                for (i, &token) in tokens.iter().enumerate() {
                    if let Some(shared) = states[state].iter_mut().find(|transition| transition.token == token) {
                        shared.weight += weight;
                        state = shared.next;
                        continue;
                    }
                    let mut next = *next_place;
                    if i + 1 < tokens.len() {
                        next = states.len();
                        states.push(Vec::new());
                        order.push(next);
                    }
                    states[state].push(Transition { token, weight: *weight, next });
                    state = next;
                }
            }
        }
        let mut visits = vec![0.0; states.len()];
        visits[0] = 1.0;
        for state in order {
            for transition in states[state].iter().filter(|transition| transition.next != 0) {
                visits[transition.next] += visits[state] * probability(&states[state], transition);
            }
        }
        Self { states, visits }
    }

    /// Expected tokens in a sentence.
    pub fn tokens_per_sentence(&self) -> f64 {
        self.visits.iter().sum()
    }

    /// Entropy rate in nats per token.
    pub fn entropy_rate(&self) -> f64 {
        let sentence: f64 =
            self.visits.iter().zip(&self.states).map(|(visits, transitions)| visits * entropy(transitions)).sum();
        sentence / self.tokens_per_sentence()
    }

    /// Mean over `t` in `0..len` of the entropy of token `t + 1` of a window given its tokens `0..=t`, in nats: the least
    /// expected loss on windows of `len` tokens that begin anywhere in a long text.
    ///
    /// Every history of tokens leaves some states possible. From the first history, which is empty, all
    /// histories are followed as long as they leave more than one; those that leave one are as good as known.
    pub fn window_entropy(&self, len: usize) -> f64 {
        let total = self.tokens_per_sentence();
        // A history: each possible state with the probability of (history, state).
        let mut unsure: Vec<Vec<(usize, f64)>> =
            vec![self.visits.iter().map(|visits| visits / total).enumerate().collect()];
        let mut known = vec![0.0; self.states.len()];
        let mut sum = 0.0;
        for position in 0..=len {
            let mut next_unsure = Vec::new();
            let mut next_known = vec![0.0; self.states.len()];
            let mut nats = 0.0;
            for (state, &share) in known.iter().enumerate() {
                nats += share * entropy(&self.states[state]);
                for transition in &self.states[state] {
                    next_known[transition.next] += share * probability(&self.states[state], transition);
                }
            }
            for history in unsure {
                let share: f64 = history.iter().map(|(_, p)| p).sum();
                for followers in self.followers(&history).into_values() {
                    let p: f64 = followers.values().sum();
                    nats -= p * (p / share).ln();
                    match Vec::from_iter(followers).as_slice() {
                        &[(state, p)] => next_known[state] += p,
                        several => next_unsure.push(several.to_vec()),
                    }
                }
            }
            // The first token of a window is read, not predicted.
            sum += if position == 0 { 0.0 } else { nats };
            (known, unsure) = (next_known, next_unsure);
        }
        sum / len as f64
    }

    /// For each token that may follow `history`, the histories with it.
    fn followers(&self, history: &[(usize, f64)]) -> BTreeMap<u32, BTreeMap<usize, f64>> {
        let mut followers: BTreeMap<u32, BTreeMap<usize, f64>> = BTreeMap::new();
        for &(state, p) in history {
            for transition in &self.states[state] {
                let after = followers.entry(transition.token).or_default().entry(transition.next).or_default();
                *after += p * probability(&self.states[state], transition);
            }
        }
        followers
    }
}

fn total_weight(transitions: &[Transition]) -> f64 {
    transitions.iter().map(|transition| f64::from(transition.weight)).sum()
}

fn probability(transitions: &[Transition], transition: &Transition) -> f64 {
    f64::from(transition.weight) / total_weight(transitions)
}

/// Entropy in nats of the choice among `transitions`.
fn entropy(transitions: &[Transition]) -> f64 {
    transitions
        .iter()
        .map(|transition| probability(transitions, transition))
        .filter(|&p| p < 1.0)
        .map(|p| -p * p.ln())
        .sum()
}
