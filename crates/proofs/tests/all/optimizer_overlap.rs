//! Buckets that are updated before the norm of the gradient is known: the bits are those of the update in two phases, whether
//! the update stays, is done again or is taken back; each case moves what is predicted of it; and what is done wrong is noticed.

use quadrille_engine::{
    DivergencePolicy, EngineError, LossScale, OnDivergence, StepRecord, TrainOptions, random_batch, train_on_cpu,
};
use quadrille_proofs::{
    SEED, Trajectory, assert_caught, edited, hyper, layout, model, program, prove, rebuilt, trajectory_with,
    with_update,
};
use quadrille_spec::{
    Activations, CollectiveKind, ElementType, HOST, Layout, MemoryClass, Offload, Overlap, RankLedger, Routing, Zero,
};
use quadrille_step::{BucketId, Op, Operation, StepProgram, Verdict, When, kind, predict, predict_after};

fn of_grid(grid: &str, zero: Zero, dtype: ElementType) -> StepProgram {
    let model = model(2);
    let layout = layout(&model, grid, Activations::Scattered, Overlap::ALL, 8, 4);
    StepProgram::new(&model, &Layout { zero, ..layout.stored_in(dtype) }).unwrap()
}

fn overlapping(program: &StepProgram, bucket: usize) -> StepProgram {
    rebuilt(program, |layout| {
        (layout.offload, layout.bucket, layout.optimizer_overlap) = (Offload::Host, bucket, true);
    })
}

fn after(program: &StepProgram, verdict: Verdict) -> Vec<RankLedger> {
    predict_after(program, &Routing::native(program.layout.grid.ranks()), verdict).ranks
}

/// What three steps computed, and the ledgers of the last.
fn run(program: &StepProgram, threads: usize, clip: Option<f64>) -> (Vec<Trajectory>, Vec<RankLedger>) {
    let ranks = trajectory_with(program, 3, threads, hyper(clip)).unwrap();
    let ledgers = ranks.iter().map(|rank| rank.ledger.clone().unwrap()).collect();
    (ranks.into_iter().map(|rank| Trajectory { ledger: None, ..rank }).collect(), ledgers)
}

#[test]
fn bits_are_those_of_the_update_in_two_phases() {
    for (grid, zero, dtype) in [
        ("x=2,data=2", Zero::Off, ElementType::F32),
        ("data=2,pipe=2", Zero::Optimizer, ElementType::Bf16),
        ("z=2,data=2", Zero::Gradients, ElementType::F64),
        ("y=2", Zero::Off, ElementType::F16),
    ] {
        let plain = of_grid(grid, zero, dtype);
        for (clip, verdict) in [(None, Verdict::Kept), (Some(0.01), Verdict::Repeated)] {
            let (reference, _) = run(&plain, 1, clip);
            for size in [1, 64, 1000, Layout::BUCKET] {
                let overlapping = overlapping(&plain, size);
                let (bits, counted) = run(&overlapping, 1 + size % 2, clip);
                assert!(bits == reference, "{grid}, {dtype}, buckets of {size}, {verdict:?}");
                assert_eq!(counted, after(&overlapping, verdict), "{grid}, {dtype}, buckets of {size}, {verdict:?}");
            }
        }
    }
}

/// Twenty steps of which those with a large loss are skipped.
fn records(program: &StepProgram, clip: Option<f64>) -> Result<Vec<StepRecord>, EngineError> {
    let divergence = DivergencePolicy { action: OnDivergence::Skip, largest_loss: Some(0.999) };
    let options = TrainOptions { divergence, ..TrainOptions::new(20, hyper(clip), SEED) };
    let batch = random_batch(&program.model, SEED, program.model.seq_len);
    let outcome = train_on_cpu(program, &options, &batch, None, &mut |_| Ok(()))?;
    assert_eq!(outcome.difference, None);
    Ok(outcome.records)
}

fn bits(records: &[StepRecord]) -> Vec<(bool, u64, u64)> {
    records.iter().map(|record| (record.applied, record.loss.to_bits(), record.grad_norm.to_bits())).collect()
}

/// A run with all three verdicts: what is clipped is what is above the middle of the norms.
fn mixed(plain: &StepProgram) -> (Vec<StepRecord>, f64) {
    let mut norms: Vec<f64> = records(plain, None).unwrap().iter().map(|record| record.grad_norm).collect();
    norms.sort_by(f64::total_cmp);
    (records(plain, Some(norms[10])).unwrap(), norms[10])
}

#[test]
fn steps_may_stay_be_repeated_and_be_taken_back_in_turn() {
    fn holds(dtype: ElementType, zero: Zero) {
        let plain = of_grid("x=2,data=2", zero, dtype);
        let (reference, clip) = mixed(&plain);
        let overlapped = records(&overlapping(&plain, 64), Some(clip)).unwrap();
        assert_eq!(bits(&overlapped), bits(&reference), "{dtype}");
        let times = |verdict| overlapped.iter().filter(|record| record.verdict() == verdict).count();
        let verdicts = Verdict::ALL.map(times);
        assert!(verdicts.iter().all(|times| *times > 0), "{dtype}: {verdicts:?}");
        assert!(reference.iter().all(|record| !record.repeated), "an update in two phases repeats nothing");
    }
    holds(ElementType::F32, Zero::Optimizer);
    holds(ElementType::Bf16, Zero::Off);
}

/// There are two versions of masters and moments, also where the weight is its own master; a repetition moves all once more
/// each way, and to take an update back masters alone come.
#[test]
fn each_verdict_moves_what_it_needs() {
    for dtype in [ElementType::F32, ElementType::Bf16, ElementType::F64] {
        let real = if dtype == ElementType::F64 { 8 } else { 4 };
        let overlapping = overlapping(&of_grid("x=2,data=2", Zero::Optimizer, dtype), 100);
        for rank in 0..4 {
            let stage = overlapping.of_rank(rank);
            let elements = stage
                .parameters
                .iter()
                .map(|parameter| stage.value(parameter.updated).local_elements as u64)
                .sum::<u64>();
            let all = 3 * real * elements;
            for (verdict, moved) in [
                (Verdict::Kept, [all, all]),
                (Verdict::Repeated, [2 * all, 2 * all]),
                (Verdict::Restored, [all + real * elements, all]),
            ] {
                let ledger = &after(&overlapping, verdict)[rank];
                let payload = |kind| ledger.axes[HOST][&kind].payload_bytes;
                assert_eq!([CollectiveKind::Fetch, CollectiveKind::Store].map(payload), moved, "{dtype}, {verdict:?}");
                assert_eq!(ledger.memory.peak_of[&MemoryClass::Host], 2 * all);
            }
        }
        assert_eq!(predict(&overlapping).ranks, after(&overlapping, Verdict::Kept));
    }
}

/// Updates begin as soon as their own gradients are there: before the last reduction has arrived, where there are many.
#[test]
fn updates_run_under_reductions() {
    let overlapping = overlapping(&of_grid("data=2", Zero::Off, ElementType::F32), 500);
    let ops = &overlapping.stages[0].update.ops;
    let at = |of: &dyn Fn(&Op) -> bool| ops.iter().position(of).unwrap();
    let last = |of: &dyn Fn(&Op) -> bool| ops.iter().rposition(of).unwrap();
    let is_update = |op: &Op| matches!(op.operation, Operation::AdamW(_)) && op.when == When::Always;
    let waits = |op: &Op| matches!(op.operation, Operation::Wait(_));
    assert!(at(&is_update) < last(&waits));
    // Every bucket is updated when the first of the reductions behind it is waited for.
    let stage = &overlapping.stages[0];
    let mut reduced = 0;
    for op in ops.iter().take(last(&waits)) {
        match op.operation {
            Operation::SumSquares(kind::SumSquares { parameter, .. }) => reduced = parameter.0,
            Operation::AdamW(kind::AdamW { run: Some(run), .. }) => {
                let needed = stage.bucket(run.bucket).runs.last().unwrap().parameter.0;
                assert_eq!(needed, reduced, "bucket {}", run.bucket.0);
            }
            _ => {}
        }
    }
}

/// Four buckets on one rank, in f64; what is proven of it is clipped in every step.
fn unbroken() -> StepProgram {
    let plain = program(&model(1), "x=1", Activations::Scattered, Overlap::NONE, 4, 2);
    let stage = &plain.stages[0];
    let updated: usize = stage.parameters.iter().map(|it| stage.value(it.updated).local_elements).sum();
    let program = overlapping(&plain, updated.div_ceil(4));
    assert_eq!(program.stages[0].buckets.len(), 4);
    let report = prove(&program, 3).unwrap();
    assert!(report.ok, "{report:?}");
    program
}

#[test]
fn a_repetition_updates_every_bucket_once_from_the_version_before() {
    let program = unbroken();
    for bucket in 0..4 {
        let of_bucket = |op: &Op| match op.operation {
            Operation::AdamW(kind::AdamW { run, .. }) => {
                op.when == When::Repeated && run.unwrap().bucket == BucketId(bucket)
            }
            _ => false,
        };
        let skipped = with_update(&program, |op| if of_bucket(op) { vec![] } else { vec![op.operation] });
        assert_caught(&skipped, 1, &format!("bucket {bucket} is not repeated"));
        let twice = with_update(&program, |op| vec![op.operation; if of_bucket(op) { 2 } else { 1 }]);
        assert_caught(&twice, 1, &format!("bucket {bucket} is repeated twice"));
    }
    let is_adopted = |op: &Op| matches!(op.operation, Operation::Adopt(_));
    let never = with_update(&program, |op| if is_adopted(op) { vec![] } else { vec![op.operation] });
    assert_caught(&never, 3, "what was stored is never fetched");
    // The second step fetches the version before the first.
    let twice = with_update(&program, |op| vec![op.operation; if is_adopted(op) { 2 } else { 1 }]);
    assert_caught(&twice, 3, "versions swap twice");
    // A repetition from what the attempt has stored.
    let early = edited(&program, |_, _, update| {
        let first = update.iter().position(|op| op.when == When::Repeated).unwrap();
        let adopt = Op { operation: kind::Adopt {}.into(), ..update[first] };
        update.insert(first, adopt);
    });
    assert_caught(&early, 1, "a repetition starts from the attempt's states");
}

/// Losses of steps that are all taken back: gradients leave the range of f16, which the loss does not tell.
fn overflowing(program: &StepProgram) -> Option<Vec<u64>> {
    let divergence = DivergencePolicy { action: OnDivergence::Skip, largest_loss: None };
    let loss_scale = Some(LossScale::Fixed(1 << 24));
    let options = TrainOptions { divergence, loss_scale, ..TrainOptions::new(3, hyper(None), SEED) };
    let batch = random_batch(&program.model, SEED, program.model.seq_len);
    let outcome = train_on_cpu(program, &options, &batch, None, &mut |_| Ok(())).ok()?;
    assert!(outcome.records.iter().all(|record| record.verdict() == Verdict::Restored));
    Some(outcome.records.iter().map(|record| record.loss.to_bits()).collect())
}

#[test]
fn an_update_is_taken_back_whole() {
    let plain = of_grid("x=2,data=2", Zero::Off, ElementType::F16);
    let reference = overflowing(&plain);
    assert!(reference.is_some());
    let program = overlapping(&plain, 150);
    assert!(overflowing(&program) == reference);
    let buckets = program.stages[0].buckets.len();
    assert!(buckets > 3);
    for bucket in 0..buckets {
        let of_bucket = |op: &Op| matches!(op.operation, Operation::Restore(it) if it.run.bucket == BucketId(bucket));
        let forgotten = edited(&program, |_, _, update| update.retain(|op| !of_bucket(op)));
        assert!(overflowing(&forgotten) != reference, "the weights of bucket {bucket} stay updated");
    }
    let adopted = edited(&program, |_, _, update| {
        let adopt = update.iter_mut().find(|op| matches!(op.operation, Operation::Adopt(_))).unwrap();
        adopt.when = When::Always;
    });
    assert!(overflowing(&adopted) != reference, "states that were taken back are fetched");
}
