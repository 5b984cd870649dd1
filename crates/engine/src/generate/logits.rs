//! The logits of every position of a sequence.

use quadrille_comm::run_job;
use quadrille_spec::{Layout, Model, Routing};
use quadrille_step::{Generation, Purpose, StepProgram, Wanted};
use quadrille_tensor::Element;

use super::{Check, Pass};
use crate::{Backend, EngineError, ForwardOptions, Weights};

/// The logits of a sequence.
#[derive(Debug, Clone, PartialEq)]
pub struct Logits<T> {
    /// `[positions, vocabulary]`, without padding.
    pub values: Vec<T>,
    /// Whether predicted and counted ledgers were equal, as integers, on every rank in every pass.
    pub ledger_equal: bool,
}

/// The program for the logits of `positions` tokens, at most `chunk` of them in a pass, on the ranks of `layout` as
/// [`Layout::for_generation`] says.
///
/// # Errors
/// No tokens, or more than the model has positions; a layout that does not fit the model.
pub fn logits_program(
    model: &Model,
    layout: &Layout,
    positions: usize,
    chunk: usize,
) -> Result<StepProgram, EngineError> {
    if positions == 0 || positions > model.seq_len || chunk == 0 {
        let rule = format!("{positions} tokens, {chunk} in a pass, for a model of {} positions", model.seq_len);
        return Err(EngineError::Generation { rule, remedy: "give at least 1 token, and at most as many".to_owned() });
    }
    // Chunks as equal as possible: the last one is not padded to a whole one.
    let chunk = positions.div_ceil(positions.div_ceil(chunk));
    let generation = Generation { capacity: positions, wanted: Wanted::Every };
    Ok(StepProgram::generation(model, &layout.for_generation(model, 1, chunk)?, generation)?)
}

/// The logits that the given weights have for a sequence of tokens; `program` is [`logits_program`] of as many. Where
/// ranks are processes, all of them call this alike and get the logits.
///
/// # Errors
/// Another number of tokens than the program's, or unknown ones; a rank's failure.
pub fn logits<B: Backend>(
    program: &StepProgram,
    run: &ForwardOptions,
    weights: &Weights,
    tokens: &[u32],
) -> Result<Logits<B::Real>, EngineError> {
    let model = &program.model;
    let layout = &program.layout;
    let chunk = layout.seq_len;
    let positions = match program.stages[0].purpose {
        Purpose::Generation(Generation { capacity, wanted: Wanted::Every }) => capacity,
        _ => 0,
    };
    if tokens.len() != positions {
        let rule = format!("{} tokens for a program of {positions}", tokens.len());
        return Err(EngineError::Generation { rule, remedy: "give as many".to_owned() });
    }
    let vocab = layout.padded_vocab(model);
    let routing = Routing::of(layout, &run.collectives);
    let ranks = run_job(&run.job(program), |context| {
        let mut engine = weights.engine::<B>(program, context, run.threads)?;
        let mut check = Check::new(program, context.rank(), &routing);
        let mut all: Vec<f64> = Vec::new();
        for first in (0..positions).step_by(chunk) {
            let pass = pass_of(tokens, first, chunk, layout.global_batch);
            engine.run_pass(&pass, positions)?;
            check.pass(&mut engine, &pass);
            // f64 holds every f32: the numbers leave the process as they are.
            if context.rank() == 0 {
                engine.logits_of(0, &mut |logits| {
                    let rows = logits.chunks_exact(vocab).take(positions - first);
                    all.extend(rows.flat_map(|row| &row[..model.vocab]).map(|logit| logit.to_f64()));
                })?;
            }
        }
        Ok((all, check.difference.is_none()))
    })?;
    let ledger_equal = ranks.iter().all(|(_, equal)| *equal);
    Ok(Logits { values: ranks[0].0.iter().copied().map(B::Real::from_f64).collect(), ledger_equal })
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
