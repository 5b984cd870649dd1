//! What training can be shown with, without any files: the demo corpus, endless simple text whose entropy is known
//! exactly, so that a loss can be shown beside its floor, and moving waves.

mod chain;
mod grammar;
mod waves;

pub use waves::Waves;

use quadrille_spec::RandomStream;

use crate::tokens::Tokens;
use crate::{DataError, Tokenizer, Vocabulary};
use chain::Chain;
use grammar::{Choice, places};

/// Text of a small random grammar, in memory. Sentences are independent of each other, and each tells the choices that
/// made it, so that entropy per token is entropy per sentence over expected tokens per sentence. This holds for both
/// tokenizers: GPT-2's never joins a word with the next.
#[derive(Debug)]
pub struct DemoCorpus {
    tokenizer: Tokenizer,
    tokens: Vec<u32>,
    chain: Chain,
}

impl DemoCorpus {
    /// Whole sentences of at least `min_tokens` tokens, a function of `seed` and the length alone.
    ///
    /// # Panics
    /// For a `tokenizer.json`, which may join words, so that the entropy would be another.
    pub fn new(seed: u64, tokenizer: Tokenizer, min_tokens: usize) -> Self {
        assert!(!matches!(tokenizer, Tokenizer::Json(_)), "the demo corpus is spelled by built-in tokenizers");
        let spell = |word: &str| tokenizer.encode(word).expect("the grammar's words are short");
        let places = places();
        let spelled: Vec<Vec<Vec<u32>>> =
            places.iter().map(|choices| choices.iter().map(|(word, ..)| spell(word)).collect()).collect();
        let stream = RandomStream::new(seed, "demo corpus");
        let mut tokens = Vec::new();
        let mut place = 0;
        let mut draws = 0;
        while place != 0 || tokens.len() < min_tokens {
            let chosen = choose(&places[place], stream, draws);
            tokens.extend(&spelled[place][chosen]);
            place = places[place][chosen].2;
            draws += 1;
        }
        let chain = Chain::new(&places, spell);
        Self { tokenizer, tokens, chain }
    }

    /// The tokenizer that the tokens are from.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// Number of tokens.
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Whether there are no tokens.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Copies the tokens from `start` on into `out`.
    ///
    /// # Errors
    /// [`DataError::OutOfRange`] if there are fewer than `start + out.len()` tokens.
    pub fn window(&self, start: usize, out: &mut [u32]) -> Result<(), DataError> {
        let end = start.saturating_add(out.len());
        let present = self.len();
        let tokens = self.tokens.get(start..end).ok_or(DataError::OutOfRange { start, end, present })?;
        out.copy_from_slice(tokens);
        Ok(())
    }

    /// Entropy of the language in nats per token: the expected loss of a perfect model with endless context.
    pub fn floor(&self) -> f64 {
        self.chain.entropy_rate()
    }

    /// The expected loss, in nats per token, of a perfect model on samples of `seq_len` tokens, at least 1, that begin
    /// anywhere in the text: above [`Self::floor`], since the sentence in which a sample begins is seen in part only.
    ///
    /// Both floors are of the language: a finite text's own average differs by chance, and a model that sees the same
    /// text very often can learn it by heart.
    pub fn window_floor(&self, seq_len: usize) -> f64 {
        self.chain.window_entropy(seq_len)
    }
}

impl Tokens for DemoCorpus {
    fn len(&self) -> usize {
        self.len()
    }

    fn window(&self, start: usize, out: &mut [u32]) -> Result<(), DataError> {
        self.window(start, out)
    }

    /// One: sentences are independent, but read on.
    fn documents(&self) -> Result<usize, DataError> {
        Ok(1)
    }

    fn document_starts(&self, first: usize, starts: &mut [usize]) -> Result<(), DataError> {
        starts.fill(self.len());
        if let (0, [start, ..]) = (first, starts) {
            *start = 0;
        }
        Ok(())
    }

    fn vocabulary(&self) -> Option<Vocabulary> {
        Some(self.tokenizer.vocabulary())
    }

    fn verify(&self) -> Result<(), DataError> {
        Ok(())
    }
}

/// Draws one of `choices` with probability in proportion to its weight.
fn choose(choices: &[Choice], stream: RandomStream, draw: u64) -> usize {
    let total = choices.iter().map(|(_, weight, _)| u64::from(*weight)).sum();
    let mut below = stream.below(draw, total);
    let mut chosen = 0;
    while below >= u64::from(choices[chosen].1) {
        below -= u64::from(choices[chosen].1);
        chosen += 1;
    }
    chosen
}

#[cfg(test)]
mod tests;
