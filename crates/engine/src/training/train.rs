//! A training run.

use std::sync::Mutex;

use quadrille_comm::{JobOptions, run_job};
use quadrille_spec::{Ledger, RankLedger, Routing};
use quadrille_step::{StepProgram, Verdict};

use super::rank_run;
use crate::{
    Backend, BatchSource, EngineError, Predictions, RankReport, RunEvent, TrainOptions, TrainOutcome, Validation,
};

/// Trains up to the last step. Of a run that has done it already, what follows the last step is done: the validation.
/// `on_event` is told on rank 0 what happens, and may stop the job by an error. Where ranks are
/// processes, all of them call this alike, `on_event` is called in rank 0's, and all get the whole outcome.
///
/// # Errors
/// The first rank's failure, with its layer and operation; a loss that cannot be used; a checkpoint that cannot be read, or
/// not written, where the run is to stop then.
pub fn train<B: Backend>(
    program: &StepProgram,
    options: &TrainOptions,
    batch: &BatchSource,
    validation: Option<&Validation>,
    on_event: &mut (dyn FnMut(RunEvent) -> Result<(), EngineError> + Send),
) -> Result<TrainOutcome, EngineError> {
    let routing = Routing::of(&program.layout, &options.collectives);
    let predictions = Predictions::new(program, &routing);
    let on_event = Mutex::new(on_event);
    let ranks = program.layout.grid.ranks();
    let world = options.world.clone();
    let job = JobOptions { timeout: options.timeout, routing, world, ..JobOptions::new(ranks) };
    let ranks = run_job(&job, |context| {
        let mut tell = |event: RunEvent| match on_event.lock() {
            _ if context.rank() != 0 => Ok(()),
            Ok(mut tell) => tell(event),
            Err(poisoned) => poisoned.into_inner()(event),
        };
        Ok(rank_run::run::<B>(program, options, batch, validation, context, &predictions, &mut tell)?)
    })?;
    let of_ranks = |of: fn(&RankReport) -> &Option<RankLedger>| {
        let ranks: Option<Vec<RankLedger>> = ranks.iter().map(|rank| of(rank).clone()).collect();
        ranks.map(|ranks| Ledger { ranks })
    };
    let [predicted, counted] = [of_ranks(|rank| &rank.predicted), of_ranks(|rank| &rank.ledger)];
    let difference = ranks.iter().find_map(|rank| rank.difference.clone());
    let records = ranks[0].records.clone();
    let predicted = predicted.unwrap_or_else(|| predictions.after(Verdict::Kept).clone());
    Ok(TrainOutcome { records, predicted, counted, difference, ranks })
}
