//! Negative controls of memory and order: storages that are given back too early, share a buffer or have too few copies end
//! the job; those that live too long change the ledger; microbatches that pass in another order change the numbers.

use quadrille_proofs::{assert_caught, assert_stopped, model, program_with, prove, trajectory};
use quadrille_spec::{RankLedger, Schedule};
use quadrille_step::schedule::{Action, Pass, Step};
use quadrille_step::{ChunkProgram, Placement, Section, StageProgram, StepProgram, StorageId, predict};

/// Two microbatches on two ranks of x and of z.
fn unbroken() -> StepProgram {
    proved(program_with(&model(1), "x=2,z=2", 8, |request| request.microbatch = Some(4)))
}

/// `microbatches` microbatches on the stages of `grid`.
fn staged(grid: &str, schedule: Schedule, microbatches: usize) -> StepProgram {
    proved(program_with(&model(2), grid, microbatches, |request| {
        request.schedule = schedule;
        request.microbatch = Some(1);
    }))
}

fn proved(program: StepProgram) -> StepProgram {
    let report = prove(&program, 1).unwrap();
    assert!(report.ok, "{report:?}");
    program
}

/// Passes of the first chunk, and the update.
fn sections(stage: &mut StageProgram) -> [&mut Section; 4] {
    let ChunkProgram { forward, backward, weight_gradient, .. } = &mut stage.chunks[0];
    [forward, backward, weight_gradient, &mut stage.update]
}

/// `program` with memory of one stage as `change` leaves it: nothing is computed from the operations again.
fn with_memory(program: &StepProgram, stage: usize, change: impl FnOnce(&mut StageProgram)) -> StepProgram {
    let mut edited = program.clone();
    change(&mut edited.stages[stage]);
    edited
}

/// The name by which errors call a storage.
fn name(stage: &StageProgram, storage: StorageId) -> &str {
    &stage.values.iter().rev().find(|value| value.storage == storage).unwrap().name
}

#[test]
fn rejects_storages_given_back_before_their_last_use() {
    let program = unbroken();
    let mut tried = 0;
    for list in 0..4 {
        let lifetimes = sections(&mut program.stages[0].clone())[list].lifetimes.clone();
        for (at, deaths) in lifetimes.deaths.iter().enumerate().skip(1) {
            // What the last operation makes for itself has no earlier place.
            for storage in deaths.iter().filter(|storage| !lifetimes.births[at].contains(storage)) {
                let early = with_memory(&program, 0, |stage| {
                    let deaths = &mut sections(stage)[list].lifetimes.deaths;
                    deaths[at].retain(|each| each != storage);
                    deaths[at - 1].push(*storage);
                });
                let name = name(&program.stages[0], *storage);
                assert_stopped(&early, &[name], &format!("{name} is given back too early"));
                tried += 1;
            }
        }
    }
    assert!(tried > 60, "{tried}");
}

#[test]
fn rejects_one_buffer_for_storages_that_live_at_once() {
    let program = unbroken();
    let stage = &program.stages[0];
    let mut living: Vec<StorageId> = Vec::new();
    let mut tried = 0;
    for section in sections(&mut stage.clone()) {
        for (births, deaths) in section.lifetimes.births.iter().zip(&section.lifetimes.deaths) {
            for storage in births {
                let bytes = |storage: &StorageId| stage.storages[storage.0].bytes();
                if let Some(other) = living.iter().rfind(|other| bytes(other) >= bytes(storage)) {
                    let shared = with_memory(&program, 0, |stage| {
                        stage.placement.buffer_of[storage.0] = stage.placement.buffer_of[other.0];
                    });
                    let names = [*storage, *other].map(|each| name(stage, each));
                    assert_stopped(&shared, &["while it is not there"], &format!("{names:?} share a buffer"));
                    tried += 1;
                }
                living.push(*storage);
            }
            living.retain(|storage| !deaths.contains(storage));
        }
    }
    assert!(tried > 60, "{tried}");
}

#[test]
fn rejects_fewer_copies_than_microbatches_in_flight() {
    let program = staged("pipe=2", Schedule::OneForwardOneBackward, 4);
    let stage = &program.stages[0];
    let several: Vec<_> = (0..stage.storages.len()).filter(|index| stage.storages[*index].instances > 1).collect();
    assert!(several.len() > 10, "{several:?}");
    for index in several {
        let fewer = with_memory(&program, 0, |stage| stage.storages[index].instances -= 1);
        let name = name(stage, StorageId(index));
        assert_stopped(&fewer, &["while it is not there"], &format!("{name} has a copy less"));
    }
}

/// Storages that live until the end of their pass, or the update, change no number, but the ledger.
#[test]
fn counts_storages_that_live_too_long() {
    let program = unbroken();
    let long = with_memory(&program, 0, |stage| {
        for section in sections(stage) {
            let deaths = &mut section.lifetimes.deaths;
            let all: Vec<StorageId> = deaths.iter_mut().flat_map(|deaths| deaths.drain(..)).collect();
            if let Some(last) = deaths.last_mut() {
                *last = all;
            }
        }
        stage.placement = Placement::of(&stage.chunks, &stage.update, &stage.storages, false);
    });
    assert!(prove(&long, 1).unwrap().ok, "the numbers are right");
    let counted = trajectory(&long, 1, 1).unwrap();
    for (run, predicted) in counted.into_iter().zip(predict(&program).ranks) {
        let counted = run.ledger.unwrap();
        assert_ne!(counted.memory, predicted.memory);
        assert_eq!(RankLedger { memory: predicted.memory.clone(), ..counted }, predicted);
    }
}

/// `program` with two microbatches exchanged in the passes of one kind of one stage.
fn exchanged(program: &StepProgram, stage: usize, pass: Pass, pair: [usize; 2]) -> StepProgram {
    let mut edited = program.clone();
    for step in &mut edited.stages[stage].steps {
        let (Step::Post(action) | Step::Run(action) | Step::Release(action)) = step;
        if action.pass == pass {
            let other = |microbatch| match pair.iter().position(|each| *each == microbatch) {
                Some(place) => pair[1 - place],
                None => microbatch,
            };
            *action = Action { microbatch: other(action.microbatch), ..*action };
        }
    }
    edited
}

#[test]
fn rejects_another_order_of_microbatches() {
    let whole = staged("x=2", Schedule::Gpipe, 3);
    for pair in [[0, 1], [0, 2]] {
        let broken = exchanged(&whole, 0, Pass::Backward, pair);
        assert_caught(&broken, 1, &format!("gradients of microbatches {pair:?} in another order"));
    }
    let piped = staged("pipe=2", Schedule::Gpipe, 3);
    for pass in [Pass::Forward, Pass::Backward] {
        for stage in [0, 1] {
            // Both use the same copy of a storage of which there are two.
            let broken = exchanged(&piped, stage, pass, [0, 2]);
            assert_caught(&broken, 1, &format!("{pass} of microbatches 0 and 2 in another order on stage {stage}"));
        }
    }
}
