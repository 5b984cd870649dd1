//! The goldfish loss: some tokens of every passage are never learned, always the same ones (Hans et al., 2024; AxoNN, SC24,
//! section VIII-D).

use std::fmt;
use std::str::FromStr;

use quadrille_spec::IGNORED;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Leaves a target out of the loss when a hash of the `h` tokens before it falls into the first of `k` classes: a passage that
/// is repeated, at any place of any sample, always lacks the same tokens, and cannot be learned by heart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Goldfish {
    k: u64,
    h: usize,
    seed: u64,
}

impl Goldfish {
    /// One in two, as the 13 tokens before say: the published one.
    pub const PUBLISHED: Self = Self { k: 2, h: 13, seed: 0 };

    /// One in `k` targets, at least 2, is left out, as the `h` tokens before it say, at least 1.
    ///
    /// # Errors
    /// What is wrong, in words.
    pub fn new(k: u64, h: usize, seed: u64) -> Result<Self, String> {
        match (k, h) {
            (0 | 1, _) => Err(format!("k={k}: one in k targets is left out, and some must stay; use at least k=2")),
            (_, 0) => {
                Err("h=0: the tokens before a target decide about it; use at least h=1, as published h=13".to_owned())
            }
            _ => Ok(Self { k, h, seed }),
        }
    }

    /// Tokens that decide about the next one.
    pub fn context(&self) -> usize {
        self.h
    }

    /// Replaces with [`IGNORED`] the targets, `[samples, seq_len]`, that are to be left out. Those with fewer than `h` tokens
    /// before them in the sample stay.
    pub fn apply(&self, seq_len: usize, tokens: &[u32], targets: &mut [u32]) {
        let mut bytes = Vec::with_capacity(4 * seq_len);
        for (tokens, targets) in tokens.chunks(seq_len).zip(targets.chunks_mut(seq_len)) {
            bytes.clear();
            bytes.extend(tokens.iter().flat_map(|token| token.to_le_bytes()));
            // Target t follows token t: the h tokens before it end there.
            for (before, target) in bytes.windows(4 * self.h).step_by(4).zip(&mut targets[(self.h - 1).min(seq_len)..])
            {
                // The upper bits scaled to 0..k: classes of equal size.
                let hash = xxh3_64_with_seed(before, self.seed);
                if (u128::from(hash) * u128::from(self.k)) >> 64 == 0 {
                    *target = IGNORED;
                }
            }
        }
    }
}

impl fmt::Display for Goldfish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "k={},h={}", self.k, self.h)?;
        if self.seed == 0 { Ok(()) } else { write!(f, ",seed={}", self.seed) }
    }
}

impl From<Goldfish> for String {
    fn from(goldfish: Goldfish) -> Self {
        goldfish.to_string()
    }
}

impl TryFrom<String> for Goldfish {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl FromStr for Goldfish {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let usage = || format!("`{text}`: write it as k=2,h=13, or with a seed as k=2,h=13,seed=1");
        let mut k = None;
        let mut h = None;
        let mut seed = None;
        for part in text.split(',') {
            let (name, value) = part.split_once('=').ok_or_else(usage)?;
            let field = match name {
                "k" => &mut k,
                "h" => &mut h,
                "seed" => &mut seed,
                _ => return Err(usage()),
            };
            if field.replace(value.parse::<u64>().map_err(|_| usage())?).is_some() {
                return Err(usage());
            }
        }
        let (Some(k), Some(h)) = (k, h) else { return Err(usage()) };
        Self::new(k, usize::try_from(h).map_err(|_| usage())?, seed.unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quadrille_spec::RandomStream;

    fn random(purpose: &str, len: usize) -> Vec<u32> {
        let stream = RandomStream::new(3, purpose);
        (0..len as u64).map(|at| stream.below(at, 50_000) as u32).collect()
    }

    /// Inputs and targets of a sample, after the mask.
    fn masked(goldfish: Goldfish, text: &[u32]) -> Vec<u32> {
        let mut targets = text[1..].to_vec();
        goldfish.apply(targets.len(), &text[..text.len() - 1], &mut targets);
        targets
    }

    #[test]
    fn one_in_k_targets_is_left_out() {
        let text = random("text", 40_001);
        for k in [2, 3, 4, 10] {
            let targets = masked(Goldfish::new(k, 13, 0).unwrap(), &text);
            let dropped = targets.iter().filter(|target| **target == IGNORED).count() as f64 / 40_000.0;
            let share = 1.0 / k as f64;
            assert!((dropped - share).abs() < 4.0 * (share * (1.0 - share) / 40_000.0).sqrt(), "{k}: {dropped}");
            let kept = targets.iter().zip(&text[1..]).filter(|(target, _)| **target != IGNORED);
            assert!(kept.clone().all(|(target, token)| target == token));
        }
    }

    #[test]
    fn a_passage_lacks_the_same_tokens_wherever_it_stands() {
        let goldfish = Goldfish::new(2, 13, 0).unwrap();
        let passage = random("passage", 200);
        let lacks = |before: usize| {
            let text = [random("before", before), passage.clone(), random("after", 7)].concat();
            masked(goldfish, &text)[before + 12..before + 199].to_vec()
        };
        // From the 14th token on, all that decides about a token lies in the passage.
        let alone = lacks(0);
        assert!(alone.contains(&IGNORED) && alone.iter().any(|target| *target != IGNORED));
        for before in [1, 5, 64, 333] {
            assert_eq!(lacks(before), alone, "{before}");
        }
        assert_ne!(masked(Goldfish::new(2, 13, 1).unwrap(), &passage)[12..], alone, "another seed");
    }

    #[test]
    fn the_first_targets_of_a_sample_stay_and_samples_are_apart() {
        let goldfish = Goldfish::new(2, 13, 0).unwrap();
        let text = random("text", 64);
        let mut whole = [&text[1..33], &text[33..], &[1][..]].concat();
        goldfish.apply(32, &text, &mut whole);
        for (sample, targets) in text.chunks(32).zip(whole.chunks(32)) {
            assert!(!targets[..12].contains(&IGNORED), "fewer than 13 tokens before them");
            let mut alone = targets.to_vec();
            goldfish.apply(32, sample, &mut alone);
            assert_eq!(alone, targets);
        }
        // A sample that is too short for any.
        let mut short = [1, 2, 3];
        goldfish.apply(3, &[5, 6, 7], &mut short);
        assert_eq!(short, [1, 2, 3]);
    }

    #[test]
    fn what_is_typed_is_read() {
        assert_eq!("k=2,h=13".parse(), Goldfish::new(2, 13, 0));
        assert_eq!("h=5,k=3,seed=8".parse(), Goldfish::new(3, 5, 8));
        for text in ["k=2,h=13", "k=4,h=1,seed=9"] {
            assert_eq!(text.parse::<Goldfish>().unwrap().to_string(), text);
        }
        for text in ["", "k=2", "2,13", "k=1,h=13", "k=2,h=0", "k=2,h=13,x=1", "k=2,k=3,h=1", "k=-2,h=13"] {
            assert!(text.parse::<Goldfish>().is_err(), "{text}");
        }
    }
}
