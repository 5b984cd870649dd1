//! What ranks read of a batch: tokens or patches, and what is to be predicted.

use quadrille_comm::Label;
use quadrille_spec::{Axis, IGNORED, PADDING};
use quadrille_step::{Operation, Scalar, Section, kind};
use quadrille_tensor::ContextPart;

use crate::{Backend, EngineError, RankEngine};

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

impl<B: Backend> RankEngine<'_, B> {
    /// Reads the samples of the microbatch, if the section looks at them.
    pub(crate) fn load_samples(&mut self, section: &Section, batch: &BatchSource) -> Result<(), EngineError> {
        let now = Some((self.step, self.microbatch));
        if self.microbatch == 0
            && self.step_counts.is_none()
            && section.ops.iter().any(|op| counts_batch(&op.operation))
        {
            self.step_counts = Some(self.count_batch(batch)?);
        }
        if self.samples_of == now || !section.ops.iter().any(|op| op.operation.reads_samples()) {
            return Ok(());
        }
        let step = self.step;
        let first = self.first_sequence();
        let layout = &self.program.layout;
        let part = self.context_part();
        let rows = [layout.rows(), layout.seq_len];
        let there = self.counted_sequences();
        let routes = self.program.model.has_experts();
        let OwnSamples { tokens, patches, present } = &mut self.staged;
        match self.program.model.patch_values {
            None => {
                self.context.enter(Label::new("embedding"), "read tokens")?;
                let fill =
                    |inputs: &mut [u32], targets: &mut [u32]| batch(step, first, Samples::Tokens { inputs, targets });
                read(tokens, rows, 1, part, there, [PADDING, IGNORED], fill)?;
                let [inputs, _] = tokens;
                if routes {
                    present.clear();
                    present.extend(inputs.iter().map(|token| u32::from(*token != PADDING)));
                }
                inputs.iter_mut().filter(|token| **token == PADDING).for_each(|token| *token = 0);
                self.check_tokens()?;
            }
            Some(values) => {
                self.context.enter(Label::new("embedding"), "read patches")?;
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
        self.backend.load_samples(&mut self.staged, &mut self.samples)?;
        self.samples_of = now;
        Ok(())
    }

    /// Counts the tokens and targets of this rank's sequences in all microbatches of the step; of those that others along context have
    /// as well, its own rows.
    pub(crate) fn count_batch(&self, batch: &BatchSource) -> Result<BatchCounts, EngineError> {
        self.context.enter(Label::new("embedding"), "count tokens")?;
        let layout = &self.program.layout;
        let part = self.context_part();
        let sequences = layout.microbatch / layout.grid.size(Axis::Z);
        let mut own: [Vec<u32>; 2] = Default::default();
        let mut counts = BatchCounts { tokens: 0.0, targets: 0.0 };
        for microbatch in 0..layout.microbatches() {
            let first = self.first_sequence_of(microbatch);
            let fill =
                |inputs: &mut [u32], targets: &mut [u32]| batch(self.step, first, Samples::Tokens { inputs, targets });
            let rows = [layout.rows(), layout.seq_len];
            read(&mut own, rows, 1, part, sequences, [PADDING, IGNORED], fill)?;
            let [inputs, targets] = &own;
            counts.tokens += inputs.iter().filter(|token| **token != PADDING).count() as f64;
            counts.targets += targets.iter().filter(|target| **target != IGNORED).count() as f64;
        }
        Ok(counts)
    }

    /// A token outside the vocabulary would be a row of zeros and no target: plausible numbers, all wrong.
    fn check_tokens(&self) -> Result<(), EngineError> {
        let vocab = self.program.model.vocab;
        let [inputs, targets] = &self.staged.tokens;
        let targets = targets.iter().filter(|target| **target != IGNORED);
        match inputs.iter().chain(targets).find(|token| **token as usize >= vocab) {
            Some(token) => Err(EngineError::UnknownToken { token: *token, vocab }),
            None => Ok(()),
        }
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
