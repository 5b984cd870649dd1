//! Proves the lists of a schedule executable, whatever made them.

use super::timing::execute;
use super::{Action, Pass, Pipeline, ScheduleError};

/// What a check finds out about lists that can be executed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checked {
    /// Per stage: most (microbatch, chunk) pairs whose forward has begun and whose last pass has not ended.
    pub in_flight: Vec<usize>,
    /// Per stage: most (microbatch, chunk) pairs whose forward has begun and whose backward has not ended. Differs from
    /// `in_flight` only where weight gradients are split off.
    pub before_backward: Vec<usize>,
}

/// Checks the lists of all stages, in the order in which each stage runs them:
///
/// - every pass of every microbatch and chunk is listed exactly once, on every stage; weight gradients if and only if
///   `splits_weight_gradients`;
/// - the passes of one kind on a chunk come in ascending order of microbatches, so that sums over microbatches do not
///   depend on the schedule;
/// - on its stage a backward comes after its forward, a weight gradient after its backward;
/// - a stage receives activations in the order in which the other stage sends them, and gradients likewise. Between
///   activations and gradients there is no order: two stages with several chunks send both to each other, and need a
///   channel for each;
/// - the stages, each running its list in order, all come to their ends. A pass begins when its message has arrived,
///   and a message arrives when it is sent and its receive is posted, which the receiver does before the pass that
///   precedes the one that needs it. The sender does not wait for that: [`steps`](super::steps) says where it does.
///
/// # Errors
///
/// The first rule that is broken, with stage and action.
pub fn check(
    lists: &[Vec<Action>],
    pipeline: Pipeline,
    splits_weight_gradients: bool,
) -> Result<Checked, ScheduleError> {
    let passes = if splits_weight_gradients { &ALL_PASSES[..] } else { &ALL_PASSES[..2] };
    let checked = check_order(lists, pipeline, passes)?;
    execute(lists, pipeline, |_, _| 1.0, 0.0)?;
    Ok(checked)
}

/// The passes of a microbatch, in their order.
pub(super) const ALL_PASSES: [Pass; 3] = [Pass::Forward, Pass::Backward, Pass::WeightGradient];

/// All rules of [`check`] but the last, of lists that have `passes`: the first one, two or three of [`ALL_PASSES`].
pub(super) fn check_order(
    lists: &[Vec<Action>],
    pipeline: Pipeline,
    passes: &[Pass],
) -> Result<Checked, ScheduleError> {
    pipeline.check_sizes()?;
    if lists.len() != pipeline.stages {
        return Err(ScheduleError::StageCount { found: lists.len(), stages: pipeline.stages });
    }
    let mut checked = Checked { in_flight: Vec::new(), before_backward: Vec::new() };
    for (stage, list) in lists.iter().enumerate() {
        let (in_flight, before_backward) = check_stage(list, stage, pipeline, passes)?;
        checked.in_flight.push(in_flight);
        checked.before_backward.push(before_backward);
    }
    check_messages(lists, pipeline)?;
    Ok(checked)
}

/// The passes that lists of a training step have: weight gradients of their own if any are listed.
pub(super) fn training_passes(lists: &[Vec<Action>]) -> &'static [Pass] {
    let splits = lists.iter().flatten().any(|action| action.pass == Pass::WeightGradient);
    if splits { &ALL_PASSES } else { &ALL_PASSES[..2] }
}

/// Where every action stands in its stage's list, by [`Pipeline::slot`]; 0 for those not listed.
pub(super) fn positions(lists: &[Vec<Action>], pipeline: Pipeline) -> Vec<usize> {
    let mut positions = vec![0; pipeline.slots()];
    for (stage, list) in lists.iter().enumerate() {
        for (position, action) in list.iter().enumerate() {
            positions[pipeline.slot(stage, *action)] = position;
        }
    }
    positions
}

/// One stage's list alone. Returns the stage's part of [`Checked`].
fn check_stage(
    list: &[Action],
    stage: usize,
    pipeline: Pipeline,
    passes: &[Pass],
) -> Result<(usize, usize), ScheduleError> {
    // Passes listed so far, by chunk and pass. As they come in order, this is also the next one's microbatch.
    let mut listed = vec![[0_usize; 3]; pipeline.chunks];
    let mut totals = [0_usize; 3];
    let mut in_flight = 0;
    let mut before_backward = 0;
    let ending = passes.last().copied().unwrap_or(Pass::Forward);
    for &action in list {
        check_known(action, stage, pipeline, passes)?;
        let counts = &mut listed[action.chunk];
        let expected = counts[action.pass as usize];
        if action.microbatch != expected {
            return Err(ScheduleError::OutOfOrder { stage, action, expected });
        }
        if let Some(pass) = continued(action.pass)
            && counts[pass as usize] <= action.microbatch
        {
            return Err(ScheduleError::TooEarly { stage, action, needed: Action { pass, ..action } });
        }
        counts[action.pass as usize] += 1;
        totals[action.pass as usize] += 1;
        if action.pass == Pass::Forward {
            let begun = totals[Pass::Forward as usize];
            in_flight = in_flight.max(if ending == Pass::Forward { 1 } else { begun - totals[ending as usize] });
            before_backward = before_backward.max(begun - totals[Pass::Backward as usize]);
        }
    }
    for &pass in passes {
        for (chunk, counts) in listed.iter().enumerate() {
            let microbatch = counts[pass as usize];
            if microbatch < pipeline.microbatches {
                return Err(ScheduleError::Missing { stage, action: Action { pass, microbatch, chunk } });
            }
        }
    }
    Ok((in_flight, before_backward))
}

/// The pass of the same microbatch and chunk whose result a pass needs on its stage.
fn continued(pass: Pass) -> Option<Pass> {
    match pass {
        Pass::Forward => None,
        Pass::Backward => Some(Pass::Forward),
        Pass::WeightGradient => Some(Pass::Backward),
    }
}

/// The pipeline has this action.
fn check_known(action: Action, stage: usize, pipeline: Pipeline, passes: &[Pass]) -> Result<(), ScheduleError> {
    let m = pipeline.microbatches;
    let v = pipeline.chunks;
    let rule = if action.microbatch >= m || action.chunk >= v {
        format!("microbatches are 0 to {} and chunks 0 to {}", m - 1, v - 1)
    } else if passes.contains(&action.pass) {
        return Ok(());
    } else if action.pass == Pass::WeightGradient && passes.len() == 2 {
        "weight gradients are part of the backward here".to_owned()
    } else {
        "there are forward passes only".to_owned()
    };
    Err(ScheduleError::Unknown { stage, action, rule })
}

/// Every stage receives activations in the order of their sends, and gradients likewise.
fn check_messages(lists: &[Vec<Action>], pipeline: Pipeline) -> Result<(), ScheduleError> {
    let positions = positions(lists, pipeline);
    for (stage, list) in lists.iter().enumerate() {
        // Where the latest received message was sent, by pass. All of a pass come from one neighbour.
        let mut latest = [0; 2];
        for &action in list {
            let Some((sender, sending)) = pipeline.source(stage, action) else { continue };
            let sent = positions[pipeline.slot(sender, sending)];
            let latest = &mut latest[action.pass as usize];
            if sent < *latest {
                return Err(ScheduleError::Overtaken { stage, action, sender });
            }
            *latest = sent;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use quadrille_spec::Schedule;

    use super::*;
    use crate::schedule::actions;

    const PIPELINE: Pipeline = Pipeline { stages: 3, chunks: 1, microbatches: 4, group: 3 };

    /// The error of 1F1B's lists after a change.
    fn broken(change: impl FnOnce(&mut Vec<Vec<Action>>)) -> ScheduleError {
        let mut lists = actions(Schedule::OneForwardOneBackward, PIPELINE).unwrap();
        check(&lists, PIPELINE, false).unwrap();
        change(&mut lists);
        check(&lists, PIPELINE, false).unwrap_err()
    }

    fn action(pass: Pass, microbatch: usize) -> Action {
        Action { pass, microbatch, chunk: 0 }
    }

    #[test]
    fn a_missing_pass_is_refused() {
        let error = broken(|lists| lists[1].truncate(7));
        assert_eq!(error, ScheduleError::Missing { stage: 1, action: action(Pass::Backward, 3) });
        let error = broken(|lists| lists[2].rotate_left(1));
        assert_eq!(
            error,
            ScheduleError::TooEarly { stage: 2, action: action(Pass::Backward, 0), needed: action(Pass::Forward, 0) }
        );
        let error = broken(|lists| lists.truncate(2));
        assert_eq!(error, ScheduleError::StageCount { found: 2, stages: 3 });
    }

    #[test]
    fn a_pass_listed_twice_is_refused() {
        let error = broken(|lists| lists[0].insert(1, action(Pass::Forward, 0)));
        assert_eq!(error, ScheduleError::OutOfOrder { stage: 0, action: action(Pass::Forward, 0), expected: 1 });
        let error = broken(|lists| lists[0].push(action(Pass::Backward, 3)));
        assert_eq!(error, ScheduleError::OutOfOrder { stage: 0, action: action(Pass::Backward, 3), expected: 4 });
    }

    #[test]
    fn swapped_passes_are_refused() {
        let error = broken(|lists| lists[0].swap(0, 1));
        assert_eq!(error, ScheduleError::OutOfOrder { stage: 0, action: action(Pass::Forward, 1), expected: 0 });
        let error = broken(|lists| lists[2].swap(0, 1));
        assert!(matches!(error, ScheduleError::TooEarly { stage: 2, .. }), "{error}");
    }

    #[test]
    fn passes_that_the_pipeline_lacks_are_refused() {
        let foreign = [action(Pass::Forward, 4), Action { chunk: 1, ..action(Pass::Forward, 0) }];
        for foreign in [foreign[0], foreign[1], action(Pass::WeightGradient, 0)] {
            let error = broken(|lists| lists[1].insert(3, foreign));
            assert!(matches!(error, ScheduleError::Unknown { stage: 1, action, .. } if action == foreign), "{error}");
        }
        let lists = actions(Schedule::OneForwardOneBackward, PIPELINE).unwrap();
        let error = check(&lists, PIPELINE, true).unwrap_err();
        assert_eq!(error, ScheduleError::Missing { stage: 0, action: action(Pass::WeightGradient, 0) });
    }

    /// Stage 0 wants the first gradient before it forwards microbatch 1, stage 1 that microbatch before it begins with
    /// the gradients. Each list alone is in order.
    #[test]
    fn stages_that_wait_for_each_other_are_refused() {
        let pipeline = Pipeline { stages: 2, chunks: 1, microbatches: 2, group: 2 };
        let forward = |m| action(Pass::Forward, m);
        let backward = |m| action(Pass::Backward, m);
        let lists = [
            vec![forward(0), backward(0), forward(1), backward(1)],
            vec![forward(0), forward(1), backward(0), backward(1)],
        ];
        let error = check(&lists, pipeline, false).unwrap_err();
        assert_eq!(error, ScheduleError::Deadlock { stage: 0, action: backward(0), sender: 1, needed: backward(0) });
        let text = "deadlock: stage 0 waits with backward of microbatch 0, chunk 0 for the backward of microbatch 0, \
                    chunk 0 on stage 1, which never comes to it";
        assert!(error.to_string().starts_with(text), "{error}");
    }

    /// Stage 1 sends microbatch 0's and then microbatch 1's output of chunk 0; stage 0 takes the chunks of a microbatch
    /// together and stage 1 does not.
    #[test]
    fn messages_received_in_another_order_than_sent_are_refused() {
        let pipeline = Pipeline { stages: 2, chunks: 2, microbatches: 2, group: 2 };
        let mut lists = actions(Schedule::Interleaved, pipeline).unwrap();
        assert_eq!(lists[1][1..3].iter().map(|a| (a.microbatch, a.chunk)).collect::<Vec<_>>(), [(1, 0), (0, 1)]);
        lists[1].swap(1, 2);
        let error = check(&lists, pipeline, false).unwrap_err();
        assert!(matches!(error, ScheduleError::Overtaken { stage: 1, sender: 0, .. }), "{error}");
    }
}
