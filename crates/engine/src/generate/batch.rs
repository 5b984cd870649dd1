//! The sequences of a run: which tokens a pass has, and what is drawn after it.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::sampler::Sampler;
use super::{GenerateOptions, Pass};
use crate::{EngineError, Real};

/// Why a sequence has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Finish {
    /// It has as many tokens as were asked for.
    MaxTokens,
    /// The model has drawn the token that stops.
    Stop,
    /// It fills the model's positions.
    ModelLength,
}

/// What follows a prompt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GeneratedSequence {
    /// The tokens behind the prompt.
    pub tokens: Vec<u32>,
    /// Why there are no more.
    pub finish: Finish,
}

/// A sequence on its way.
struct Sequence {
    /// The prompt and what was drawn.
    tokens: Vec<u32>,
    prompt: usize,
    finish: Option<Finish>,
}

/// All sequences, and copies of the first where ranks need more.
pub(crate) struct Batch<'a> {
    sequences: Vec<Sequence>,
    /// Those of a pass.
    of_pass: usize,
    options: &'a GenerateOptions,
    sampler: Sampler,
    /// The model's positions.
    longest: usize,
}

impl<'a> Batch<'a> {
    /// Prompts as they come, in passes of `of_pass` sequences.
    pub fn new(prompts: &[Vec<u32>], options: &'a GenerateOptions, of_pass: usize, longest: usize) -> Self {
        let sequence = |prompt: &Vec<u32>| Sequence { tokens: prompt.clone(), prompt: prompt.len(), finish: None };
        let sequences = prompts.iter().map(sequence).collect();
        Self { sequences, of_pass, options, sampler: Sampler::new(options.sampling), longest }
    }

    /// The sequence that a place in a pass shows.
    fn shown(&self, place: usize) -> &Sequence {
        self.sequences.get(place).unwrap_or(&self.sequences[0])
    }

    /// The passes over the prompts, `chunk` tokens each. Behind the end of a prompt is padding.
    pub fn prompt_passes(&self, chunk: usize) -> Vec<Pass> {
        let longest = self.sequences.iter().map(|sequence| sequence.prompt).max().unwrap_or(0);
        let firsts = (0..longest).step_by(chunk);
        let pass = |first: usize| {
            let mut tokens = Vec::new();
            let mut starts = Vec::new();
            let mut newest = Vec::new();
            for place in 0..self.of_pass {
                let Sequence { tokens: all, prompt, .. } = self.shown(place);
                let start = first.min(*prompt);
                let end = (first + chunk).min(*prompt);
                tokens.extend(&all[start..end]);
                tokens.resize((place + 1) * chunk, 0);
                starts.push(start);
                newest.push((end - start).saturating_sub(1));
            }
            let ends = |sequence: &usize| (first + 1..=first + chunk).contains(&self.sequences[*sequence].prompt);
            Pass { tokens, starts, newest, draws: (0..self.sequences.len()).filter(ends).collect() }
        };
        firsts.map(pass).collect()
    }

    /// The newest token of each sequence, while any goes on.
    pub fn next_pass(&self) -> Option<Pass> {
        let going = |sequence: &usize| self.sequences[*sequence].finish.is_none();
        let draws: Vec<usize> = (0..self.sequences.len()).filter(going).collect();
        if draws.is_empty() {
            return None;
        }
        let newest = |place: usize| {
            let sequence = self.shown(place);
            let last = sequence.tokens.len() - 1;
            (sequence.tokens[last], last)
        };
        let (tokens, starts) = (0..self.of_pass).map(newest).unzip();
        Some(Pass { tokens, starts, newest: vec![0; self.of_pass], draws })
    }

    /// Draws the tokens behind a pass, below `vocab`, from its logits, of each sequence `[vocabulary]` with padding.
    pub fn draw<T: Real>(
        &mut self,
        pass: &Pass,
        vocab: usize,
        logits: impl Fn(usize, &mut dyn FnMut(&[T])) -> Result<(), EngineError>,
        tell: &mut dyn FnMut(usize, u32) -> Result<(), EngineError>,
    ) -> Result<(), EngineError> {
        for &index in &pass.draws {
            let sequence = &mut self.sequences[index];
            let mut drawn = None;
            logits(index, &mut |logits| {
                let logits = known(&logits[..vocab], &self.options.holes);
                drawn = self.sampler.draw(&logits, index, sequence.tokens.len());
            })?;
            let Some(token) = drawn else {
                return Err(EngineError::Generation {
                    rule: format!("prompt {}: the model's logits are not numbers", index + 1),
                    remedy: "use weights of a run that has not diverged".to_owned(),
                });
            };
            if self.options.stop.contains(&token) {
                sequence.finish = Some(Finish::Stop);
                continue;
            }
            sequence.tokens.push(token);
            tell(index, token)?;
            if sequence.tokens.len() - sequence.prompt == self.options.max_tokens {
                sequence.finish = Some(Finish::MaxTokens);
            } else if sequence.tokens.len() == self.longest {
                sequence.finish = Some(Finish::ModelLength);
            }
        }
        Ok(())
    }

    /// What was drawn.
    pub fn finished(self) -> Vec<GeneratedSequence> {
        let end = |sequence: Sequence| GeneratedSequence {
            tokens: sequence.tokens[sequence.prompt..].to_vec(),
            finish: sequence.finish.unwrap_or(Finish::MaxTokens),
        };
        self.sequences.into_iter().map(end).collect()
    }
}

/// Logits of which `holes` are never drawn.
fn known<'l, T: Real>(logits: &'l [T], holes: &[u32]) -> Cow<'l, [T]> {
    let mut logits = Cow::Borrowed(logits);
    for hole in holes {
        if (*hole as usize) < logits.len() {
            logits.to_mut()[*hole as usize] = T::from_f64(f64::NEG_INFINITY);
        }
    }
    logits
}

#[cfg(test)]
mod tests {
    use super::super::Sampling;
    use super::*;

    #[test]
    fn prompts_of_unequal_length_pass_in_chunks_and_end_where_they_end() {
        let prompts = [vec![1, 2, 3, 4, 5], vec![6], vec![7, 8]];
        let options = GenerateOptions::greedy(2);
        let batch = Batch::new(&prompts, &options, 4, 10);
        let passes = batch.prompt_passes(2);
        let expected = [
            ([1, 2, 6, 0, 7, 8, 1, 2], [0, 0, 0, 0], [1, 0, 1, 1], vec![1, 2]),
            ([3, 4, 0, 0, 0, 0, 3, 4], [2, 1, 2, 2], [1, 0, 0, 1], vec![]),
            ([5, 0, 0, 0, 0, 0, 5, 0], [4, 1, 2, 4], [0, 0, 0, 0], vec![0]),
        ];
        for (pass, (tokens, starts, newest, draws)) in passes.into_iter().zip(expected) {
            let expected = Pass { tokens: tokens.to_vec(), starts: starts.to_vec(), newest: newest.to_vec(), draws };
            assert_eq!(pass, expected);
        }
    }

    #[test]
    fn holes_are_never_drawn() {
        for sampling in [Sampling::GREEDY, Sampling { temperature: 5.0, ..Sampling::GREEDY }] {
            let options = GenerateOptions { sampling, holes: vec![1, 3, 9], ..GenerateOptions::greedy(60) };
            let mut batch = Batch::new(&[vec![0]], &options, 1, 100);
            let mut told = Vec::new();
            let mut pass = Some(batch.prompt_passes(1).remove(0));
            while let Some(current) = pass {
                let tell = &mut |_, token| {
                    told.push(token);
                    Ok(())
                };
                batch
                    .draw(
                        &current,
                        5,
                        |_, see| {
                            see(&[0.0, 3.0, 1.0, 4.0, 0.5]);
                            Ok(())
                        },
                        tell,
                    )
                    .unwrap();
                pass = batch.next_pass();
            }
            assert!(told.len() == 60 && told.contains(&2) && !told.contains(&1) && !told.contains(&3), "{told:?}");
        }
    }

    #[test]
    fn sequences_end_alone() {
        let prompts = [vec![1, 2], vec![3, 1, 1]];
        let options = GenerateOptions { stop: vec![3, 4], ..GenerateOptions::greedy(3) };
        let mut batch = Batch::new(&prompts, &options, 2, 5);
        let mut told = Vec::new();
        // The first draws 0, 1 and then 4, which stops; the second 2, 2 and is as long as the model.
        let drawn = [[0, 1, 4], [2, 2, 2]];
        let first = batch.prompt_passes(3).remove(0);
        let mut passes = 0;
        let mut pass = Some(first);
        while let Some(current) = pass {
            let logits = drawn.map(|tokens| (0..5).map(|id| f64::from(id == tokens[passes])).collect::<Vec<_>>());
            let tell = &mut |sequence, token| {
                told.push((sequence, token));
                Ok(())
            };
            batch
                .draw(
                    &current,
                    5,
                    |sequence, see| {
                        see(&logits[sequence]);
                        Ok(())
                    },
                    tell,
                )
                .unwrap();
            passes += 1;
            pass = batch.next_pass();
        }
        assert_eq!(told, [(0, 0), (1, 2), (0, 1), (1, 2)]);
        let finished = batch.finished();
        assert_eq!(finished[0], GeneratedSequence { tokens: vec![0, 1], finish: Finish::Stop });
        assert_eq!(finished[1], GeneratedSequence { tokens: vec![2, 2], finish: Finish::ModelLength });
        assert_eq!(passes, 3);
    }
}
