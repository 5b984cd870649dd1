//! A run on the buckets, and what it has learned by heart.

use std::path::Path;
use std::time::Instant;

use quadrille_checkpoint::{About, Checkpoint, Folder};
use quadrille_data::{DataError, Goldfish};
use quadrille_engine::{
    EngineError, ForwardOptions, GenerateOptions, GenerationPrograms, OnSaveFailure, RunEvent, Samples, Saving,
    TrainOptions, Weights, generate_on_cpu, train_on_cpu,
};
use quadrille_run::{Processes, Signals};
use quadrille_spec::IGNORED;
use quadrille_step::StepProgram;

use crate::corpus::Corpus;
use crate::order::{Order, Sequence};
use crate::progress::OnProgress;
use crate::{Bucket, Learned, Part, Progress, StudyError};

/// Most documents that are continued at once: each has a cache of keys and values.
const AT_ONCE: usize = 64;

/// What all runs of a study share.
pub struct Learning<'a> {
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
    pub processes: &'a Processes,
    pub signals: Option<&'a Signals>,
}

impl Learning<'_> {
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
    pub fn run(
        &self,
        goldfish: Option<Goldfish>,
        name: &'static str,
        folder: &Path,
        on_progress: OnProgress,
    ) -> Result<Learned, StudyError> {
        let start = Instant::now();
        let (losses, trained_equal) = self.train(goldfish, name, folder, on_progress)?;
        let trained = Instant::now();
        let checkpoint = Folder::new(folder).newest()?;
        let checkpoint = checkpoint.ok_or_else(|| StudyError::NoCheckpoint { folder: folder.display().to_string() })?;
        let (equal, generated_equal) = self.recall(checkpoint, name, on_progress)?;
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
    fn train(
        &self,
        goldfish: Option<Goldfish>,
        name: &'static str,
        folder: &Path,
        on_progress: OnProgress,
    ) -> Result<(Vec<f64>, bool), StudyError> {
        let saving = Saving {
            folder: folder.to_owned(),
            every: None,
            keep: 1,
            on_failure: OnSaveFailure::Stop,
            about: self.about.clone(),
        };
        let stop = self.signals.map(|signals| signals.stop.clone());
        let options = TrainOptions { saving: Some(saving), stop, ..self.train.clone() };
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
        let begun = Progress { run: name, part: Part::Training, done: 0, of: options.steps, loss: None };
        on_progress(&begun);
        let mut on_event = |event: RunEvent| {
            if let RunEvent::Step(record) = event {
                on_progress(&Progress { done: record.step, loss: Some(record.loss), ..begun });
            }
            Ok(())
        };
        let outcome = train_on_cpu(self.program, &options, &batch, None, &mut on_event)?;
        let done = outcome.records.len() as u64;
        if done < options.steps {
            return Err(self.stopped(format!("after step {done} of {} of the {name} run", options.steps)));
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
            // Such orders are refused before.
            (Sequence::Other(_), None) => return Err(EngineError::of_callback(DataError::NoSamples { present: 0 })),
        }
        Ok(())
    }

    /// The right tokens of every document's end, and whether the ledgers were equal.
    fn recall(
        &self,
        checkpoint: Checkpoint,
        name: &'static str,
        on_progress: OnProgress,
    ) -> Result<(Vec<usize>, bool), StudyError> {
        let weights = Weights::Checkpoint(checkpoint.into());
        let documents = &self.corpus.documents;
        let of = (documents.len() * self.generate_tokens) as u64;
        let mut written = Progress { run: name, part: Part::Writing, done: 0, of, loss: None };
        on_progress(&written);
        let mut equal = Vec::with_capacity(documents.len());
        let mut ledger_equal = true;
        for first in (0..documents.len()).step_by(AT_ONCE) {
            let (programs, prompts) = self.programs(first)?;
            let mut count = |_: usize, _: u32| {
                written.done += 1;
                on_progress(&written);
                Ok(())
            };
            let outcome = generate_on_cpu(&programs, &self.options(), self.forward, &weights, &prompts, &mut count)?;
            ledger_equal &= outcome.difference.is_none();
            let pairs = documents[first..].iter().zip(&outcome.sequences);
            equal.extend(pairs.map(|(document, written)| right(document, &written.tokens)));
            // Where ranks are processes, a signal to one of them must not make it leave the others.
            if self.processes.world.is_none() && self.signals.is_some_and(Signals::has_come) {
                return Err(self.stopped(format!("while the {name} run's model wrote")));
            }
        }
        Ok((equal, ledger_equal))
    }

    fn stopped(&self, when: String) -> StudyError {
        StudyError::Stopped { signal: self.signals.map(Signals::which), when }
    }
}

/// Tokens at the end of a document that were written as they are.
fn right(document: &[u32], written: &[u32]) -> usize {
    let end = &document[document.len() - written.len()..];
    end.iter().zip(written).filter(|(token, written)| token == written).count()
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
    }
}
