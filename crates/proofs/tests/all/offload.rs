//! Optimizer states in the host's memory or in files: buckets of any size change no bit, what moves is what the closed form says, and an
//! update in another order than the program's is noticed.

use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;
use quadrille_checkpoint::{Checkpoint, Folder};
use quadrille_engine::{
    DivergencePolicy, Hyper, OnDivergence, OnSaveFailure, Saving, Start, TrainOptions, random_batch, train_on_cpu,
};
use quadrille_proofs::{
    SEED, Trajectory, assert_caught, assert_stopped, combined_cases, for_random, hyper, layout, model, program, prove,
    rebuilt, trajectory_with, with_update,
};
use quadrille_spec::{
    Activations, CollectiveKind, ElementType, HOST, Layout, MemoryClass, Offload, Overlap, RankLedger, Zero,
};
use quadrille_step::{BucketId, Op, Operation, Parameter, StageProgram, StepProgram, kind, predict};

use crate::checkpoints;

/// Sizes of buckets: of an element, not a divisor of anything, several a parameter, and all in one.
const SIZES: [usize; 5] = [1, 7, 64, 1000, Layout::BUCKET];

fn offloaded(program: &StepProgram, bucket: usize) -> StepProgram {
    rebuilt(program, |layout| (layout.offload, layout.bucket) = (Offload::Host, bucket))
}

/// What a run of three steps computed, and what it counted; clipping is at work.
fn run(program: &StepProgram, threads: usize) -> (Vec<Trajectory>, Vec<RankLedger>) {
    let ranks = trajectory_with(program, 3, threads, hyper(Some(0.01))).unwrap();
    let ledgers = ranks.iter().map(|rank| rank.ledger.clone().unwrap()).collect();
    (ranks.into_iter().map(|rank| Trajectory { ledger: None, ..rank }).collect(), ledgers)
}

fn of_grid(grid: &str, zero: Zero, dtype: ElementType) -> StepProgram {
    let model = model(2);
    let layout = layout(&model, grid, Activations::Scattered, Overlap::ALL, 8, 4);
    StepProgram::new(&model, &Layout { zero, ..layout.stored_in(dtype) }).unwrap()
}

#[test]
fn buckets_of_any_size_change_no_bit() {
    for (grid, zero, dtype) in [
        ("x=2,data=2", Zero::Off, ElementType::F32),
        ("data=2,pipe=2", Zero::Optimizer, ElementType::Bf16),
        ("z=2,data=2", Zero::Gradients, ElementType::F64),
        ("y=2", Zero::Off, ElementType::F16),
    ] {
        let plain = of_grid(grid, zero, dtype);
        let (reference, _) = run(&plain, 1);
        for size in SIZES {
            let offloaded = offloaded(&plain, size);
            let (bits, counted) = run(&offloaded, 1 + size % 2);
            assert!(bits == reference, "{grid}, {dtype}, buckets of {size}");
            assert_eq!(counted, predict(&offloaded).ranks, "{grid}, {dtype}, buckets of {size}");
        }
    }
}

#[test]
fn random_layouts_change_no_bit() {
    for_random(10, (combined_cases(), prop::sample::select(SIZES.to_vec())), |(case, size)| {
        let plain = rebuilt(&case.program(case.layout.dtype), |layout| {
            (layout.offload, layout.optimizer_overlap) = (Offload::None, false);
        });
        let offloaded = offloaded(&plain, size);
        let (bits, counted) = run(&offloaded, 1);
        prop_assert!(bits == run(&plain, 1).0, "{:?}", offloaded.layout);
        prop_assert_eq!(counted, predict(&offloaded).ranks);
        Ok(())
    });
}

/// Bytes of states for an element of a parameter: 12 where it has a master in f32, else two moments.
fn state_bytes(stage: &StageProgram, parameter: &Parameter, real: u64) -> u64 {
    let stored = stage.element_bytes(parameter.value);
    (if stored < real { 3 } else { 2 }) * real
}

#[test]
fn all_states_move_once_each_way() {
    for (dtype, real) in [(ElementType::F32, 4), (ElementType::Bf16, 4), (ElementType::F64, 8)] {
        for zero in [Zero::Off, Zero::Optimizer] {
            let plain = of_grid("x=2,data=2", zero, dtype);
            let offloaded = offloaded(&plain, 100);
            let before = predict(&plain);
            let after = predict(&offloaded);
            for (plain, ledger) in before.ranks.iter().zip(&after.ranks) {
                let stage = offloaded.of_rank(ledger.rank);
                let of = |parameter: &Parameter| {
                    stage.value(parameter.updated).local_elements as u64 * state_bytes(stage, parameter, real)
                };
                let bytes: u64 = stage.parameters.iter().map(of).sum();
                let moved = |kind| (ledger.axes[HOST][&kind].payload_bytes, ledger.axes[HOST][&kind].wire_bytes);
                assert_eq!([CollectiveKind::Fetch, CollectiveKind::Store].map(moved), [(bytes, 0); 2]);
                assert_eq!(ledger.memory.peak_of[&MemoryClass::Host], bytes);
                // Two buckets of at most 100 elements, with masters or without, stay on the device.
                let room = ledger.memory.peak_of[&MemoryClass::Optimizer];
                let [moments, masters] = [2 * 100 * 2 * real, 2 * 100 * real];
                match dtype {
                    ElementType::Bf16 => assert!((moments + 1..=moments + masters).contains(&room), "{room}"),
                    _ => assert_eq!(room, moments),
                }
                assert_eq!(plain.memory.peak_of[&MemoryClass::Optimizer], bytes);
                assert_eq!(ledger.memory.peak + bytes, plain.memory.peak + room);
                assert_eq!(ledger.memory.allocated + bytes, plain.memory.allocated + room);
                assert!(!plain.axes.contains_key(HOST) && !plain.memory.peak_of.contains_key(&MemoryClass::Host));
            }
        }
    }
}

/// A step whose gradient is not applied moves states and changes none.
#[test]
fn steps_that_are_skipped_change_no_state() {
    let plain = of_grid("x=2,data=2", Zero::Optimizer, ElementType::F32);
    let records = |program: &StepProgram| {
        let divergence = DivergencePolicy { action: OnDivergence::Skip, largest_loss: Some(0.999) };
        let options = TrainOptions { divergence, ..TrainOptions::new(20, hyper(None), SEED) };
        let batch = random_batch(&program.model, SEED, program.model.seq_len);
        let outcome = train_on_cpu(program, &options, &batch, None, &mut |_| Ok(())).unwrap();
        assert_eq!(outcome.difference, None);
        let bits =
            outcome.records.iter().map(|record| (record.applied, record.loss.to_bits(), record.grad_norm.to_bits()));
        bits.collect::<Vec<_>>()
    };
    let reference = records(&plain);
    let applied = reference.iter().filter(|(applied, ..)| *applied).count();
    assert!((11..20).contains(&applied), "some after the tenth step are applied, and some are not: {applied}");
    assert_eq!(records(&offloaded(&plain, 64)), reference);
}

/// A gradient that is not finite is not applied either.
#[test]
fn gradients_that_are_not_finite_change_no_weight() {
    let program = offloaded(&of_grid("data=2", Zero::Off, ElementType::F32), 64);
    let hyper = Hyper { learning_rate: 1e30, ..hyper(None) };
    let after = |steps| trajectory_with(&program, steps, 1, hyper).unwrap();
    let is_finite = |run: &[Trajectory]| f64::from_bits(run[0].outcomes.last().unwrap().norm).is_finite();
    let second = after(2);
    let third = after(3);
    assert!(!is_finite(&second) && !is_finite(&third));
    let weights = |run: Vec<Trajectory>| run.into_iter().map(|rank| rank.weights).collect::<Vec<_>>();
    assert_eq!(weights(second), weights(third));
}

/// Checkpoints are the same with states on the device, in the host's memory and in files, and each is read by the others.
#[test]
fn checkpoints_go_across() {
    let plain = of_grid("x=2,data=2", Zero::Optimizer, ElementType::Bf16);
    let other = offloaded(&plain, 7);
    let train = |program: &StepProgram, states: Option<&Path>, folder: &Path, start: Start, steps| {
        let about = checkpoints::about(program, SEED, &start);
        let every = Some(2);
        let on_failure = OnSaveFailure::Stop;
        let saving = Saving { folder: folder.to_path_buf(), every, keep: 10, on_failure, about };
        let states = states.map(Path::to_path_buf);
        let options = TrainOptions::new(steps, hyper(Some(0.1)), SEED);
        let options = TrainOptions { start, states, saving: Some(saving), ..options };
        let batch = random_batch(&program.model, SEED, program.layout.seq_len);
        let outcome = train_on_cpu(program, &options, &batch, None, &mut |_| Ok(())).unwrap();
        assert_eq!(outcome.difference, None);
        Arc::new(Checkpoint::open(&Folder::new(folder).path_of(steps)).unwrap())
    };
    let folder = || tempfile::tempdir().unwrap();
    let files = folder();
    let whole = train(&plain, None, folder().path(), Start::Drawn, 4);
    for states in [None, Some(files.path())] {
        let begun = folder();
        let first = train(&other, states, begun.path(), Start::Drawn, 2);
        for (program, states) in [(&plain, None), (&other, None), (&other, Some(files.path()))] {
            let resumed = train(program, states, folder().path(), Start::Resumed(first.clone()), 4);
            assert!(checkpoints::bits(&resumed) == checkpoints::bits(&whole));
        }
    }
    assert_eq!(files.path().read_dir().unwrap().count(), 0, "files have no names");
}

/// States that have no place end the job; the error names the file, what is wrong with it, and what to do.
#[test]
fn a_rank_without_a_file_ends_the_job() {
    let program = offloaded(&of_grid("data=2", Zero::Off, ElementType::F32), 64);
    let folder = tempfile::tempdir().unwrap();
    let states = Some(folder.path().join("missing"));
    let options = TrainOptions { states, ..TrainOptions::new(1, hyper(None), SEED) };
    let batch = random_batch(&program.model, SEED, program.layout.seq_len);
    let error = train_on_cpu(&program, &options, &batch, None, &mut |_| Ok(())).unwrap_err().to_string();
    let file = folder.path().join("missing").join("quadrille-states-rank-").display().to_string();
    assert!(error.contains(&file) && error.contains("cannot create") && error.contains("name a folder"), "{error}");
}

/// Three buckets or more on one rank, in f64.
fn unbroken() -> StepProgram {
    let program = program(&model(1), "x=1", Activations::Scattered, Overlap::NONE, 4, 2);
    let updated: usize =
        program.stages[0].parameters.iter().map(|it| program.stages[0].value(it.updated).local_elements).sum();
    let program = offloaded(&program, updated.div_ceil(4));
    assert_eq!(program.stages[0].buckets.len(), 4);
    let report = prove(&program, 3).unwrap();
    assert!(report.ok, "{report:?}");
    program
}

#[test]
fn a_bucket_is_updated_once() {
    let program = unbroken();
    for bucket in 0..4 {
        let of_bucket = |op: &Op| match op.operation {
            Operation::AdamW(kind::AdamW { run, .. }) => run.unwrap().bucket == BucketId(bucket),
            _ => false,
        };
        let skipped = with_update(&program, |op| if of_bucket(op) { vec![] } else { vec![op.operation] });
        assert_caught(&skipped, 1, &format!("bucket {bucket} is skipped"));
        let twice = with_update(&program, |op| vec![op.operation; if of_bucket(op) { 2 } else { 1 }]);
        assert_caught(&twice, 1, &format!("bucket {bucket} is updated twice"));
    }
}

#[test]
fn a_bucket_is_updated_from_its_own_states() {
    let program = unbroken();
    for bucket in 0..4 {
        let id = BucketId(bucket);
        let not_fetched = with_update(&program, |op| match op.operation {
            Operation::Fetch(it) if it.bucket == id => vec![],
            Operation::AwaitFetch(it) if it.bucket == id => vec![],
            operation => vec![operation],
        });
        // In the first step all states are zero: the second needs what the first has stored.
        assert_caught(&not_fetched, 3, &format!("bucket {bucket} is not fetched"));
        let not_stored = with_update(&program, |op| match op.operation {
            Operation::Store(it) if it.bucket == id => vec![],
            Operation::AwaitStore(it) if it.bucket == id => vec![],
            operation => vec![operation],
        });
        assert_caught(&not_stored, 3, &format!("bucket {bucket} is not stored"));
        let other = BucketId((bucket + 2) % 4);
        let from_other = with_update(&program, |op| match op.operation {
            Operation::Store(it) if it.bucket == id => vec![kind::Store { bucket: other }.into()],
            Operation::AwaitStore(it) if it.bucket == id => vec![kind::AwaitStore { bucket: other }.into()],
            operation => vec![operation],
        });
        assert!(!prove(&from_other, 3).is_ok_and(|report| report.ok), "bucket {bucket} is stored in another's place");
    }
}

#[test]
fn what_is_waited_for_was_begun() {
    let program = unbroken();
    let never = with_update(&program, |op| match op.operation {
        Operation::Fetch(it) if it.bucket == BucketId(3) => vec![],
        operation => vec![operation],
    });
    assert_stopped(&never, &["fetch of bucket 3"], "bucket 3 is waited for");
}
