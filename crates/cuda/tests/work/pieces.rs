//! Every piece of work is what the processor does, and is done when it is said to be.

use std::error::Error;

use quadrille_comm::{Group, JobOptions, RankContext, run_ranks};
use quadrille_cuda::DeviceKind;
use quadrille_engine::{Device, Processor, Sweep, Work};
use quadrille_spec::{CollectiveKind, ElementType};
use quadrille_tensor::Transpose;

use crate::device;

type Outcome<R> = Result<R, Box<dyn Error + Send + Sync>>;

/// Types that devices store, and how far results may be apart, of the largest.
const TYPES: [(ElementType, f64); 3] =
    [(ElementType::F64, 1e-12), (ElementType::F32, 1e-5), (ElementType::Bf16, 1.0 / 128.0)];

/// What a rank does by itself.
fn operations() -> Vec<Work> {
    let products = Transpose::ALL.map(|layout| Work::Product { layout, shape: [24, 40, 16] });
    let attention = [false, true].map(|backward| Work::Attention { backward, shape: [20, 16, 2] });
    let sweeps = [Sweep::Residual, Sweep::AdamW, Sweep::BiasGelu, Sweep::GeluBackward];
    let sweeps = sweeps.map(|sweep| Work::Sweep { sweep, elements: 5 * 64 });
    products.into_iter().chain(attention).chain(sweeps).chain([Work::HostCopy { bytes: 800 }]).collect()
}

/// What a group does.
fn collectives(group: &Group) -> Vec<Work> {
    let kinds = [
        CollectiveKind::AllReduce,
        CollectiveKind::AllGather,
        CollectiveKind::ReduceScatter,
        CollectiveKind::Broadcast,
        CollectiveKind::AllToAll,
        CollectiveKind::Send,
    ];
    kinds.map(|kind| Work::Collective { kind, group: group.clone(), bytes: 480 }).into()
}

/// What one repetition of each piece of work leaves on a rank, and three more; `done` is asked when it has returned on all.
fn results(
    device: &dyn Device,
    dtype: ElementType,
    context: &RankContext,
    done: &dyn Fn() -> bool,
) -> Outcome<Vec<Vec<f64>>> {
    let everyone = context.group("world", &(0..context.ranks()).collect::<Vec<_>>())?;
    let work = if context.ranks() == 1 { operations() } else { collectives(&everyone) };
    let bench = device.workbench(dtype, context, 1)?;
    let mut results = Vec::new();
    for work in work {
        let mut prepared = bench.prepare(&work)?;
        let mut before = prepared.result()?;
        for times in [1, 3] {
            context.barrier(&everyone).wait()?;
            prepared.repeat(times)?;
            context.barrier(&everyone).wait()?;
            assert!(done(), "work has returned, and is not done");
            context.barrier(&everyone).wait()?;
            let after = prepared.result()?;
            assert!(context.ranks() > 1 || times > 1 || before != after, "something is done");
            results.push(after.clone());
            before = after;
        }
    }
    Ok(results)
}

/// The results of so many ranks, by rank.
fn on_ranks(
    device: &dyn Device,
    dtype: ElementType,
    ranks: usize,
    done: &(dyn Fn() -> bool + Sync),
) -> Vec<Vec<Vec<f64>>> {
    run_ranks(&JobOptions::new(ranks), |context| results(device, dtype, context, done)).unwrap()
}

/// On two ranks, of which the first has ones and the second has twos, 480 bytes.
#[test]
fn collectives_leave_what_their_kinds_say() {
    let (_emulated, _alone) = device();
    let halves = |first: f64, second: f64| [vec![first; 30], vec![second; 30]].concat();
    for device in [&Processor as &dyn Device, &DeviceKind::Emulated] {
        let found = on_ranks(device, ElementType::F64, 2, &|| true);
        let expected = [vec![3.0; 60], halves(1.0, 2.0), vec![3.0; 30], vec![1.0; 60], halves(1.0, 2.0), vec![1.0; 60]];
        // What further repetitions leave is between them.
        for (rank, found) in found.iter().enumerate() {
            let once: Vec<_> = found.iter().step_by(2).cloned().collect();
            assert_eq!(once, expected, "rank {rank}");
        }
    }
}

/// What is repeated is done as often: a residual is added each time.
#[test]
fn repetitions_are_all_done() {
    let (_emulated, _alone) = device();
    for device in [&Processor as &dyn Device, &DeviceKind::Emulated] {
        let residual = Work::Sweep { sweep: Sweep::Residual, elements: 64 };
        let of = |times: usize| {
            let repeated = |context: &RankContext| -> Outcome<Vec<f64>> {
                let bench = device.workbench(ElementType::F64, context, 1)?;
                let mut prepared = bench.prepare(&residual)?;
                if times > 0 {
                    prepared.repeat(times)?;
                }
                Ok(prepared.result()?)
            };
            run_ranks(&JobOptions::new(1), repeated).unwrap().remove(0)
        };
        let [none, one, five] = [0, 1, 5].map(of);
        for at in 0..64 {
            let added = one[at] - none[at];
            assert!(added != 0.0 && (five[at] - none[at] - 5.0 * added).abs() < 1e-9, "{at}");
        }
    }
}

#[test]
fn pieces_of_work_are_the_processors_and_done_when_they_return() {
    let (emulated, _alone) = device();
    for (dtype, apart) in TYPES {
        for ranks in [1, 2] {
            let expected = on_ranks(&Processor, dtype, ranks, &|| true);
            let found = on_ranks(&DeviceKind::Emulated, dtype, ranks, &|| emulated.is_idle());
            for (at, (found, expected)) in found.iter().flatten().zip(expected.iter().flatten()).enumerate() {
                assert!(found.len() == expected.len() && !found.is_empty(), "{dtype}, {at}: as many numbers");
                let largest = expected.iter().fold(0.0, |largest: f64, number| largest.max(number.abs()));
                let far = found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
                assert!(far <= apart * largest, "{dtype}, {ranks} ranks, {at}: {far:e} of {largest:e}");
            }
        }
    }
}
