//! What `train` reads: text, the built-in corpus, or the built-in waves.

use quadrille_data::{DemoCorpus, TokenSource, Tokenizer, Waves, fill_batch, prepare};
use quadrille_engine::{EngineError, Samples};
use quadrille_spec::Model;

use crate::data_arguments::DataArguments;
use crate::failure::Failure;

/// Tokens of the built-in corpus.
const DEMO_TOKENS: usize = 1 << 20;

/// Training samples as a function of (seed, step, sequence).
pub struct Source {
    kind: Kind,
    seed: u64,
    seq_len: usize,
}

enum Kind {
    Tokens(TokenSource),
    Waves(Waves),
}

impl Source {
    /// Text, tokenised once, or, without any, what is built in for the kind of model.
    pub fn open(arguments: &DataArguments, model: &Model, seed: u64, seq_len: usize) -> Result<Self, Failure> {
        let kind = match model.patch_values {
            None => Kind::Tokens(tokens(arguments, model, seed, seq_len)?),
            Some(values) => {
                check_no_text(arguments, model)?;
                Kind::Waves(Waves::new(seed, seq_len, values))
            }
        };
        Ok(Self { kind, seed, seq_len })
    }

    /// The least expected loss, where it is known, with what it is.
    pub fn floor(&self) -> Option<(f64, &'static str)> {
        match &self.kind {
            Kind::Tokens(source) => {
                let floor = source.window_floor(self.seq_len)?;
                Some((floor, "nats per token: the entropy of the built-in corpus in such windows"))
            }
            Kind::Waves(_) => Some((0.0, "mean squared error: the built-in waves move as they must; of zeros it is 1")),
        }
    }

    /// Fills in the sequences from `first` on of the global batch of step `step`, before which the run has consumed
    /// `_samples_before` sequences: samples are drawn by step.
    pub fn fill(&self, step: u64, _samples_before: u64, first: usize, samples: Samples) -> Result<(), EngineError> {
        match &self.kind {
            Kind::Tokens(source) => {
                let (tokens, targets) = samples.tokens()?;
                let count = tokens.len() / self.seq_len;
                Ok(fill_batch(source, self.seed, step, first as u64, count, self.seq_len, tokens, targets)?)
            }
            Kind::Waves(waves) => {
                let (inputs, targets) = samples.patches()?;
                waves.fill(step, first as u64, inputs, targets);
                Ok(())
            }
        }
    }
}

/// Refuses options of text for a model that reads none.
fn check_no_text(arguments: &DataArguments, model: &Model) -> Result<(), Failure> {
    let data = (!arguments.data.is_empty()).then_some("--data");
    match data.or(arguments.tokenizer.map(|_| "--tokenizer")) {
        None => Ok(()),
        Some(option) => Err(Failure::usage(format!(
            "{option}: {} reads patches of numbers, not text; leave it out to train on the built-in waves, or use a model \
             with a vocabulary",
            model.name
        ))),
    }
}

/// The training text: files tokenised once, or the built-in corpus.
fn tokens(arguments: &DataArguments, model: &Model, seed: u64, seq_len: usize) -> Result<TokenSource, Failure> {
    let tokenizer = arguments
        .tokenizer
        .unwrap_or_else(|| if model.vocab >= Tokenizer::Gpt2.vocab() { Tokenizer::Gpt2 } else { Tokenizer::Bytes });
    if tokenizer.vocab() > model.vocab {
        return Err(Failure::usage(format!(
            "tokenizer {tokenizer} has {} ids but the model's vocabulary has {}; use --set vocab={0}, or another \
             --tokenizer",
            tokenizer.vocab(),
            model.vocab
        )));
    }
    let source: TokenSource = if arguments.data.is_empty() {
        DemoCorpus::new(seed, tokenizer, DEMO_TOKENS.max(4 * seq_len)).into()
    } else {
        prepare(&arguments.data, tokenizer, &arguments.cache)?.into()
    };
    // A corpus that is too short is found before ranks start or files are written.
    let (mut tokens, mut targets) = (vec![0; seq_len], vec![0; seq_len]);
    fill_batch(&source, seed, 1, 0, 1, seq_len, &mut tokens, &mut targets)?;
    Ok(source)
}
