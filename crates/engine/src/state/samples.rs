//! Samples that ranks read of a batch: tokens or patches, and targets.

use quadrille_spec::{Axis, IGNORED, PADDING};
use quadrille_step::{Layer, Operation, Scalar, Section, kind};
use quadrille_tensor::ContextPart;

use super::step_state::StepState;
use crate::communicators::Communicators;
use crate::{Backend, EngineError};

/// Whole sequences of a step's global batch that a [`BatchSource`] fills in.
#[derive(Debug)]
pub enum Samples<'a> {
    /// Of a model with a vocabulary: `[sequences, tokens]`.
    Tokens {
        /// Token ids; [`PADDING`] where there is no token.
        inputs: &'a mut [u32],
        /// The ids to be predicted; [`IGNORED`] ones do not count.
        targets: &'a mut [u32],
    },
    /// Of a model of patches: `[sequences, patches, values]`.
    Patches {
        /// Numbers.
        inputs: &'a mut [f64],
        /// The numbers to be predicted.
        targets: &'a mut [f64],
    },
}

impl<'a> Samples<'a> {
    /// The sequences one by one, of so many tokens or numbers each.
    pub fn sequences(self, elements: usize) -> Vec<Samples<'a>> {
        match self {
            Self::Tokens { inputs, targets } => {
                let pairs = inputs.chunks_mut(elements).zip(targets.chunks_mut(elements));
                pairs.map(|(inputs, targets)| Samples::Tokens { inputs, targets }).collect()
            }
            Self::Patches { inputs, targets } => {
                let pairs = inputs.chunks_mut(elements).zip(targets.chunks_mut(elements));
                pairs.map(|(inputs, targets)| Samples::Patches { inputs, targets }).collect()
            }
        }
    }

    /// Inputs and targets, for a source of tokens.
    ///
    /// # Errors
    /// The model reads patches.
    pub fn tokens(self) -> Result<(&'a mut [u32], &'a mut [u32]), EngineError> {
        match self {
            Self::Tokens { inputs, targets } => Ok((inputs, targets)),
            Self::Patches { .. } => Err(EngineError::OtherSamples { read: "patches", given: "tokens" }),
        }
    }

    /// Inputs and targets, for a source of patches.
    ///
    /// # Errors
    /// The model reads tokens.
    pub fn patches(self) -> Result<(&'a mut [f64], &'a mut [f64]), EngineError> {
        match self {
            Self::Patches { inputs, targets } => Ok((inputs, targets)),
            Self::Tokens { .. } => Err(EngineError::OtherSamples { read: "tokens", given: "patches" }),
        }
    }
}

/// Fills in sequences of a step's global batch, by logical index: (step, first sequence, samples).
pub type BatchSource<'a> = dyn Fn(u64, usize, Samples<'_>) -> Result<(), EngineError> + Sync + 'a;

/// Inputs and targets of this rank's part of a microbatch; those that the model does not read are empty.
#[derive(Debug, Default)]
pub struct OwnSamples {
    /// Token ids `[rows]`: inputs, and what is to be predicted.
    pub tokens: [Vec<u32>; 2],
    /// Numbers `[rows * values]`: inputs, and what is to be predicted.
    pub patches: [Vec<f64>; 2],
    /// `[rows]` of a model with experts: 1 for a token or patch, 0 for padding, whose token id is 0. Else empty.
    pub present: Vec<u32>,
}

/// Tokens of a global batch, and its targets that are not ignored.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct BatchCounts {
    pub tokens: f64,
    pub targets: f64,
}

/// Samples of this rank's part of a microbatch.
pub(crate) struct MicrobatchSamples<B: Backend> {
    /// The step and microbatch that they are of.
    pub of: Option<(u64, usize)>,
    /// As they were read, where the device has memory of its own; else what the next ones are read into.
    staged: OwnSamples,
    /// Where kernels read them.
    pub loaded: B::Samples,
}

impl<B: Backend> Default for MicrobatchSamples<B> {
    fn default() -> Self {
        Self { of: None, staged: OwnSamples::default(), loaded: B::Samples::default() }
    }
}

impl<B: Backend> StepState<'_, B> {
    /// Reads the samples of the microbatch, if the section looks at them.
    pub fn load_samples(
        &mut self,
        communicators: &Communicators<'_>,
        backend: &B,
        section: &Section,
        batch: &BatchSource,
    ) -> Result<(), EngineError> {
        let now = Some((self.number, self.microbatch));
        let counts = self.microbatch == 0 && self.counts.is_none();
        if counts && section.ops.iter().any(|op| counts_batch(&op.operation)) {
            self.counts = Some(self.count_batch(communicators, batch)?);
        }
        if self.samples.of == now || !section.ops.iter().any(|op| op.operation.reads_samples()) {
            return Ok(());
        }
        let step = self.number;
        let first = self.first_sequence();
        let program = self.rank.program;
        let part = self.rank.context_part();
        let rows = [program.layout.rows(), program.layout.seq_len];
        let there = self.counted_sequences();
        let routes = program.model.has_experts();
        let OwnSamples { tokens, patches, present } = &mut self.samples.staged;
        match program.model.patch_values {
            None => {
                communicators.enter(Layer::Embedding, "read tokens")?;
                let fill =
                    |inputs: &mut [u32], targets: &mut [u32]| batch(step, first, Samples::Tokens { inputs, targets });
                read(tokens, rows, 1, part, there, [PADDING, IGNORED], fill)?;
                let [inputs, _] = tokens;
                if routes {
                    present.clear();
                    present.extend(inputs.iter().map(|token| u32::from(*token != PADDING)));
                }
                inputs.iter_mut().filter(|token| **token == PADDING).for_each(|token| *token = 0);
                check_tokens(tokens, program.model.vocab)?;
            }
            Some(values) => {
                communicators.enter(Layer::Embedding, "read patches")?;
                let fill =
                    |inputs: &mut [f64], targets: &mut [f64]| batch(step, first, Samples::Patches { inputs, targets });
                read(patches, rows, values, part, there, [0.0; 2], fill)?;
                if routes {
                    let own = there * part.tokens(rows[1]);
                    present.clear();
                    present.extend((0..rows[0]).map(|row| u32::from(row < own)));
                }
            }
        }
        backend.load_samples(&mut self.samples.staged, &mut self.samples.loaded)?;
        self.samples.of = now;
        Ok(())
    }

    /// Counts the tokens and targets of this rank's sequences in all microbatches of the step; where ranks along context
    /// share sequences, its own rows.
    fn count_batch(&self, communicators: &Communicators<'_>, batch: &BatchSource) -> Result<BatchCounts, EngineError> {
        communicators.enter(Layer::Embedding, "count tokens")?;
        let layout = &self.rank.program.layout;
        let part = self.rank.context_part();
        let sequences = layout.microbatch / layout.grid.size(Axis::Z);
        let mut own: [Vec<u32>; 2] = Default::default();
        let mut counts = BatchCounts { tokens: 0.0, targets: 0.0 };
        for microbatch in 0..layout.microbatches() {
            let first = self.rank.first_sequence(microbatch);
            let fill = |inputs: &mut [u32], targets: &mut [u32]| {
                batch(self.number, first, Samples::Tokens { inputs, targets })
            };
            let rows = [layout.rows(), layout.seq_len];
            read(&mut own, rows, 1, part, sequences, [PADDING, IGNORED], fill)?;
            let [inputs, targets] = &own;
            counts.tokens += inputs.iter().filter(|token| **token != PADDING).count() as f64;
            counts.targets += targets.iter().filter(|target| **target != IGNORED).count() as f64;
        }
        Ok(counts)
    }
}

/// A token outside the vocabulary would be a row of zeros and no target: plausible numbers, all wrong.
fn check_tokens([inputs, targets]: &[Vec<u32>; 2], vocab: usize) -> Result<(), EngineError> {
    let targets = targets.iter().filter(|target| **target != IGNORED);
    match inputs.iter().chain(targets).find(|token| **token as usize >= vocab) {
        Some(token) => Err(EngineError::UnknownToken { token: *token, vocab }),
        None => Ok(()),
    }
}

/// True if an operation sums the counts of the batch over ranks.
fn counts_batch(operation: &Operation) -> bool {
    matches!(operation, Operation::ReduceScalar(kind::ReduceScalar { scalar: Scalar::Batch, .. }))
}

/// Reads `there` whole sequences and keeps, of each, the rows of `part`; `rows` are kept in all, of sequences of `seq_len`.
/// Sequences that are not there have the inputs and targets `missing`.
fn read<E: Copy + Default>(
    own: &mut [Vec<E>; 2],
    [rows, seq_len]: [usize; 2],
    width: usize,
    part: ContextPart,
    there: usize,
    missing: [E; 2],
    fill: impl FnOnce(&mut [E], &mut [E]) -> Result<(), EngineError>,
) -> Result<(), EngineError> {
    own.iter_mut().for_each(|own| own.resize(rows * width, E::default()));
    let fill = |inputs: &mut [E], targets: &mut [E]| {
        let (inputs, no_inputs) = inputs.split_at_mut(there * seq_len * width);
        let (targets, no_targets) = targets.split_at_mut(there * seq_len * width);
        no_inputs.fill(missing[0]);
        no_targets.fill(missing[1]);
        if there == 0 { Ok(()) } else { fill(inputs, targets) }
    };
    if part == ContextPart::WHOLE {
        let [inputs, targets] = own;
        return fill(inputs, targets);
    }
    let mut whole = [(); 2].map(|()| vec![E::default(); rows * part.parts * width]);
    let [inputs, targets] = &mut whole;
    fill(inputs, targets)?;
    for (own, whole) in own.iter_mut().zip(&whole) {
        let sequences = own.chunks_exact_mut(part.tokens(seq_len) * width).zip(whole.chunks_exact(seq_len * width));
        for (own, whole) in sequences {
            for (token, own) in own.chunks_exact_mut(width).enumerate() {
                own.copy_from_slice(&whole[part.position(token, seq_len) * width..][..width]);
            }
        }
    }
    Ok(())
}
