//! How a token is drawn from logits: a function of the logits and (seed, sequence, position) alone, so that every rank
//! and every layout draws the same.

use quadrille_spec::RandomStream;

use crate::{EngineError, Real};

/// How a token is drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampling {
    /// Logits are divided by it: below 1 likely tokens become likelier. 0: always the likeliest.
    pub temperature: f64,
    /// Only so many of the likeliest; `None`: all.
    pub top_k: Option<usize>,
    /// Of those only the likeliest that together have this probability; `None`: all.
    pub top_p: Option<f64>,
    /// Keys the draws.
    pub seed: u64,
}

impl Sampling {
    /// The likeliest token.
    pub const GREEDY: Self = Self { temperature: 0.0, top_k: None, top_p: None, seed: 0 };

    /// Refuses numbers that mean nothing.
    pub(super) fn check(&self) -> Result<(), EngineError> {
        let refuse = |rule: String, remedy: &str| Err(EngineError::Generation { rule, remedy: remedy.to_owned() });
        if !self.temperature.is_finite() || self.temperature < 0.0 {
            let rule = format!("temperature = {}: logits are divided by it", self.temperature);
            return refuse(rule, "use 0 for the likeliest token, or a positive number");
        }
        if self.top_k == Some(0) {
            return refuse(
                "top-k = 0: a token is drawn from at least one".to_owned(),
                "use 1 or more, or leave it out",
            );
        }
        match self.top_p {
            Some(share) if !(share > 0.0 && share <= 1.0) => {
                refuse(format!("top-p = {share}: it is a probability"), "use a number above 0, at most 1")
            }
            _ => Ok(()),
        }
    }
}

/// Draws tokens; its memory is used again.
pub(super) struct Sampler {
    sampling: Sampling,
    stream: RandomStream,
    /// Weights and token ids.
    candidates: Vec<(f64, u32)>,
}

impl Sampler {
    pub fn new(sampling: Sampling) -> Self {
        Self { sampling, stream: RandomStream::new(sampling.seed, "generation"), candidates: Vec::new() }
    }

    /// The token at `position` of `sequence`; of equally likely ones the first. `None`: logits that are not numbers.
    pub fn draw<T: Real>(&mut self, logits: &[T], sequence: usize, position: usize) -> Option<u32> {
        let (best, most) = likeliest(logits)?;
        if self.sampling.temperature == 0.0 {
            return Some(best);
        }
        let weight = |logit: &T| ((logit.to_f64() - most) / self.sampling.temperature).exp();
        self.candidates.clear();
        self.candidates.extend(logits.iter().map(weight).zip(0..));
        self.keep_the_likeliest();
        let total: f64 = self.candidates.iter().map(|(weight, _)| weight).sum();
        let [a, b, ..] = self.stream.substream(sequence as u64).words(position as u64);
        // 53 random bits: a number in [0, 1).
        let uniform = ((u64::from(a) << 21) ^ (u64::from(b) >> 11)) as f64 / (1_u64 << 53) as f64;
        let mut rest = uniform * total;
        let drawn = self.candidates.iter().find(|(weight, _)| {
            rest -= weight;
            rest < 0.0
        });
        // Rounding may leave a rest behind the last one that can be drawn at all.
        drawn.or(self.candidates.iter().rfind(|(weight, _)| *weight > 0.0)).map(|(_, token)| *token)
    }

    /// Cuts the candidates to those of top-k and top-p, the likeliest first.
    fn keep_the_likeliest(&mut self) {
        let Sampling { top_k, top_p, .. } = self.sampling;
        if top_k.is_none() && top_p.is_none() {
            return;
        }
        let likelier = |a: &(f64, u32), b: &(f64, u32)| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1));
        if let Some(count) = top_k.filter(|count| *count < self.candidates.len()) {
            self.candidates.select_nth_unstable_by(count - 1, likelier);
            self.candidates.truncate(count);
        }
        self.candidates.sort_unstable_by(likelier);
        if let Some(share) = top_p {
            let total: f64 = self.candidates.iter().map(|(weight, _)| weight).sum();
            let mut sum = 0.0;
            let kept = self.candidates.iter().position(|(weight, _)| {
                sum += weight;
                sum >= share * total
            });
            self.candidates.truncate(kept.map_or(self.candidates.len(), |last| last + 1));
        }
    }
}

/// The first of the largest logits and its value; `None` if there is no finite largest, or any is not a number.
fn likeliest<T: Real>(logits: &[T]) -> Option<(u32, f64)> {
    let mut best: Option<(u32, f64)> = None;
    for (token, logit) in (0..).zip(logits) {
        let logit = logit.to_f64();
        if logit.is_nan() {
            return None;
        }
        if best.is_none_or(|(_, most)| logit > most) {
            best = Some((token, logit));
        }
    }
    best.filter(|(_, most)| most.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOGITS: [f64; 5] = [0.0, 2.0, 1.0, 2.0, -1.0];

    fn shares(sampling: Sampling) -> Vec<f64> {
        let mut sampler = Sampler::new(sampling);
        let mut counts = vec![0.0; LOGITS.len()];
        for position in 0..20_000 {
            counts[sampler.draw(&LOGITS, 3, position).unwrap() as usize] += 1.0 / 20_000.0;
        }
        counts
    }

    #[test]
    fn shares_of_tokens_are_those_of_the_softmax() {
        for temperature in [1.0, 0.5] {
            let weights = LOGITS.map(|logit| (logit / temperature).exp());
            let total: f64 = weights.iter().sum();
            let found = shares(Sampling { temperature, seed: 5, ..Sampling::GREEDY });
            for (found, weight) in found.iter().zip(weights) {
                assert!((found - weight / total).abs() < 0.015, "{found} {}", weight / total);
            }
        }
    }

    #[test]
    fn only_the_likeliest_are_drawn() {
        let drawn = |top_k, top_p| -> Vec<usize> {
            let found = shares(Sampling { temperature: 1.0, top_k, top_p, seed: 7 });
            (0..LOGITS.len()).filter(|token| found[*token] > 0.0).collect()
        };
        assert_eq!(drawn(Some(1), None), [1]);
        assert_eq!(drawn(Some(2), None), [1, 3]);
        assert_eq!(drawn(Some(3), None), [1, 2, 3]);
        // The two likeliest have 0.78 together.
        assert_eq!(drawn(None, Some(0.3)), [1]);
        assert_eq!(drawn(None, Some(0.7)), [1, 3]);
        assert_eq!(drawn(None, Some(0.9)), [1, 2, 3]);
        assert_eq!(drawn(Some(2), Some(1.0)), [1, 3]);
        assert_eq!(drawn(Some(9), Some(1.0)), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn draws_depend_on_seed_sequence_and_position_alone() {
        let draws = |seed, sequence: usize| -> Vec<u32> {
            let mut sampler = Sampler::new(Sampling { temperature: 2.0, seed, ..Sampling::GREEDY });
            (0..50).map(|position| sampler.draw(&LOGITS, sequence, position).unwrap()).collect()
        };
        assert_eq!(draws(1, 0), draws(1, 0));
        assert_ne!(draws(1, 0), draws(2, 0));
        assert_ne!(draws(1, 0), draws(1, 1));
    }

    #[test]
    fn the_likeliest_token_is_the_first_of_equals_and_no_number_is_refused() {
        let mut sampler = Sampler::new(Sampling::GREEDY);
        assert_eq!(sampler.draw(&LOGITS, 0, 0), Some(1));
        assert_eq!(sampler.draw(&[0.0, f64::NAN], 0, 0), None);
        assert_eq!(sampler.draw::<f64>(&[], 0, 0), None);
        assert_eq!(sampler.draw(&[f64::NEG_INFINITY], 0, 0), None);
    }

    #[test]
    fn numbers_that_mean_nothing_are_refused() {
        let greedy = Sampling::GREEDY;
        assert!(greedy.check().is_ok());
        for wrong in [
            Sampling { temperature: -1.0, ..greedy },
            Sampling { temperature: f64::NAN, ..greedy },
            Sampling { top_k: Some(0), ..greedy },
            Sampling { top_p: Some(0.0), ..greedy },
            Sampling { top_p: Some(1.5), ..greedy },
        ] {
            assert!(wrong.check().is_err(), "{wrong:?}");
        }
    }
}
