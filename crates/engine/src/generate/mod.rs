//! Generation of tokens, and logits, in any layout: passes over the next tokens of every sequence, with keys and values
//! of those before them in a cache.
//!
//! Prompts pass in chunks; the passes after them have one token of each sequence. Every rank has the logits of the newest
//! positions and draws the same tokens from them.

mod batch;
mod logits;
mod plan;
mod sampler;

use std::sync::Mutex;
use std::time::Instant;

use quadrille_comm::{RankContext, run_job};
use quadrille_spec::{Axis, Layout, LedgerDifference, RankLedger, Routing};
use quadrille_step::{StepProgram, cached_attention_flops, predict_rank_routed};
use serde::{Deserialize, Serialize};

use crate::backend::{Positions, View};
use crate::state::borrower::Borrower;
use crate::state::rows::Rows;
use crate::{Backend, EngineError, ForwardOptions, RankEngine, Weights};
use batch::Batch;

pub use batch::{Finish, GeneratedSequence};
pub use logits::{Logits, logits, logits_program};
pub use plan::{GenerateOptions, GenerationPrograms};
pub use sampler::Sampling;

/// Where the tokens of a pass stand; empty for programs that do not generate.
#[derive(Debug, Default)]
pub(crate) struct PassPositions {
    /// By sequence of the global batch: its positions in the cache.
    pub starts: Vec<usize>,
    /// By sequence: which of the pass's tokens is its newest.
    pub newest: Vec<usize>,
    /// Positions that the cache has room for.
    pub capacity: usize,
}

impl PassPositions {
    /// The positions of local rows.
    pub fn of(&self, rows: Rows) -> Positions<'_> {
        Positions { rows, starts: &self.starts, capacity: self.capacity }
    }
}

/// The tokens of a pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pass {
    /// `[sequences, tokens]` of the global batch.
    pub tokens: Vec<u32>,
    /// As in [`PassPositions`].
    pub starts: Vec<usize>,
    pub newest: Vec<usize>,
    /// Sequences that get a token from this pass's logits.
    pub draws: Vec<usize>,
}

impl<B: Backend> RankEngine<'_, B> {
    /// Runs a pass; `capacity` positions are in the cache.
    pub(crate) fn run_pass(&mut self, pass: &Pass, capacity: usize) -> Result<(), EngineError> {
        let tokens = self.interpreter.rank.program.layout.seq_len;
        self.interpreter.step.pass =
            PassPositions { starts: pass.starts.clone(), newest: pass.newest.clone(), capacity };
        self.run_program(&|_, first, samples| {
            let (inputs, targets) = samples.tokens()?;
            inputs.copy_from_slice(&pass.tokens[first * tokens..][..inputs.len()]);
            targets.fill(0);
            Ok(())
        })
    }

    /// Lets `see` look at the logits of the wanted positions of a sequence `[positions, vocabulary]`, padding of the
    /// vocabulary left in.
    pub(crate) fn logits_of(&self, sequence: usize, see: &mut dyn FnMut(&[B::Real])) -> Result<(), EngineError> {
        let program = self.interpreter.rank.program;
        let Some(value) = program.logits else {
            see(&[]);
            return Ok(());
        };
        let all = self.interpreter.read(value)?;
        let per_sequence = all.elements() / program.layout.global_batch;
        let row = logits_place(&program.layout, sequence);
        self.interpreter.backend.download(all.part(row * per_sequence..(row + 1) * per_sequence), see)
    }
}

/// Where the logits of a sequence of the global batch lie among those of all: ranks along data and z one after the other,
/// each with its microbatches' sequences.
fn logits_place(layout: &Layout, sequence: usize) -> usize {
    let [data, z] = [Axis::Data, Axis::Z].map(|axis| layout.grid.size(axis));
    let share = layout.global_batch / data;
    let part = layout.microbatch / z;
    let of_data = sequence / share;
    let in_share = sequence % share;
    let microbatch = in_share / layout.microbatch;
    let in_pass = in_share % layout.microbatch;
    let rank = of_data * z + in_pass / part;
    (rank * layout.microbatches() + microbatch) * part + in_pass % part
}

/// Holds the counted ledgers of a program's passes against the predicted one.
struct Check<'a> {
    program: &'a StepProgram,
    predicted: RankLedger,
    difference: Option<LedgerDifference>,
    counted: Option<RankLedger>,
}

impl<'a> Check<'a> {
    fn new(program: &'a StepProgram, rank: usize, routing: &Routing) -> Self {
        Self { program, predicted: predict_rank_routed(program, rank, routing), difference: None, counted: None }
    }

    /// The prediction of a pass depends on what is in the cache.
    fn pass<B: Backend>(&mut self, engine: &mut RankEngine<'_, B>, pass: &Pass) {
        let rank = self.predicted.rank;
        let mut predicted = self.predicted.clone();
        let place = self.program.layout.grid.coordinate(rank);
        predicted.flops.attention_forward += cached_attention_flops(self.program.of_rank(rank), place, &pass.starts);
        let counted = engine.take_ledger();
        self.difference = self.difference.take().or_else(|| predicted.difference(&counted));
        self.counted = Some(counted);
    }
}

/// What a run gave.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GenerateOutcome {
    /// By prompt.
    pub sequences: Vec<GeneratedSequence>,
    /// Seconds from the begin of the first pass until every prompt had its first token.
    pub first_token_seconds: f64,
    /// Seconds of all passes.
    pub seconds: f64,
    /// Passes with one token of each sequence.
    pub decode_passes: u64,
    /// The first count of any pass that was not the predicted one, on this rank; in the outcome of a run on any rank.
    /// `None` where all were, as integers.
    pub difference: Option<LedgerDifference>,
    /// The counted ledger of the last pass, on this rank; in the outcome of a run on rank 0.
    pub ledger: Option<RankLedger>,
}

/// Continues the prompts. `on_token` sees in the process of rank 0 each token as it is drawn, with the number of its
/// prompt, and may stop the run by an error. Where ranks are processes, all of them call this alike and get the outcome.
///
/// Tokens depend on weights, prompts and options only, but for rounding: every layout draws the same.
///
/// # Errors
/// The first rank's failure, with its layer and operation.
pub fn generate<B: Backend>(
    programs: &GenerationPrograms,
    options: &GenerateOptions,
    run: &ForwardOptions,
    weights: &Weights,
    prompts: &[Vec<u32>],
    on_token: &mut (dyn FnMut(usize, u32) -> Result<(), EngineError> + Send),
) -> Result<GenerateOutcome, EngineError> {
    let on_token = Mutex::new(on_token);
    let ranks = run_job(&run.job(&programs.decode), |context| {
        let mut tell = |sequence: usize, token: u32| match on_token.lock() {
            _ if context.rank() != 0 => Ok(()),
            Ok(mut tell) => tell(sequence, token),
            Err(poisoned) => poisoned.into_inner()(sequence, token),
        };
        let mut engine = weights.engine::<B>(&programs.decode, context, run.threads)?;
        Ok(run_rank(programs, options, run, prompts, context, &mut engine, &mut tell)?)
    })?;
    let difference = ranks.iter().find_map(|rank| rank.difference.clone());
    Ok(GenerateOutcome { difference, ..ranks[0].clone() })
}

fn run_rank<'a, B: Backend>(
    programs: &'a GenerationPrograms,
    options: &GenerateOptions,
    run: &ForwardOptions,
    prompts: &[Vec<u32>],
    context: &RankContext,
    engine: &mut RankEngine<'a, B>,
    tell: &mut dyn FnMut(usize, u32) -> Result<(), EngineError>,
) -> Result<GenerateOutcome, EngineError> {
    let GenerationPrograms { prefill, decode } = programs;
    let layout = &decode.layout;
    let capacity = programs.capacity();
    let routing = Routing::of(layout, &run.collectives);
    let mut batch = Batch::new(prompts, options, layout.global_batch, decode.model.seq_len);
    let vocab = decode.model.vocab.min(options.known_tokens);
    let start = Instant::now();

    // The memory of the prompts' passes is given back before single tokens follow.
    let mut check = Check::new(prefill, context.rank(), &routing);
    let mut borrower = Borrower::new(engine, prefill)?;
    borrower.with(engine, |engine| {
        for pass in batch.prompt_passes(prefill.layout.seq_len) {
            engine.run_pass(&pass, capacity)?;
            check.pass(engine, &pass);
            batch.draw(&pass, vocab, |sequence, see| engine.logits_of(sequence, see), tell)?;
        }
        Ok(())
    })?;
    drop(borrower);
    let first_token_seconds = start.elapsed().as_secs_f64();
    let difference = check.difference;

    let mut check = Check::new(decode, context.rank(), &routing);
    let mut decode_passes = 0;
    while let Some(pass) = batch.next_pass() {
        engine.run_pass(&pass, capacity)?;
        check.pass(engine, &pass);
        batch.draw(&pass, vocab, |sequence, see| engine.logits_of(sequence, see), tell)?;
        decode_passes += 1;
    }
    Ok(GenerateOutcome {
        sequences: batch.finished(),
        first_token_seconds,
        seconds: start.elapsed().as_secs_f64(),
        decode_passes,
        difference: difference.or(check.difference),
        ledger: check.counted,
    })
}

#[cfg(test)]
mod tests {
    use quadrille_spec::{LayoutRequest, Model};

    use super::*;

    #[test]
    fn the_logits_of_every_sequence_have_a_place() {
        let model = Model::gpt(4, 12, 6, 10, 6);
        for (grid, sequences) in [("x=1", 3), ("z=2,data=2", 8), ("z=2,data=3,pipe=2", 24), ("pipe=4", 8)] {
            let request = LayoutRequest::new(grid.parse().unwrap(), 48);
            let layout = Layout::new(&model, &request).unwrap().for_generation(&model, sequences, 1).unwrap();
            let mut places: Vec<usize> = (0..sequences).map(|sequence| logits_place(&layout, sequence)).collect();
            places.sort_unstable();
            assert_eq!(places, (0..sequences).collect::<Vec<_>>(), "{grid}");
        }
    }
}
