//! Schedules: bubbles, messages, what drives a message-driven stage.

use quadrille_cost::simulation::{Simulation, SimulationError, simulate};
use quadrille_spec::{LayoutRequest, Schedule};
use quadrille_step::StepProgram;
use quadrille_step::schedule::{Action, Pass, Step};

use crate::common::{BlocksOnly, close, ideal, program};

fn pipeline(stages: usize, microbatches: usize, schedule: Schedule) -> StepProgram {
    program(stages, &format!("pipe={stages}"), microbatches, |request| request.schedule = schedule)
}

#[test]
fn bubbles_of_equal_stages_have_their_closed_forms() {
    // (p-1)/m: Narayanan et al. 2021, section 2.2.1.
    for (stages, microbatches) in [(2, 2), (2, 5), (4, 4), (4, 12), (3, 7)] {
        for schedule in [Schedule::Gpipe, Schedule::OneForwardOneBackward] {
            let simulation = ideal(&pipeline(stages, microbatches, schedule));
            let expected = (stages - 1) as f64 / microbatches as f64;
            assert!(close(simulation.bubble(), expected), "{schedule} {stages} {microbatches}");
            for stage in &simulation.stages {
                assert!(close(stage.waiting_on_stages_s / stage.busy_s, expected));
                assert!(close(stage.total_s(), simulation.step_seconds));
            }
        }
    }
}

#[test]
fn interleaving_divides_the_bubble_by_the_chunks() {
    for (stages, chunks, microbatches) in [(2, 2, 4), (2, 3, 2), (4, 2, 8), (3, 2, 6)] {
        let interleaved = |request: &mut LayoutRequest| {
            (request.schedule, request.chunks) = (Schedule::Interleaved, chunks);
        };
        let program = program(stages * chunks, &format!("pipe={stages}"), microbatches, interleaved);
        let expected = (stages - 1) as f64 / (chunks * microbatches) as f64;
        assert!(close(ideal(&program).bubble(), expected), "{stages} {chunks} {microbatches}");
    }
}

#[test]
fn zero_bubble_fills_two_thirds_of_the_bubble() {
    // Forward, input gradient and weight gradient take equally long: (p-1)(F+B-W) instead of (p-1)(F+B+W).
    for (stages, microbatches) in [(2, 4), (4, 8), (4, 16)] {
        let plain = ideal(&pipeline(stages, microbatches, Schedule::OneForwardOneBackward));
        let zero_bubble = ideal(&pipeline(stages, microbatches, Schedule::ZeroBubble));
        assert!(close(zero_bubble.bubble(), plain.bubble() / 3.0), "{stages} {microbatches}");
        assert!(zero_bubble.step_seconds < plain.step_seconds);
    }
}

/// By stage, the passes in the order in which they ran.
fn order(simulation: &Simulation) -> Vec<Vec<Action>> {
    let of_stage = |stage| simulation.passes.iter().filter(move |span| span.stage == stage);
    (0..simulation.stages.len()).map(|stage| of_stage(stage).filter_map(|span| span.action).collect()).collect()
}

/// By stage, the passes in the order in which the program lists them.
fn listed(program: &StepProgram) -> Vec<Vec<Action>> {
    let run = |step: &Step| match step {
        Step::Run(action) => Some(*action),
        _ => None,
    };
    program.stages.iter().map(|stage| stage.steps.iter().filter_map(run).collect()).collect()
}

#[test]
fn every_pass_runs_once_in_the_order_of_the_program() {
    for (_, schedule) in Schedule::ALL.into_iter().filter(|(_, schedule)| *schedule != Schedule::MessageDriven) {
        let program = pipeline(3, 6, schedule);
        assert_eq!(order(&simulate(&program, &stuttering()).unwrap()), listed(&program));
    }
}

#[test]
fn messages_delay_the_first_microbatch_on_every_stage() {
    let machine = BlocksOnly { message_s: 5.0, ..BlocksOnly::default() };
    let program = pipeline(3, 1, Schedule::OneForwardOneBackward);
    // Down and up the pipeline: four messages, nothing to do in the meantime.
    let with_messages = simulate(&program, &machine).unwrap();
    assert!(close(with_messages.step_seconds, ideal(&program).step_seconds + 4.0 * 5.0));
    let sent = with_messages.events.iter().filter(|event| event.name == "message");
    assert_eq!(sent.map(|event| event.stage).collect::<Vec<_>>(), [0, 1, 1, 2]);
}

#[test]
fn messages_of_a_link_travel_one_after_the_other() {
    // Slow links: the step is as long as the link is busy in one direction, the way there and back, and the passes of
    // the first and last microbatch.
    let machine = BlocksOnly { message_s: 100.0, ..BlocksOnly::default() };
    let program = pipeline(2, 4, Schedule::Gpipe);
    let simulation = simulate(&program, &machine).unwrap();
    let pass = |pass| {
        let found = simulation.passes.iter().find(|span| span.action.is_some_and(|action| action.pass == pass));
        found.map(|span| span.end_s - span.start_s).unwrap()
    };
    let passes = 2.0 * (pass(Pass::Forward) + pass(Pass::Backward));
    // The last stage's first backward follows its last forward; its message is behind nothing else.
    assert!(close(simulation.step_seconds, 4.0 * 100.0 + 4.0 * 100.0 + passes), "{}", simulation.step_seconds);
}

#[test]
fn a_message_driven_pipeline_is_as_fast_as_1f1b_where_stages_are_equal() {
    for (stages, microbatches) in [(2, 6), (4, 8), (4, 3), (3, 12)] {
        let driven = ideal(&pipeline(stages, microbatches, Schedule::MessageDriven));
        let plain = ideal(&pipeline(stages, microbatches, Schedule::OneForwardOneBackward));
        let backward = driven.passes.iter().map(|span| span.end_s - span.start_s).fold(0.0, f64::max);
        assert!(driven.step_seconds <= plain.step_seconds + backward, "{stages} {microbatches}");
    }
}

/// Stage 1 stutters: every fourth forward takes four times as long.
fn stuttering() -> BlocksOnly {
    let slowdown = |stage, action: Option<Action>| {
        let stutters = |action: Action| action.pass == Pass::Forward && action.microbatch % 4 == 3;
        if stage == 1 && action.is_some_and(stutters) { 4.0 } else { 1.0 }
    };
    BlocksOnly { slowdown, ..BlocksOnly::default() }
}

#[test]
fn a_message_driven_pipeline_is_faster_where_a_stage_stutters() {
    let seconds = |schedule| simulate(&pipeline(4, 8, schedule), &stuttering()).unwrap().step_seconds;
    let driven = seconds(Schedule::MessageDriven);
    let plain = seconds(Schedule::OneForwardOneBackward);
    assert!(driven < 0.95 * plain, "{driven} {plain}");
}

#[test]
fn message_driven_stages_take_at_once_what_has_arrived_backward_first() {
    let stages = 4;
    let microbatches = 16;
    let simulation = simulate(&pipeline(stages, microbatches, Schedule::MessageDriven), &stuttering()).unwrap();
    let passes = |stage: usize| {
        let of_stage = simulation.passes.iter().filter(move |span| span.stage == stage);
        of_stage.filter_map(|span| Some((span.action?, span.start_s, span.end_s)))
    };
    let end = |stage: usize, pass, microbatch| {
        let mut found = passes(stage).filter(|(action, ..)| (action.pass, action.microbatch) == (pass, microbatch));
        found.next().map_or(f64::INFINITY, |(.., end)| end)
    };
    for stage in 0..stages {
        let [mut forwards, mut backwards] = [0; 2];
        let mut free = 0.0;
        for (action, start, ends) in passes(stage) {
            let forward = match stage {
                _ if forwards - backwards == stages || forwards == microbatches => f64::INFINITY,
                0 => 0.0,
                _ => end(stage - 1, Pass::Forward, forwards),
            };
            let backward = match stage {
                _ if forwards == backwards => f64::INFINITY,
                last if last == stages - 1 => 0.0,
                _ => end(stage + 1, Pass::Backward, backwards),
            };
            assert_eq!(start, forward.min(backward).max(free), "stage {stage}, {action}");
            assert_eq!(action.pass == Pass::Backward, backward <= start, "stage {stage}, {action}");
            *(if action.pass == Pass::Forward { &mut forwards } else { &mut backwards }) += 1;
            free = ends;
        }
        assert_eq!([forwards, backwards], [microbatches; 2]);
    }
}

#[test]
fn where_stages_are_equal_messages_drive_them_in_the_listed_order() {
    // The lists were made for backwards of twice the forwards' time and free messages, as here.
    for (stages, microbatches) in [(2, 6), (4, 12), (5, 3)] {
        let program = pipeline(stages, microbatches, Schedule::MessageDriven);
        assert_eq!(order(&ideal(&program)), listed(&program));
    }
}

#[test]
fn message_driven_stages_keep_the_order_and_the_limit() {
    let stages = 3;
    let simulation = ideal(&pipeline(stages, 8, Schedule::MessageDriven));
    for stage in 0..stages {
        let passes = simulation.passes.iter().filter(|span| span.stage == stage).filter_map(|span| span.action);
        let mut done = [0; 2];
        for action in passes {
            let count = &mut done[action.pass as usize];
            assert_eq!(action.microbatch, *count);
            *count += 1;
            assert!(done[1] <= done[0] && done[0] - done[1] <= stages);
        }
        assert_eq!(done, [8, 8]);
    }
}

#[test]
fn equal_inputs_give_equal_simulations() {
    for (_, schedule) in Schedule::ALL {
        let program = pipeline(3, 6, schedule);
        let machine = BlocksOnly { message_s: 0.3, collective_s: 0.1, ..BlocksOnly::default() };
        assert_eq!(simulate(&program, &machine), simulate(&program, &machine));
    }
}

#[test]
fn steps_that_wait_for_ever_are_refused() {
    let mut program = pipeline(2, 2, Schedule::OneForwardOneBackward);
    program.stages[0].steps.retain(|step| !matches!(step, Step::Run(_)));
    let error = simulate(&program, &BlocksOnly::default()).unwrap_err();
    assert!(matches!(error, SimulationError::Stuck { .. }), "{error}");
}

#[test]
fn times_that_are_none_are_refused() {
    let program = pipeline(2, 2, Schedule::OneForwardOneBackward);
    let refused = |machine: BlocksOnly| simulate(&program, &machine).unwrap_err().to_string();
    let message = refused(BlocksOnly { message_s: f64::NAN, ..BlocksOnly::default() });
    assert!(message.starts_with("message of block 0 on stage 0 would take NaN s"), "{message}");
    let message = refused(BlocksOnly { slowdown: |_, _| -1.0, ..BlocksOnly::default() });
    assert!(message.starts_with("slowdown of step on stage 0 would take -1 s"), "{message}");
}
