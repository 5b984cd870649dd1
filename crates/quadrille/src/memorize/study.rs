//! A run on the buckets, and what it has learned by heart.

use std::path::{Path, PathBuf};
use std::time::Instant;

use indicatif::{ProgressBar, ProgressStyle};
use quadrille_checkpoint::{About, Checkpoint, Folder};
use quadrille_data::{DataError, Goldfish};
use quadrille_engine::{
    EngineError, ForwardOptions, GenerateOptions, GenerationPrograms, OnSaveFailure, RunEvent, Samples, Saving,
    TrainOptions, Weights, generate_on_cpu, train_on_cpu,
};
use quadrille_run::Signals;
use quadrille_spec::{IGNORED, Model};
use quadrille_step::StepProgram;
use tempfile::TempDir;

use super::corpus::Corpus;
use super::order::{Order, Sequence};
use crate::failure::{Failure, Stopped};
use crate::launch::Launch;

/// Most documents that are continued at once: each has a cache of keys and values.
const AT_ONCE: usize = 64;

/// What all runs of a study share.
pub struct Study<'a> {
    pub program: &'a StepProgram,
    pub corpus: &'a Corpus,
    pub order: &'a Order,
    /// The training run, but for where its checkpoint goes.
    pub train: &'a TrainOptions,
    /// What the checkpoint says of the run.
    pub about: &'a About,
    pub forward: &'a ForwardOptions,
    /// Tokens at the end of each document that are to be written.
    pub generate_tokens: usize,
    /// How often the documents of each bucket are seen.
    pub epochs: &'a [u32],
    pub launch: &'a Launch,
    pub signals: &'a Signals,
}

/// What a run has learned.
pub struct Learned {
    /// `None`: all tokens were learned.
    pub goldfish: Option<Goldfish>,
    /// As in `--epochs`.
    pub buckets: Vec<Bucket>,
    /// Of every step.
    pub losses: Vec<f64>,
    pub training_seconds: f64,
    pub generation_seconds: f64,
    /// Whether predicted and counted ledgers were equal, in every step and every pass.
    pub ledger_equal: bool,
}

/// How much of its documents a model writes as they are.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bucket {
    /// How often they were seen.
    pub epochs: u32,
    pub documents: usize,
    /// Documents whose last tokens are all right.
    pub exact: usize,
    /// Mean share of right tokens.
    pub equal_share: f64,
}

impl Bucket {
    /// `equal` are the right tokens of each document, of `tokens` that were to be written.
    fn new(epochs: u32, equal: &[usize], tokens: usize) -> Self {
        let exact = equal.iter().filter(|equal| **equal == tokens).count();
        let equal_share = equal.iter().sum::<usize>() as f64 / (equal.len() * tokens) as f64;
        Self { epochs, documents: equal.len(), exact, equal_share }
    }

    /// Share of documents whose last tokens are all right.
    pub fn exact_share(&self) -> f64 {
        self.exact as f64 / self.documents as f64
    }
}

/// Where a run's weights go from training to generation.
pub enum Place {
    /// Removed at the end.
    Temporary(TempDir),
    Kept(PathBuf),
}

impl Place {
    pub fn path(&self) -> &Path {
        match self {
            Self::Temporary(folder) => folder.path(),
            Self::Kept(path) => path,
        }
    }
}

impl Study<'_> {
    /// The programs that continue the documents from `first` on, [`AT_ONCE`] or those that are left.
    ///
    /// # Errors
    /// A model or layout that cannot generate.
    pub fn programs(&self, first: usize) -> Result<(GenerationPrograms, Vec<Vec<u32>>), EngineError> {
        let layout = &self.program.layout;
        let prompt = layout.seq_len - self.generate_tokens;
        let documents = self.corpus.documents[first..].iter().take(AT_ONCE);
        let prompts: Vec<Vec<u32>> = documents.map(|tokens| tokens[..prompt].to_vec()).collect();
        let programs = GenerationPrograms::new(&self.program.model, layout, &self.options(), &prompts)?;
        Ok((programs, prompts))
    }

    fn options(&self) -> GenerateOptions {
        GenerateOptions::greedy(self.generate_tokens)
    }

    /// Trains from the start, then has the documents continued. The checkpoint goes into `folder`.
    pub fn run(&self, goldfish: Option<Goldfish>, folder: &Path) -> Result<Learned, Failure> {
        let name = goldfish.map_or("plain", |_| "goldfish");
        let start = Instant::now();
        let (losses, trained_equal) = self.train(goldfish, name, folder)?;
        let trained = Instant::now();
        let checkpoint = Folder::new(folder).newest()?;
        let checkpoint = checkpoint.ok_or_else(|| Failure::run(format!("no checkpoint in {}", folder.display())))?;
        let (equal, generated_equal) = self.recall(checkpoint, name)?;
        let of_buckets = equal.chunks(equal.len() / self.epochs.len());
        let bucket = |(epochs, equal): (&u32, &[usize])| Bucket::new(*epochs, equal, self.generate_tokens);
        Ok(Learned {
            goldfish,
            buckets: self.epochs.iter().zip(of_buckets).map(bucket).collect(),
            losses,
            training_seconds: (trained - start).as_secs_f64(),
            generation_seconds: trained.elapsed().as_secs_f64(),
            ledger_equal: trained_equal && generated_equal,
        })
    }

    /// The losses, and whether the ledgers were equal.
    fn train(&self, goldfish: Option<Goldfish>, name: &str, folder: &Path) -> Result<(Vec<f64>, bool), Failure> {
        let saving = Saving {
            folder: folder.to_owned(),
            every: None,
            keep: 1,
            on_failure: OnSaveFailure::Stop,
            about: self.about.clone(),
        };
        let options = TrainOptions { saving: Some(saving), ..self.train.clone() };
        let seq_len = self.program.layout.seq_len;
        let batch = |step: u64, first: usize, samples: Samples| {
            let (tokens, targets) = samples.tokens()?;
            let sequences = tokens.chunks_mut(seq_len).zip(targets.chunks_mut(seq_len));
            for (place, (tokens, targets)) in sequences.enumerate() {
                self.fill(self.order.at(step, first + place), tokens, targets)?;
            }
            if let Some(goldfish) = goldfish {
                goldfish.apply(seq_len, tokens, targets);
            }
            Ok(())
        };
        let bar = self.bar(options.steps, &format!("{name}: training"));
        let mut on_event = |event: RunEvent| {
            if let RunEvent::Step(record) = event {
                bar.set_message(format!("loss {:.4}", record.loss));
                bar.set_position(record.step);
            }
            Ok(())
        };
        let outcome = train_on_cpu(self.program, &options, &batch, None, &mut on_event);
        bar.finish_and_clear();
        let outcome = outcome?;
        let done = outcome.records.len() as u64;
        if done < options.steps {
            return Err(self.stopped(&format!("after step {done} of {} of the {name} run", options.steps)));
        }
        Ok((outcome.records.iter().map(|record| record.loss).collect(), outcome.difference.is_none()))
    }

    fn fill(&self, sequence: Sequence, tokens: &mut [u32], targets: &mut [u32]) -> Result<(), EngineError> {
        match (sequence, &self.corpus.background) {
            (Sequence::Document(document), _) => {
                tokens.copy_from_slice(&self.corpus.documents[document]);
                // What follows a document is nobody's business.
                let last = targets.len() - 1;
                targets[..last].copy_from_slice(&tokens[1..]);
                targets[last] = IGNORED;
            }
            (Sequence::Other(number), Some(background)) => {
                background.read(number, tokens, targets).map_err(EngineError::of_callback)?;
            }
            // The command refuses such orders before.
            (Sequence::Other(_), None) => return Err(EngineError::of_callback(DataError::NoSamples { present: 0 })),
        }
        Ok(())
    }

    /// The right tokens of every document's end, and whether the ledgers were equal.
    fn recall(&self, checkpoint: Checkpoint, name: &str) -> Result<(Vec<usize>, bool), Failure> {
        let weights = Weights::Checkpoint(checkpoint.into());
        let documents = &self.corpus.documents;
        let bar = self.bar((documents.len() * self.generate_tokens) as u64, &format!("{name}: writing"));
        let (mut equal, mut ledger_equal) = (Vec::with_capacity(documents.len()), true);
        for first in (0..documents.len()).step_by(AT_ONCE) {
            let (programs, prompts) = self.programs(first)?;
            let mut count = |_: usize, _: u32| {
                bar.inc(1);
                Ok(())
            };
            let outcome = generate_on_cpu(&programs, &self.options(), self.forward, &weights, &prompts, &mut count);
            let outcome = outcome.inspect_err(|_| bar.finish_and_clear())?;
            ledger_equal &= outcome.difference.is_none();
            let pairs = documents[first..].iter().zip(&outcome.sequences);
            equal.extend(pairs.map(|(document, written)| right(document, &written.tokens)));
            // Where ranks are processes, a signal to one of them must not make it leave the others.
            if self.launch.world.is_none() && self.signals.has_come() {
                bar.finish_and_clear();
                return Err(self.stopped(&format!("while the {name} run's model wrote")));
            }
        }
        bar.finish_and_clear();
        Ok((equal, ledger_equal))
    }

    fn bar(&self, steps: u64, name: &str) -> ProgressBar {
        let style = ProgressStyle::with_template("{prefix:18} {bar:30} {pos}/{len} {msg} (eta {eta})");
        ProgressBar::with_draw_target(Some(steps), self.launch.progress())
            .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
            .with_prefix(name.to_owned())
    }

    fn stopped(&self, when: &str) -> Failure {
        let message = format!("by a signal, {when}; nothing is known of what it has memorised");
        Failure::Stopped(Stopped { signal: self.signals.which(), message })
    }
}

/// Tokens at the end of a document that were written as they are.
fn right(document: &[u32], written: &[u32]) -> usize {
    let end = &document[document.len() - written.len()..];
    end.iter().zip(written).filter(|(token, written)| token == written).count()
}

/// The model must read tokens, and have room for what is to be written.
///
/// # Errors
/// A model of patches; more tokens to write than a document leaves for its beginning; a hash of more tokens than there are.
pub fn check(
    model: &Model,
    seq_len: usize,
    generate_tokens: usize,
    losses: &[Option<Goldfish>],
) -> Result<(), Failure> {
    if model.patch_values.is_some() {
        return Err(Failure::usage(format!(
            "{} reads patches of numbers, not text: it writes none; use a model with a vocabulary",
            model.name
        )));
    }
    if generate_tokens >= seq_len {
        return Err(Failure::usage(format!(
            "--generate-tokens {generate_tokens}: documents have {seq_len} tokens, and the model is given the beginning of \
             them; use {} at most, or a longer --seq-len",
            seq_len - 1
        )));
    }
    match losses.iter().flatten().find(|goldfish| goldfish.context() > seq_len) {
        Some(goldfish) => Err(Failure::usage(format!(
            "--goldfish {goldfish}: documents of {seq_len} tokens have none with {} before it; use an h of {seq_len} at most, \
             or a longer --seq-len",
            goldfish.context()
        ))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn right_tokens_are_counted_at_the_end() {
        let document = [1, 2, 3, 4, 5, 6];
        for (written, expected) in [(&[4, 5, 6][..], 3), (&[4, 9, 6], 2), (&[3, 4, 5], 0), (&[6], 1)] {
            assert_eq!(right(&document, written), expected, "{written:?}");
        }
        let bucket = Bucket::new(4, &[3, 2, 0, 3], 3);
        assert_eq!(bucket, Bucket { epochs: 4, documents: 4, exact: 2, equal_share: 8.0 / 12.0 });
        assert_eq!(bucket.exact_share(), 0.5);
    }
}
