//! Pipelines: stages of any size equal the serial model, schedules change no bit, and hold as many microbatches as they
//! say; both copies of a tied table stay equal.
//!
//! What schedules leave equal in every bit: losses, gradients before clipping, and without clipping all weights. The
//! gradient norm adds up stage by stage, so that its last bit depends on how layers are dealt to stages; it does not
//! depend on the schedule for the same stages, and nor does anything else.

use std::collections::BTreeMap;
use std::time::Duration;

use quadrille_comm::{JobOptions, MessageDelay, MessageInfo, run_ranks};
use quadrille_engine::{Cpu, InitialValues, RankEngine, TracedOperation, TrainOptions, train_on_cpu};
use quadrille_proofs::{
    SEED, Trajectory, assert_caught, bits, edited_at, hyper, model, operations, program_with, prove, random_samples,
    rebuilt, trajectory_with,
};
use quadrille_spec::{Activations, Axis, Classic, MemoryClass, Model, Schedule};
use quadrille_step::schedule::{Action, Pass, Pipeline, actions};
use quadrille_step::{Members, Operation, StageProgram, StepProgram, Write, kind, predict};

const ALL: [Schedule; 5] = [
    Schedule::Gpipe,
    Schedule::OneForwardOneBackward,
    Schedule::Interleaved,
    Schedule::ZeroBubble,
    Schedule::MessageDriven,
];

/// Microbatches of `microbatch` sequences in stages of `blocks`.
fn staged(model: &Model, grid: &str, schedule: Schedule, microbatches: usize, blocks: Option<&[usize]>) -> StepProgram {
    let sequences = 4;
    program_with(model, &format!("{grid},data=1"), sequences * microbatches, |request| {
        (request.schedule, request.microbatch) = (schedule, Some(sequences));
        request.stage_blocks = blocks.map(<[usize]>::to_vec);
    })
}

#[test]
fn uneven_and_empty_stages_equal_the_serial_model() {
    let uneven: [(&str, &[usize]); 6] = [
        ("pipe=2", &[3, 1]),
        ("pipe=2", &[0, 4]),
        ("pipe=2", &[4, 0]),
        ("pipe=3", &[0, 4, 0]),
        ("x=2,pipe=3", &[1, 2, 1]),
        ("y=2,pipe=4", &[0, 3, 1, 0]),
    ];
    for ((grid, blocks), schedule) in uneven.into_iter().zip(ALL.into_iter().cycle()) {
        let report = prove(&staged(&model(4), grid, schedule, 4, Some(blocks)), 2).unwrap();
        assert!(report.ok, "{grid}, {blocks:?}, {schedule}: {report:?}");
    }
}

#[test]
fn every_schedule_equals_the_serial_model() {
    for activations in [Activations::Replicated, Activations::Scattered] {
        for schedule in ALL {
            let program = staged(&Model { dropout: 0.1, ..model(4) }, "x=2,z=2,pipe=2", schedule, 4, None);
            let program = rebuilt(&program, |layout| layout.activations = activations);
            let report = prove(&program, 2).unwrap();
            assert!(report.ok, "{schedule}, {activations}: {report:?}");
        }
    }
}

/// Two forwards and two backwards in turn.
fn two_by_two(pipeline: Pipeline) -> Vec<Vec<Action>> {
    let passes =
        |pass, range: std::ops::Range<usize>| range.map(move |microbatch| Action { pass, microbatch, chunk: 0 });
    let list = |stage: usize| {
        let mut begun = 0;
        let mut list = Vec::new();
        for done in (0..pipeline.microbatches).step_by(2) {
            let until = (done + 2 * (pipeline.stages - stage)).min(pipeline.microbatches);
            list.extend(passes(Pass::Forward, begun..until));
            list.extend(passes(Pass::Backward, done..done + 2));
            begun = until;
        }
        list
    };
    (0..pipeline.stages).map(list).collect()
}

#[test]
fn lists_of_ones_own_change_no_bit_and_must_be_whole() {
    let plain = staged(&Model { dropout: 0.1, ..model(4) }, "x=2,pipe=2", Schedule::OneForwardOneBackward, 4, None);
    let layout = &plain.layout;
    let pipeline = Pipeline::of(&plain.layout);
    let with = |lists: &[Vec<Action>]| StepProgram::with_actions(&plain.model, layout, lists);
    let own = two_by_two(pipeline);
    assert_ne!(own, actions(layout.schedule, pipeline).unwrap());
    assert_eq!(bits(&with(&own).unwrap()), bits(&plain));
    let report = prove(&with(&own).unwrap(), 2).unwrap();
    assert!(report.ok, "{report:?}");

    let refused = |change: fn(&mut Vec<Vec<Action>>)| {
        let mut lists = own.clone();
        change(&mut lists);
        with(&lists).map(|_| ()).unwrap_err().to_string()
    };
    assert!(refused(|lists| lists[1].truncate(5)).contains("every pass is listed exactly once"));
    assert!(refused(|lists| lists[0].swap(0, 1)).contains("in ascending order"));
    assert!(refused(|lists| lists.truncate(1)).contains("lists of actions"));
    let weights = |lists: &mut Vec<Vec<Action>>| {
        for list in lists {
            list.extend((0..4).map(|microbatch| Action { pass: Pass::WeightGradient, microbatch, chunk: 0 }));
        }
    };
    assert!(!refused(weights).is_empty(), "the backward passes of this schedule have the weight gradients");
    let driven = staged(&model(4), "pipe=2", Schedule::MessageDriven, 4, None);
    let error = StepProgram::with_actions(&driven.model, &driven.layout, &own).map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("choose another schedule"), "{error}");
}

#[test]
fn schedules_of_the_same_stages_change_no_bit() {
    for grid in ["pipe=4", "x=2,pipe=2", "y=2,z=2,pipe=2"] {
        let plain = staged(&Model { dropout: 0.1, ..model(4) }, grid, Schedule::OneForwardOneBackward, 8, None);
        let reference = bits(&plain);
        for schedule in ALL {
            assert!(bits(&rebuilt(&plain, |layout| layout.schedule = schedule)) == reference, "{grid}, {schedule}");
        }
    }
}

/// The bits of gradients and weights, by parameter and place in the tensor grid.
fn by_name(program: &StepProgram, ranks: &[Trajectory]) -> BTreeMap<(String, [usize; 5]), [Vec<u64>; 2]> {
    let mut all = BTreeMap::new();
    for (rank, run) in ranks.iter().enumerate() {
        let place = program.layout.grid.coordinate(rank);
        let place = [Axis::X, Axis::Y, Axis::Z, Axis::Context, Axis::Data].map(|axis| place.on(axis));
        let numbers = run.gradients.iter().zip(&run.weights);
        for (parameter, (gradient, weights)) in program.of_rank(rank).parameters.iter().zip(numbers) {
            all.insert((parameter.name.clone(), place), [gradient.clone(), weights.clone()]);
        }
    }
    all
}

/// The pipeline axis itself changes no bit either, where no parameter is on two stages: the two gradients of a tied
/// table are then added in another order.
#[test]
fn a_pipeline_changes_no_bit() {
    let model = Model { tied_head: false, dropout: 0.1, ..model(4) };
    for (tensor, stages) in [("x=1", 4), ("x=2", 2), ("y=2,z=2", 2)] {
        let run = |program: &StepProgram| trajectory_with(program, 2, 1, hyper(None)).unwrap();
        let single = staged(&model, tensor, Schedule::OneForwardOneBackward, 8, None);
        let reference = run(&single);
        for schedule in ALL {
            let mut programs = vec![staged(&model, &format!("{tensor},pipe={stages}"), schedule, 8, None)];
            if schedule == Schedule::Interleaved {
                let two_chunks = program_with(&model, &format!("{tensor},pipe=2"), 32, |request| {
                    (request.schedule, request.chunks, request.microbatch) = (schedule, 2, Some(4));
                });
                programs.push(two_chunks);
            }
            for program in programs {
                let ranks = run(&program);
                let losses = |run: &Trajectory| run.outcomes.iter().map(|outcome| outcome.loss).collect::<Vec<_>>();
                assert_eq!(losses(&ranks[0]), losses(&reference[0]), "{tensor}, {schedule}");
                assert!(by_name(&program, &ranks) == by_name(&single, &reference), "{tensor}, {schedule}");
            }
        }
    }
}

/// Passes run as messages arrive, whichever are late: forward ones, backward ones, every second, those of one stage.
#[test]
fn late_messages_and_threads_change_no_bit() {
    let program = staged(&Model { dropout: 0.1, ..model(3) }, "x=2,pipe=3", Schedule::MessageDriven, 6, None);
    let ranks = program.layout.grid.ranks();
    let run = |late: Option<fn(&MessageInfo) -> bool>, threads: usize| {
        let batch = random_samples(&program);
        let delay =
            move |message: &MessageInfo| Duration::from_millis(if late.is_some_and(|is| is(message)) { 8 } else { 0 });
        let job = JobOptions { message_delay: late.map(|_| MessageDelay::new(delay)), ..JobOptions::new(ranks) };
        run_ranks(&job, |context| {
            let initial = InitialValues::Perturbed;
            let mut engine = RankEngine::<Cpu<f64>>::new(&program, context, threads, hyper(Some(0.1)), SEED, initial)?;
            let outcomes = [engine.step(&batch)?, engine.step(&batch)?];
            let numbers = outcomes.map(|outcome| [outcome.loss.to_bits(), outcome.gradient_norm.to_bits()]);
            Ok((numbers, engine.weights()?))
        })
        .unwrap()
    };
    let reference = run(None, 1);
    // Even tags go forward, odd ones backward.
    let late: [fn(&MessageInfo) -> bool; 5] = [
        |_| false,
        |message| message.tag.is_multiple_of(2),
        |message| !message.tag.is_multiple_of(2),
        |message| message.sequence.is_multiple_of(2),
        |message| message.from == 0,
    ];
    for (which, late) in late.into_iter().enumerate() {
        for threads in [1, 2] {
            assert!(run(Some(late), threads) == reference, "delay {which}, {threads} threads");
        }
    }
}

/// On the last stage a backward pass is ready when its forward pass is done, also where the next microbatch has arrived.
#[test]
fn message_driven_stages_take_backward_passes_first() {
    let program = staged(&model(6), "pipe=2", Schedule::MessageDriven, 6, Some(&[0, 6]));
    let options = TrainOptions { trace: true, ..TrainOptions::new(2, hyper(None), SEED) };
    let outcome = train_on_cpu(&program, &options, &random_samples(&program), None, &mut |_| Ok(())).unwrap();
    let operations = outcome.ranks[1].trace.as_ref().unwrap().operations.iter();
    // Messages of other passes may be waited for in between.
    let computes = |each: &&TracedOperation| each.name.starts_with("gemm");
    let mut passes: Vec<Action> = operations.filter(computes).filter_map(|each| each.action).collect();
    passes.dedup();
    let turns =
        (0..6).flat_map(|microbatch| [Pass::Forward, Pass::Backward].map(|pass| Action { pass, microbatch, chunk: 0 }));
    assert_eq!(passes, turns.collect::<Vec<_>>());
}

/// The two copies of the table, by place in the tensor grid.
#[test]
fn both_copies_of_a_tied_table_stay_equal() {
    for schedule in ALL {
        let program = staged(&model(2), "x=2,z=2,pipe=2", schedule, 4, None);
        let ranks = bits(&program);
        let grid = &program.layout.grid;
        for (rank, run) in ranks.iter().enumerate() {
            let ends = grid.group(rank, Axis::Pipe.only());
            let [own, other] = [rank, ends[1 - grid.coordinate(rank).on(Axis::Pipe)]].map(|rank| {
                let names = program.of_rank(rank).parameters.iter();
                names.zip(&ranks[rank].weights).find(|(parameter, _)| parameter.name == "embedding.table").unwrap().1
            });
            assert_eq!(own, other, "{schedule}");
            assert_ne!(run.start, run.weights, "nothing moved");
        }
        // The copy moved away from where it began.
        assert!(program.stages[1].parameters.iter().any(|parameter| parameter.copy));
    }
}

/// Copies of what lives from the forward to the backward pass, but for what is sent or received.
fn in_flight(stage: &StageProgram) -> usize {
    let messages =
        stage.chunks.iter().flat_map(|chunk| chunk.sections()).flat_map(|each| each.receives.iter().chain(&each.sends));
    let passed: Vec<_> = messages.map(|message| stage.value(message.value).storage.0).collect();
    let storages = stage.storages.iter().enumerate();
    let kept =
        storages.filter(|(index, info)| info.kept && info.class == MemoryClass::Activations && !passed.contains(index));
    kept.map(|(_, info)| info.instances).max().unwrap()
}

#[test]
fn stages_hold_the_microbatches_that_their_schedule_says() {
    let p = 3;
    for m in 1..=6 {
        let held = |schedule| {
            let program = staged(&model(6), "pipe=3", schedule, m, None);
            program.stages.iter().map(in_flight).collect::<Vec<_>>()
        };
        assert_eq!(held(Schedule::Gpipe), vec![m; p]);
        assert_eq!(held(Schedule::OneForwardOneBackward), (0..p).map(|stage| m.min(p - stage)).collect::<Vec<_>>());
        assert_eq!(held(Schedule::ZeroBubble), vec![m.min(p); p]);
        assert_eq!(held(Schedule::MessageDriven), vec![m.min(p); p]);
    }
}

/// The peak of activations on each stage, in bytes.
fn peaks(schedule: Schedule, m: usize) -> Vec<u64> {
    let program = staged(&model(6), "pipe=3", schedule, m, None);
    predict(&program).ranks.iter().map(|rank| rank.memory.peak_of[&MemoryClass::Activations]).collect()
}

/// One more microbatch in flight keeps its activations: of a stage with two blocks, as counted by hand in `recompute`
/// and `by_hand`, `2 m (8 h + 2 f + n)`.
#[test]
fn the_peak_grows_with_the_microbatches_in_flight() {
    let Classic { hidden: h, ffn: f, heads: n, seq_len, .. } = model(6).classic();
    let rows = 4 * seq_len;
    let of_microbatch = (2 * rows * (8 * h + 2 * f + n) * 8) as u64;
    for m in 3..=6 {
        let more = |schedule| -> Vec<u64> {
            peaks(schedule, m + 1).into_iter().zip(peaks(schedule, m)).map(|(more, less)| more - less).collect()
        };
        assert_eq!(more(Schedule::Gpipe)[1], of_microbatch);
        assert_eq!(more(Schedule::OneForwardOneBackward), [0; 3], "{m} microbatches");
        assert_eq!(more(Schedule::ZeroBubble), [0; 3], "{m} microbatches");
        assert_eq!(more(Schedule::MessageDriven), [0; 3], "{m} microbatches");
    }
    // 1F1B: three, two and one microbatches; and of the next one the message that is received already.
    let one = peaks(Schedule::OneForwardOneBackward, 1);
    let all = peaks(Schedule::OneForwardOneBackward, 6);
    let message = (rows * h * 8) as u64;
    assert_eq!(all[1] - one[1], of_microbatch + message);
    assert!(all[0] - one[0] >= 2 * of_microbatch, "{one:?}, {all:?}");
    assert!(all[2] - one[2] <= message, "{one:?}, {all:?}");
    let gpipe = peaks(Schedule::Gpipe, 6);
    assert!(gpipe.iter().zip(&all).all(|(gpipe, alternating)| gpipe > alternating));
}

/// Without the sum over both copies, and with the sum after they have moved.
#[test]
fn the_tied_sum_is_needed_and_in_its_place() {
    let program = staged(&model(2), "x=2,pipe=2", Schedule::OneForwardOneBackward, 2, None);
    assert!(prove(&program, 1).unwrap().ok);
    let of_ends = |operation: &Operation| matches!(operation, Operation::Issue(each) | Operation::Wait(each) if each.members == Members::Ends);
    let edit = |late: bool| {
        let mut broken = program.clone();
        for stage in &mut broken.stages {
            let (ends, mut rest): (Vec<_>, Vec<_>) = stage.update.ops.drain(..).partition(|op| of_ends(&op.operation));
            assert_eq!(ends.len(), 2);
            if late {
                rest.extend(ends);
            }
            stage.update.ops = rest;
            stage.place_storages();
        }
        broken
    };
    assert_caught(&edit(false), 1, "no sum over both copies");
    assert_caught(&edit(true), 1, "the sum over both copies after the update");
}

/// Put-off weight gradients are added once, on the right microbatch's values.
#[test]
fn put_off_weight_gradients_count_once() {
    let program = staged(&model(2), "z=2,pipe=2", Schedule::ZeroBubble, 3, None);
    assert!(prove(&program, 1).unwrap().ok);
    let mut tried = 0;
    for (place, op) in operations(&program).into_iter().filter(|(place, _)| place.list == 2) {
        let adds = match &op.operation {
            Operation::Gemm(_) => Write::Accumulate,
            Operation::Accumulate(_) => Write::AccumulateMicrobatches,
            _ => continue,
        };
        let twice = edited_at(&program, place, |ops, at| {
            let mut again = *op;
            if let Operation::Gemm(kind::Gemm { write, .. }) | Operation::Accumulate(kind::Accumulate { write, .. }) =
                &mut again.operation
            {
                *write = adds;
            }
            ops.insert(at + 1, again);
        });
        assert_caught(&twice, 1, &format!("{} twice at {place:?}", op.operation.name()));
        let never = edited_at(&program, place, |ops, at| _ = ops.remove(at));
        assert_caught(&never, 1, &format!("no {} at {place:?}", op.operation.name()));
        tried += 1;
    }
    // Two stages: a product and a sum for four weights each, and for the table's copy; the embedding has only the sum.
    assert_eq!(tried, 2 * (4 + 4) + 2 + 1);
}
