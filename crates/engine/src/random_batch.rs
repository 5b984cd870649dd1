//! Samples without data: for proofs and benches.

use quadrille_spec::{IGNORED, Model, RandomStream};

use crate::{EngineError, Samples};

/// A source of samples that depend on (seed, step, sequence, position) only, of the kind that the model reads.
pub fn random_batch(
    model: &Model,
    seed: u64,
    seq_len: usize,
) -> impl Fn(u64, usize, Samples) -> Result<(), EngineError> + Sync + use<> {
    let model = model.clone();
    move |step, first, samples| {
        fill_randomly(&model, seed, seq_len, step, first, samples);
        Ok(())
    }
}

/// One target token in so many is ignored.
const IGNORED_PART: u32 = 8;

/// What [`random_batch`] gives: tokens that follow one another, some of them no targets, or normal numbers.
pub fn fill_randomly(model: &Model, seed: u64, seq_len: usize, step: u64, first: usize, samples: Samples) {
    let stream = |purpose| RandomStream::new(seed, purpose).substream(step);
    match samples {
        Samples::Tokens { inputs, targets } => {
            let (stream, ignored) = (stream("random tokens"), stream("random ignored targets"));
            let sequences = inputs.chunks_mut(seq_len).zip(targets.chunks_mut(seq_len));
            for (offset, (inputs, targets)) in sequences.enumerate() {
                let start = ((first + offset) * (seq_len + 1)) as u64;
                let token = |at: usize| stream.below(start + at as u64, model.vocab as u64) as u32;
                for (at, (input, target)) in inputs.iter_mut().zip(targets).enumerate() {
                    (*input, *target) = (token(at), token(at + 1));
                    // A sequence keeps a target, however short it is.
                    if at > 0 && ignored.word(start + at as u64).is_multiple_of(IGNORED_PART) {
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
