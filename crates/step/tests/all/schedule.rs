//! Pipeline schedules: complete and executable lists, bubbles, microbatches in flight, steps that cannot lock up.

use std::collections::{HashMap, VecDeque};

use quadrille_spec::Schedule;
use quadrille_step::schedule::{
    Action, Pass, Pipeline, ScheduleError, Step, Timing, actions, check, makespan, splits_weight_gradients, steps,
};

fn pipeline(stages: usize, chunks: usize, microbatches: usize, group: usize) -> Pipeline {
    Pipeline { stages, chunks, microbatches, group }
}

/// Every schedule with every legal pipeline of up to 8 stages, 16 microbatches and 4 chunks.
fn every_case() -> Vec<(Schedule, Pipeline)> {
    let mut cases = Vec::new();
    for (p, m) in (1..=8).flat_map(|p| (1..=16).map(move |m| (p, m))) {
        let plain = Schedule::ALL.map(|(_, schedule)| schedule).into_iter().filter(|s| *s != Schedule::Interleaved);
        cases.extend(plain.map(|schedule| (schedule, pipeline(p, 1, m, 0))));
        let groups = (p..=m).filter(|n| m % n == 0 || m % n >= p);
        for (v, n) in groups.flat_map(|n| (1..=4).map(move |v| (v, n))).filter(|(v, _)| p > 1 || *v == 1) {
            cases.push((Schedule::Interleaved, pipeline(p, v, m, n)));
        }
    }
    cases
}

/// Forward 1, backward 2, of which 1 for weight gradients.
fn unit_timing(schedule: Schedule, pipeline: Pipeline) -> Timing {
    let backward = if splits_weight_gradients(schedule) { 1.0 } else { 2.0 };
    let times = |_, action: Action| if action.pass == Pass::Backward { backward } else { 1.0 };
    makespan(&actions(schedule, pipeline).unwrap(), pipeline, times).unwrap()
}

#[test]
fn every_schedule_is_complete_and_executable_with_its_microbatches_in_flight() {
    for (schedule, pipeline) in every_case() {
        let lists = actions(schedule, pipeline).unwrap();
        let checked = check(&lists, pipeline, splits_weight_gradients(schedule))
            .unwrap_or_else(|error| panic!("{schedule} {pipeline:?}: {error}"));
        let p = pipeline.stages;
        let m = pipeline.microbatches;
        let v = pipeline.chunks;
        for r in 0..p {
            let in_flight = checked.in_flight[r];
            let before_backward = checked.before_backward[r];
            let expected = match schedule {
                Schedule::Gpipe => m,
                Schedule::Interleaved if v > 1 => (2 * (p - r - 1) + (v - 1) * pipeline.group + 1).min(m * v),
                _ => (p - r).min(m),
            };
            match schedule {
                Schedule::MessageDriven => assert!((expected..=p.min(m)).contains(&in_flight)),
                _ => assert_eq!(before_backward, expected, "{schedule} {pipeline:?}, stage {r}"),
            }
            match schedule {
                Schedule::ZeroBubble => assert_eq!(in_flight, p.min(m), "{schedule} {pipeline:?}, stage {r}"),
                _ => assert_eq!(in_flight, before_backward),
            }
        }
    }
}

#[test]
fn bubbles_have_their_closed_forms() {
    let close = |a: f64, b: f64| (a - b).abs() < 1e-12;
    for (schedule, pipeline) in every_case() {
        let timing = unit_timing(schedule, pipeline);
        let p = pipeline.stages as f64;
        let m = pipeline.microbatches as f64;
        let v = pipeline.chunks as f64;
        let case = format!("{schedule} {pipeline:?}: {}", timing.total);
        let shortest = (p - 1.0) / (v * m);
        match schedule {
            Schedule::Gpipe | Schedule::OneForwardOneBackward => assert!(close(timing.bubble(), shortest), "{case}"),
            Schedule::Interleaved if pipeline.group == pipeline.stages && m % p == 0.0 => {
                assert!(close(timing.bubble(), shortest), "{case}");
            }
            Schedule::Interleaved => assert!(timing.bubble() >= shortest - 1e-12, "{case}"),
            Schedule::ZeroBubble => {
                let plain = unit_timing(Schedule::OneForwardOneBackward, pipeline);
                assert!(p == 1.0 || timing.total < plain.total, "{case}");
                assert!(m < p || timing.idle().iter().all(|idle| *idle == p - 1.0), "{case}");
            }
            Schedule::MessageDriven => assert!(timing.bubble() >= shortest - 1e-12, "{case}"),
        }
    }
}

/// ZB-H1's bubble `(p-1)(F + B - W)` also where the three times differ, as long as the order stays filled.
#[test]
fn zero_bubble_with_other_times() {
    let pipeline = pipeline(4, 1, 12, 0);
    let lists = actions(Schedule::ZeroBubble, pipeline).unwrap();
    for [forward, backward, weight_gradient] in [[1.0, 1.0, 1.0], [4.0, 4.0, 3.0], [2.0, 3.0, 2.0]] {
        let times = |_, action: Action| match action.pass {
            Pass::Forward => forward,
            Pass::Backward => backward,
            Pass::WeightGradient => weight_gradient,
        };
        let timing = makespan(&lists, pipeline, times).unwrap();
        assert_eq!(timing.idle(), [3.0 * (forward + backward - weight_gradient); 4]);
    }
}

/// The passes of a list as `F0.1`: pass, microbatch, chunk (left out if there is one).
fn text(list: &[Action], chunks: usize) -> String {
    let name = |action: &Action| {
        let pass = match action.pass {
            Pass::Forward => 'F',
            Pass::Backward => 'B',
            Pass::WeightGradient => 'W',
        };
        let chunk = if chunks > 1 { format!(".{}", action.chunk) } else { String::new() };
        format!("{pass}{}{chunk}", action.microbatch)
    };
    list.iter().map(name).collect::<Vec<_>>().join(" ")
}

fn texts(schedule: Schedule, pipeline: Pipeline) -> Vec<String> {
    actions(schedule, pipeline).unwrap().iter().map(|list| text(list, pipeline.chunks)).collect()
}

/// Megatron-LM's table for 2 stages, 2 chunks, 5 microbatches in groups of 3.
#[test]
fn interleaved_order() {
    let lists = actions(Schedule::Interleaved, pipeline(2, 2, 5, 3)).unwrap();
    for list in &lists {
        let of = |pass| list.iter().filter(move |action| action.pass == pass);
        let microbatches = [0, 1, 2, 0, 1, 2, 3, 4, 3, 4];
        let chunks = [0, 0, 0, 1, 1, 1, 0, 0, 1, 1];
        assert!(of(Pass::Forward).map(|action| action.microbatch).eq(microbatches));
        assert!(of(Pass::Forward).map(|action| action.chunk).eq(chunks));
        assert!(of(Pass::Backward).map(|action| action.microbatch).eq(microbatches));
        assert!(of(Pass::Backward).map(|action| action.chunk).eq(chunks.map(|chunk| 1 - chunk)));
    }
    // Warm-up 2(p-r-1) + (v-1)N: 5 on stage 0, 3 on stage 1.
    assert!(text(&lists[0], 2).starts_with("F0.0 F1.0 F2.0 F0.1 F1.1 F2.1 B0.1 F3.0 B1.1"));
    assert!(text(&lists[1], 2).starts_with("F0.0 F1.0 F2.0 F0.1 B0.1 F1.1 B1.1 F2.1 B2.1 F3.0 B0.0"));
}

#[test]
fn plain_orders() {
    let three = pipeline(3, 1, 4, 0);
    assert_eq!(texts(Schedule::Gpipe, three), ["F0 F1 F2 F3 B0 B1 B2 B3"; 3]);
    let expected = ["F0 F1 F2 B0 F3 B1 B2 B3", "F0 F1 B0 F2 B1 F3 B2 B3", "F0 B0 F1 B1 F2 B2 F3 B3"];
    assert_eq!(texts(Schedule::OneForwardOneBackward, three), expected);
    let expected = [
        "F0 F1 F2 B0 W0 F3 B1 W1 B2 W2 B3 W3",
        "F0 F1 B0 F2 B1 W0 F3 B2 W1 B3 W2 W3",
        "F0 B0 F1 B1 F2 B2 W0 F3 B3 W1 W2 W3",
    ];
    assert_eq!(texts(Schedule::ZeroBubble, three), expected);
}

/// Stage 0 begins 3 microbatches, then one per gradient; stage 1 gets all three before the first gradient.
#[test]
fn message_driven_order() {
    let expected = ["F0 F1 F2 B0 F3 B1 F4 B2 B3 B4", "F0 F1 F2 B0 B1 F3 B2 F4 B3 B4", "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4"];
    assert_eq!(texts(Schedule::MessageDriven, pipeline(3, 1, 5, 0)), expected);
}

#[test]
fn illegal_pipelines_are_refused_with_a_remedy() {
    let field = |schedule, pipeline| match actions(schedule, pipeline) {
        Err(ScheduleError::Pipeline { field, .. }) => field,
        other => panic!("{pipeline:?}: {other:?}"),
    };
    for (_, schedule) in Schedule::ALL {
        assert_eq!(field(schedule, pipeline(0, 1, 4, 4)), "stages");
        assert_eq!(field(schedule, pipeline(2, 0, 4, 4)), "chunks");
        assert_eq!(field(schedule, pipeline(2, 1, 0, 4)), "microbatches");
        assert_eq!(field(schedule, pipeline(2, 1, usize::MAX, 4)), "microbatches");
        let several = if schedule == Schedule::Interleaved { "stages" } else { "chunks" };
        assert_eq!(field(schedule, pipeline(1, 2, 4, 4)), several);
    }
    for (m, group) in [(8, 0), (8, 3), (8, 9), (9, 5 + 1)] {
        assert_eq!(field(Schedule::Interleaved, pipeline(4, 2, m, group)), "group");
    }
    assert_eq!(field(Schedule::Interleaved, pipeline(4, 2, 3, 4)), "microbatches");
    let error = actions(Schedule::Interleaved, pipeline(4, 2, 9, 6)).unwrap_err();
    let text = "group = 6: groups of the 9 microbatches, the last too, have at least 4, one per stage; use 5, the \
                smallest, or 9, the largest";
    assert_eq!(error.to_string(), text);
}

/// Executes steps as they are meant: a run waits for its message, a release until the receive is posted. Returns the
/// time at which the last stage ends, with forward 1 and backward 2 (1 and 1 for weight gradients where they are
/// split), or the steps at which stages wait for ever.
fn rendezvous(stages: &[Vec<Step>], pipeline: Pipeline, splits: bool) -> Result<f64, Vec<(usize, Step)>> {
    let mut posted = HashMap::new();
    let mut sent = HashMap::new();
    let mut released = 0;
    let mut clocks = vec![0.0_f64; stages.len()];
    let mut next = vec![0; stages.len()];
    let mut moved = true;
    while moved {
        moved = false;
        for (stage, steps) in stages.iter().enumerate() {
            while let Some(&step) = steps.get(next[stage]) {
                let clock = &mut clocks[stage];
                match step {
                    Step::Post(action) => assert_eq!(posted.insert((stage, action), *clock), None),
                    Step::Run(action) => {
                        if let Some(source) = pipeline.source(stage, action) {
                            assert!(posted.contains_key(&(stage, action)), "{step:?} has no receive");
                            let Some(arrival) = sent.get(&source) else { break };
                            *clock = clock.max(*arrival);
                        }
                        *clock += if action.pass == Pass::Backward && !splits { 2.0 } else { 1.0 };
                        if pipeline.destination(stage, action).is_some() {
                            sent.insert((stage, action), *clock);
                        }
                    }
                    Step::Release(action) => {
                        assert!(sent.contains_key(&(stage, action)), "{step:?} before its send");
                        let Some(post) = posted.get(&pipeline.destination(stage, action).unwrap()) else { break };
                        *clock = clock.max(*post);
                        released += 1;
                    }
                }
                next[stage] += 1;
                moved = true;
            }
        }
    }
    let waits = |stage: usize| stages[stage].get(next[stage]).map(|step| (stage, *step));
    let stuck: Vec<_> = (0..stages.len()).filter_map(waits).collect();
    if !stuck.is_empty() {
        return Err(stuck);
    }
    assert_eq!((posted.len(), released), (sent.len(), sent.len()), "each message is received and released once");
    Ok(clocks.into_iter().fold(0.0, f64::max))
}

#[test]
fn steps_neither_lock_up_nor_wait_for_sends() {
    for (schedule, pipeline) in every_case() {
        let splits = splits_weight_gradients(schedule);
        let steps = steps(&actions(schedule, pipeline).unwrap(), pipeline).unwrap();
        let total = rendezvous(&steps, pipeline, splits).unwrap_or_else(|at| panic!("{schedule} {pipeline:?}: {at:?}"));
        assert_eq!(total, unit_timing(schedule, pipeline).total, "{schedule} {pipeline:?}");
    }
}

#[test]
fn steps_of_a_small_pipeline() {
    let two = pipeline(2, 1, 3, 0);
    let steps = steps(&actions(Schedule::OneForwardOneBackward, two).unwrap(), two).unwrap();
    let line = |steps: &Vec<Step>| {
        let name = |step: &Step| match step {
            Step::Post(action) => format!("post {}", text(&[*action], 1)),
            Step::Run(action) => text(&[*action], 1),
            Step::Release(action) => format!("release {}", text(&[*action], 1)),
        };
        steps.iter().map(name).collect::<Vec<_>>().join(", ")
    };
    let expected = [
        "F0, post B0, F1, release F0, B0, release F1, post B1, F2, post B2, B1, release F2, B2",
        "post F0, F0, post F1, B0, F1, release B0, post F2, B1, F2, release B1, B2, release B2",
    ];
    assert_eq!(steps.iter().map(line).collect::<Vec<_>>(), expected);
}

/// Deterministic numbers (SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % bound as u64) as usize
    }
}

/// Lists found by running, again and again, any action that could run.
fn random_lists(random: &mut Random, pipeline: Pipeline, splits: bool) -> Vec<Vec<Action>> {
    let mut lists = vec![Vec::new(); pipeline.stages];
    let mut ready: Vec<[VecDeque<Action>; 3]> = vec![Default::default(); pipeline.stages];
    ready[0][0] =
        (0..pipeline.microbatches).map(|microbatch| Action { pass: Pass::Forward, microbatch, chunk: 0 }).collect();
    loop {
        let queues = (0..pipeline.stages).flat_map(|stage| (0..3).map(move |pass| (stage, pass)));
        let open: Vec<_> = queues.filter(|(stage, pass)| !ready[*stage][*pass].is_empty()).collect();
        if open.is_empty() {
            return lists;
        }
        let (stage, pass) = open[random.below(open.len())];
        let action = ready[stage][pass].pop_front().unwrap();
        lists[stage].push(action);
        if let Some((receiver, receiving)) = pipeline.destination(stage, action) {
            ready[receiver][pass].push_back(receiving);
        } else if action.pass == Pass::Forward {
            ready[stage][1].push_back(Action { pass: Pass::Backward, ..action });
        }
        if action.pass == Pass::Backward && splits {
            ready[stage][2].push_back(Action { pass: Pass::WeightGradient, ..action });
        }
    }
}

#[test]
fn steps_of_random_lists_do_not_lock_up() {
    let mut random = Random(1);
    for round in 0..2000 {
        let stages = 2 + random.below(6);
        let microbatches = 1 + random.below(12);
        let pipeline = pipeline(stages, 1 + random.below(3), microbatches, 0);
        let splits = random.below(2) == 1;
        let lists = random_lists(&mut random, pipeline, splits);
        check(&lists, pipeline, splits).unwrap_or_else(|error| panic!("round {round}: {error}"));
        let steps = steps(&lists, pipeline).unwrap();
        let total = rendezvous(&steps, pipeline, splits).unwrap_or_else(|at| panic!("round {round}: {at:?}"));
        let times = |_, action: Action| if action.pass == Pass::Backward && !splits { 2.0 } else { 1.0 };
        assert_eq!(total, makespan(&lists, pipeline, times).unwrap().total, "round {round}");
    }
}

/// Releases are placed with care for a reason: directly after their sends they lock up an interleaved pipeline whose
/// groups are longer than the pipeline, where the first chunk's outputs come back long before they are wanted.
#[test]
fn releases_directly_after_sends_lock_up() {
    let pipeline = pipeline(2, 2, 8, 8);
    let steps = steps(&actions(Schedule::Interleaved, pipeline).unwrap(), pipeline).unwrap();
    assert!(rendezvous(&steps, pipeline, false).is_ok());
    let eager = |(stage, steps): (usize, Vec<Step>)| {
        let kept = steps.into_iter().filter(|step| !matches!(step, Step::Release(_)));
        let with_release = |step| match step {
            Step::Run(action) if pipeline.destination(stage, action).is_some() => vec![step, Step::Release(action)],
            _ => vec![step],
        };
        kept.flat_map(with_release).collect::<Vec<_>>()
    };
    let eager: Vec<_> = steps.into_iter().enumerate().map(eager).collect();
    assert!(rendezvous(&eager, pipeline, false).is_err());
}
