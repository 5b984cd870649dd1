//! What a stage executes: its actions, and where it posts receives and gets the buffers of its sends back.

use super::check::{ALL_PASSES, check_order, positions, training_passes};
use super::timing::{Timing, execute};
use super::{Action, Pass, Pipeline, ScheduleError};

/// A step of a stage. A message is sent at the end of the [`Step::Run`] that makes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    /// Post the receive of the message that the action needs. Does not wait.
    Post(Action),
    /// Wait for the action's message, if it needs one, run it and begin to send its message, if it has one.
    Run(Action),
    /// Wait until the send of the action's message is done: the receive is posted and the buffer free again.
    Release(Action),
}

/// The steps of every stage. A receive is posted before the run that precedes the one that needs it (that of the first
/// action at once), so that a send and the next receive are under way together; only actions with a message from another
/// stage have one. Every send is released exactly once.
///
/// Where a release stands is found by timing the lists with forward 1 and backward 2 (or 1, with 1 for weight gradients
/// of their own): directly after the first run after the sending one that ends later than the receive is posted, else
/// at the end. So a transfer has a whole run to hide behind, and with such times no stage waits for one.
///
/// Whatever times runs take, stages cannot wait for each other for ever: in that timing every release comes later than
/// the post that it waits for, and no run begins before what it waits for has ended, so the waits have no cycle. A
/// release at the very time of the post would not do: two stages that end runs at the same time could each wait for a
/// receive that the other posts next.
///
/// # Errors
///
/// As [`check`](super::check); the lists have weight gradients everywhere or nowhere.
pub fn steps(lists: &[Vec<Action>], pipeline: Pipeline) -> Result<Vec<Vec<Step>>, ScheduleError> {
    checked_steps(lists, pipeline, training_passes(lists))
}

/// [`steps`] of lists of forward passes alone.
///
/// # Errors
///
/// As [`steps`], if all other passes are left out of account.
pub fn forward_steps(lists: &[Vec<Action>], pipeline: Pipeline) -> Result<Vec<Vec<Step>>, ScheduleError> {
    checked_steps(lists, pipeline, &ALL_PASSES[..1])
}

fn checked_steps(lists: &[Vec<Action>], pipeline: Pipeline, passes: &[Pass]) -> Result<Vec<Vec<Step>>, ScheduleError> {
    check_order(lists, pipeline, passes)?;
    let splits = passes.contains(&Pass::WeightGradient);
    let times = |_, action: Action| if action.pass == Pass::Backward && !splits { 2.0 } else { 1.0 };
    let timing = execute(lists, pipeline, times, 0.0)?;
    let positions = positions(lists, pipeline);
    let stages = lists.iter().enumerate();
    Ok(stages.map(|(stage, list)| stage_steps(list, stage, pipeline, &timing, &positions)).collect())
}

fn stage_steps(list: &[Action], stage: usize, pipeline: Pipeline, timing: &Timing, positions: &[usize]) -> Vec<Step> {
    // Behind which run, by its index, and which.
    let mut released: Vec<(usize, Action)> = Vec::with_capacity(list.len());
    for (index, &action) in list.iter().enumerate() {
        let Some((receiver, receiving)) = pipeline.destination(stage, action) else { continue };
        // The receive of action j is posted when action j - 2 has ended.
        let posting = positions[pipeline.slot(receiver, receiving)].checked_sub(2);
        let posted = posting.map_or(0.0, |posting| timing.spans[receiver][posting].end);
        let following = &timing.spans[stage][index + 1..];
        let after = index + 1 + following.partition_point(|span| span.end <= posted);
        released.push((after.min(list.len() - 1), action));
    }
    // Those behind one run stay in their order.
    released.sort_by_key(|(after, _)| *after);
    let mut released = released.into_iter().peekable();
    let post = |action: &Action| pipeline.source(stage, *action).map(|_| Step::Post(*action));
    let mut steps = Vec::with_capacity(3 * list.len());
    steps.extend(list.first().and_then(post));
    for (index, &action) in list.iter().enumerate() {
        steps.extend(list.get(index + 1).and_then(post));
        steps.push(Step::Run(action));
        while let Some((_, action)) = released.next_if(|(after, _)| *after == index) {
            steps.push(Step::Release(action));
        }
    }
    steps
}
