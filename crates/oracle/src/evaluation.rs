//! The mean loss over several batches.

use quadrille_spec::{IGNORED, Model};

use crate::transformer::loss;
use crate::{Batch, Decisions, Samples, Tensors};

/// The mean loss, without dropout, over all targets of all batches that are not ignored, or over all numbers of all
/// patches, and how many there are: not a number and 0 if there are none.
///
/// # Panics
/// As [`crate::loss_and_gradients`].
pub fn mean_loss<'a>(model: &Model, parameters: &Tensors, batches: impl Iterator<Item = Batch<'a>>) -> (f64, u64) {
    mean(batches.map(|batch| (loss(model, parameters, &batch, None), targets(&batch))))
}

/// As [`mean_loss`], where experts are chosen as the decisions of each batch say.
///
/// # Panics
/// As [`crate::objective`].
pub fn mean_loss_with<'a>(
    model: &Model,
    parameters: &Tensors,
    batches: impl Iterator<Item = (Batch<'a>, &'a Decisions)>,
) -> (f64, u64) {
    mean(batches.map(|(batch, decisions)| (loss(model, parameters, &batch, Some(decisions)), targets(&batch))))
}

/// Of the mean losses of batches, each of so many targets.
fn mean(losses: impl Iterator<Item = (f64, u64)>) -> (f64, u64) {
    let counted: Vec<(f64, u64)> = losses.filter(|(_, targets)| *targets > 0).collect();
    let all: u64 = counted.iter().map(|(_, targets)| targets).sum();
    let share = |(loss, targets): &(f64, u64)| loss * (*targets as f64 / all as f64);
    (if all == 0 { f64::NAN } else { counted.iter().map(share).sum() }, all)
}

/// How many targets of the batch count.
fn targets(batch: &Batch) -> u64 {
    match batch.samples {
        Samples::Tokens { targets, .. } => targets.iter().filter(|target| **target != IGNORED).count() as u64,
        Samples::Patches { targets, .. } => targets.len() as u64,
    }
}
