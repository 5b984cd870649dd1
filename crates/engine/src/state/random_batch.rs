//! Samples without data: for proofs and benches.

use quadrille_spec::{IGNORED, Model, PADDING, RandomStream};

use crate::{EngineError, Samples};

/// A source of samples that depend on (seed, step, sequence, position) only, of the kind that the model reads. Some sequences of
/// tokens for models with experts end in padding.
pub fn random_batch(
    model: &Model,
    seed: u64,
    seq_len: usize,
) -> impl Fn(u64, usize, Samples) -> Result<(), EngineError> + Sync + use<> {
    source(model, seed, seq_len, true)
}

/// [`random_batch`] without padding: measured times are those of as many tokens as the layout has.
pub fn random_full_batch(
    model: &Model,
    seed: u64,
    seq_len: usize,
) -> impl Fn(u64, usize, Samples) -> Result<(), EngineError> + Sync + use<> {
    source(model, seed, seq_len, false)
}

fn source(
    model: &Model,
    seed: u64,
    seq_len: usize,
    pads: bool,
) -> impl Fn(u64, usize, Samples) -> Result<(), EngineError> + Sync + use<> {
    let model = model.clone();
    move |step, first, samples| {
        fill(&model, seed, seq_len, step, first, pads, samples);
        Ok(())
    }
}

/// Targets per ignored one.
const IGNORED_PART: u32 = 8;
/// Sequences per one that ends in padding, which routers of experts have to leave out.
const PADDED_PART: u32 = 4;

/// Tokens of a sequence before its padding. Attention that is not causal would read padding.
fn padded_length(model: &Model, stream: &RandomStream, sequence: u64, seq_len: usize) -> usize {
    let can_pad = model.has_experts() && model.blocks.kinds().iter().all(|block| block.attention.causal);
    if can_pad && stream.word(2 * sequence).is_multiple_of(PADDED_PART) {
        1 + stream.below(2 * sequence + 1, seq_len as u64) as usize
    } else {
        seq_len
    }
}

/// Samples of [`random_batch`]: tokens that follow one another, some of them no targets, some sequences with padding at their end,
/// or normal numbers.
pub fn fill_randomly(model: &Model, seed: u64, seq_len: usize, step: u64, first: usize, samples: Samples) {
    fill(model, seed, seq_len, step, first, true, samples);
}

fn fill(model: &Model, seed: u64, seq_len: usize, step: u64, first: usize, pads: bool, samples: Samples) {
    let stream = |purpose| RandomStream::new(seed, purpose).substream(step);
    match samples {
        Samples::Tokens { inputs, targets } => {
            let padded = stream("random padding");
            let ignored = stream("random ignored targets");
            let stream = stream("random tokens");
            let sequences = inputs.chunks_mut(seq_len).zip(targets.chunks_mut(seq_len));
            for (offset, (inputs, targets)) in sequences.enumerate() {
                let start = ((first + offset) * (seq_len + 1)) as u64;
                let length =
                    if pads { padded_length(model, &padded, (first + offset) as u64, seq_len) } else { seq_len };
                let token = |at: usize| stream.below(start + at as u64, model.vocab as u64) as u32;
                for (at, (input, target)) in inputs.iter_mut().zip(targets).enumerate() {
                    (*input, *target) = (token(at), token(at + 1));
                    // A sequence keeps a target, however short it is.
                    if at > 0 && ignored.word(start + at as u64).is_multiple_of(IGNORED_PART) {
                        *target = IGNORED;
                    }
                    if at >= length {
                        *input = PADDING;
                        *target = IGNORED;
                    }
                }
            }
        }
        Samples::Patches { inputs, targets } => {
            let start = (first * seq_len * model.patch_values.unwrap_or(1)) as u64;
            for (purpose, numbers) in [("random patches", inputs), ("random target patches", targets)] {
                let stream = stream(purpose);
                numbers.iter_mut().zip(start..).for_each(|(number, at)| *number = stream.normal(at));
            }
        }
    }
}
