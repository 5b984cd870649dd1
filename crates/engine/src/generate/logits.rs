//! The logits of every position of a sequence.

use quadrille_comm::run_job;
use quadrille_spec::{Layout, Model};
use quadrille_step::{Generation, StepProgram, Wanted};

use super::{GenerateOptions, Pass};
use crate::{EngineError, ForwardOptions, Real, Weights};

/// The logits `[positions, vocabulary]` that the given weights have for a sequence of tokens, on the ranks of `layout` as
/// [`Layout::for_generation`] says. Where ranks are processes, all of them call this alike and get the logits.
///
/// # Errors
/// No tokens, unknown ones, or more than the model has positions; a rank's failure.
pub fn logits<T: Real>(
    model: &Model,
    layout: &Layout,
    run: &ForwardOptions,
    weights: &Weights,
    tokens: &[u32],
) -> Result<Vec<T>, EngineError> {
    if tokens.is_empty() || tokens.len() > model.seq_len {
        let rule = format!("{} tokens for a model of {} positions", tokens.len(), model.seq_len);
        return Err(EngineError::Generation { rule, remedy: "give at least 1 token, and at most as many".to_owned() });
    }
    let chunk = tokens.len().div_ceil(tokens.len().div_ceil(GenerateOptions::PROMPT_CHUNK));
    let generation = Generation { capacity: tokens.len(), wanted: Wanted::Every };
    let program = StepProgram::generation(model, &layout.for_generation(model, 1, chunk)?, generation)?;
    let vocab = program.layout.padded_vocab(model);
    let ranks = run_job(&run.job(&program), |context| {
        let mut engine = weights.engine::<T>(&program, context, run.threads)?;
        let mut all: Vec<f64> = Vec::new();
        for first in (0..tokens.len()).step_by(chunk) {
            let pass = pass_of(tokens, first, chunk, program.layout.global_batch);
            engine.run_pass(&pass, tokens.len())?;
            // f64 holds every f32: the numbers leave the process as they are.
            if context.rank() == 0 {
                let rows = engine.logits_of(0)?.chunks_exact(vocab).take(tokens.len() - first);
                all.extend(rows.flat_map(|row| &row[..model.vocab]).map(|logit| logit.to_f64()));
            }
        }
        Ok(all)
    })?;
    Ok(ranks.into_iter().take(1).flatten().map(T::from_f64).collect())
}

/// The tokens from `first` on, in all sequences of a pass.
fn pass_of(tokens: &[u32], first: usize, chunk: usize, sequences: usize) -> Pass {
    let mut own = tokens[first..(first + chunk).min(tokens.len())].to_vec();
    own.resize(chunk, 0);
    Pass {
        tokens: own.repeat(sequences),
        starts: vec![first; sequences],
        newest: vec![0; sequences],
        draws: Vec::new(),
    }
}
