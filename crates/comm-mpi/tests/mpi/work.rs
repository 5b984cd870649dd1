//! What ranks compute together.

use std::error::Error;
use std::process::ExitCode;

use quadrille_comm::{Element, Group, JobOptions, Pending, RankContext, Reduction, World, run_job};
use quadrille_spec::{Algorithm, Choice, Nodes, Routing};

use crate::{Case, Outcome};

pub(crate) type Done = Result<(), Box<dyn Error + Send + Sync>>;

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case { name: "native_4", ranks: 4, body: native, check: passed },
        Case { name: "native_3", ranks: 3, body: native, check: passed },
        Case { name: "ring_4", ranks: 4, body: || algorithm(Algorithm::Ring), check: passed },
        Case { name: "ring_3", ranks: 3, body: || algorithm(Algorithm::Ring), check: passed },
        Case { name: "recursive_4", ranks: 4, body: || algorithm(Algorithm::Recursive), check: passed },
        Case { name: "recursive_5", ranks: 5, body: || algorithm(Algorithm::Recursive), check: passed },
        Case { name: "hierarchical_6", ranks: 6, body: || algorithm(Algorithm::Hierarchical), check: passed },
        Case { name: "messages", ranks: 4, body: messages, check: passed },
        Case { name: "results", ranks: 3, body: results, check: passed },
        Case { name: "alone", ranks: 1, body: alone, check: passed },
        Case { name: "many", ranks: 16, body: many, check: passed },
    ]
}

pub(crate) fn passed(outcome: &Outcome) {
    assert!(outcome.success, "the ranks succeed:\n{}", outcome.output);
    outcome.says("all is well");
}

/// Runs a job as this process's rank, and ends as a program should.
pub(crate) fn job(options: impl Fn(&World) -> JobOptions, body: impl Fn(&RankContext) -> Done + Sync) -> ExitCode {
    let world = quadrille_comm_mpi::initialize().expect("the library works");
    let options = JobOptions { world: Some(world.clone()), ..options(&world) };
    match run_job(&options, body) {
        Ok(_) => end(world),
        Err(failure) => {
            if world.reports(&failure) {
                eprintln!("error: {failure}");
            }
            world.abandon(1)
        }
    }
}

fn end(world: World) -> ExitCode {
    let rank = world.rank();
    world.finish().expect("all come to the end");
    if rank == 0 {
        println!("all is well");
    }
    ExitCode::SUCCESS
}

pub(crate) fn everyone(context: &RankContext) -> Result<Group, quadrille_comm::Aborted> {
    context.group("world", &(0..context.ranks()).collect::<Vec<_>>())
}

fn native() -> ExitCode {
    algorithm(Algorithm::Native)
}

fn algorithm(algorithm: Algorithm) -> ExitCode {
    let options = |world: &World| JobOptions {
        routing: Routing { nodes: Nodes::equal(world.size(), 3), choice: Choice::Always(algorithm), grid: None },
        ..JobOptions::new(world.size())
    };
    job(options, |context| {
        for elements in [0, 1, 12, 1000, 300_000] {
            collectives::<f32>(context, elements, |value| value as f32)?;
        }
        // Around a segment of 128 KiB and the eight that are under way at a time.
        for elements in [32_767, 32_769, 262_145] {
            collectives::<f32>(context, elements, |value| value as f32)?;
        }
        for elements in [37, 65_537] {
            collectives::<half::bf16>(context, elements, |value| half::bf16::from_f32(value as f32))?;
            collectives::<half::f16>(context, elements, |value| half::f16::from_f32(value as f32))?;
        }
        for elements in [5, 16_384, 16_385] {
            collectives::<f64>(context, elements, |value| value as f64)?;
        }
        Ok(())
    })
}

/// Every collective in two overlapping groups, with small whole numbers: sums are exact in any order.
fn collectives<T: Element + std::fmt::Debug>(context: &RankContext, each: usize, number: fn(usize) -> T) -> Done {
    let all: Vec<usize> = (0..context.ranks()).collect();
    let backwards: Vec<usize> = all.iter().rev().copied().collect();
    for (name, members) in [("world", &all), ("backwards", &backwards)] {
        let group = context.group(name, members)?;
        let g = group.size();
        let me = group.index();
        let value = |member: usize, i: usize| (member * 7 + i * 3) % 11;
        let own = |n: usize| (0..n).map(|i| number(value(me, i))).collect::<Vec<T>>();
        let sum = |i: usize| number((0..g).map(|member| value(member, i)).sum());
        let n = g * each;

        let reduced = context.all_reduce(&group, Reduction::Sum, own(each));
        let greatest = context.all_reduce(&group, Reduction::Max, own(each));
        let scattered = context.reduce_scatter(&group, own(n), vec![number(0); each]);
        let gathered = context.all_gather(&group, own(each), vec![number(0); n]);
        assert_eq!(reduced.wait()?, (0..each).map(sum).collect::<Vec<T>>(), "all-reduce of {each}");
        let most = |i: usize| number((0..g).map(|member| value(member, i)).max().unwrap_or(0));
        assert_eq!(greatest.wait()?, (0..each).map(most).collect::<Vec<T>>(), "maximum of {each}");
        assert_eq!(scattered.wait()?.1, (me * each..(me + 1) * each).map(sum).collect::<Vec<T>>(), "reduce-scatter");
        let everyones: Vec<T> = (0..n).map(|i| number(value(i / each.max(1), i % each.max(1)))).collect();
        assert_eq!(gathered.wait()?.1, everyones, "all-gather of {each}");

        let mut within = vec![number(0); n];
        within[me * each..(me + 1) * each].copy_from_slice(&own(each));
        assert_eq!(context.all_gather_in_place(&group, within).wait()?, everyones, "all-gather in place");
        let scattered = context.reduce_scatter_in_place(&group, own(n)).wait()?;
        let expected = |i: usize| if i / each.max(1) == me { sum(i) } else { number(value(me, i)) };
        assert_eq!(scattered, (0..n).map(expected).collect::<Vec<T>>(), "reduce-scatter in place");
        for root in 0..g {
            let expected: Vec<T> = (0..each).map(|i| number(value(root, i))).collect();
            assert_eq!(context.broadcast(&group, root, own(each)).wait()?, expected, "broadcast from {root}");
            let expected = if me == root { (0..each).map(sum).collect() } else { own(each) };
            assert_eq!(context.reduce(&group, root, own(each)).wait()?, expected, "reduce to {root}");
        }
        let swapped = context.all_to_all(&group, own(n), vec![number(1); n]).wait()?.1;
        let expected = |i: usize| number(value(i / each.max(1), me * each + i % each.max(1)));
        assert_eq!(swapped, (0..n).map(expected).collect::<Vec<T>>(), "all-to-all");
        context.barrier(&group).wait()?;
    }
    Ok(())
}

/// Messages out of the order of their tags, long and short ones, waits for any, and collectives meanwhile.
fn messages() -> ExitCode {
    job(
        |world| JobOptions::new(world.size()),
        |context| {
            let group = everyone(context)?;
            let g = group.size();
            let me = group.index();
            let next = (me + 1) % g;
            let previous = (me + g - 1) % g;
            let tags = [5u32, 0, quadrille_comm::transport::MESSAGE_TAGS - 1, 7];
            let length = |tag: u32| if tag == 7 { 1_000_000 } else { 3 + tag as usize % 5 };
            context.record_spans(true);
            let receives: Vec<Pending<Vec<f64>>> =
                tags.iter().rev().map(|tag| context.receive(&group, previous, *tag, vec![0.0; length(*tag)])).collect();
            let sum = context.all_reduce(&group, Reduction::Sum, vec![1.0f32; 70_000]);
            let send = |tag: &u32| context.send(&group, next, *tag, vec![me as f64 + f64::from(*tag); length(*tag)]);
            let sends: Vec<_> = tags.iter().map(send).collect();
            assert_eq!(sum.wait()?, vec![g as f32; 70_000]);
            let mut waiting: Vec<(u32, Pending<Vec<f64>>)> = tags.into_iter().rev().zip(receives).collect();
            while let Some(first) =
                Pending::wait_for_any(&waiting.iter().map(|(_, pending)| pending).collect::<Vec<_>>())
            {
                let (tag, pending) = waiting.remove(first);
                assert!(pending.is_done());
                assert_eq!(pending.wait()?, vec![previous as f64 + f64::from(tag); length(tag)]);
            }
            for send in sends {
                send.wait()?;
            }
            assert_eq!(context.take_spans().len(), 2 * tags.len() + 1);
            // Messages of one tag keep their order.
            let sends: Vec<_> = (0..50).map(|i| context.send(&group, next, 1, vec![i as f32; 1 + i % 3])).collect();
            for i in 0..50 {
                assert_eq!(
                    context.receive(&group, previous, 1, vec![0.0; 1 + i % 3]).wait()?,
                    vec![i as f32; 1 + i % 3]
                );
            }
            for send in sends {
                send.wait()?;
            }
            // One that nobody receives does not outlive its job.
            if me == 0 {
                drop(context.receive(&group, 1, 99, vec![0f32; 4]));
            }
            Ok(())
        },
    )
}

/// All processes get all results, bit for bit, of several jobs.
fn results() -> ExitCode {
    let world = quadrille_comm_mpi::initialize().expect("the library works");
    assert_eq!((world.nodes().count(), world.hosts().len()), (1, world.size()));
    let options = JobOptions { world: Some(world.clone()), ..JobOptions::new(world.size()) };
    for round in 0..3u64 {
        let strange = [f64::NAN.to_bits() | 1 | round, (-0.0f64).to_bits(), f64::INFINITY.to_bits(), 1];
        let results = run_job(&options, |context| {
            let group = everyone(context)?;
            let sum = context.all_reduce(&group, Reduction::Sum, vec![round as f32; 1 << 10]).wait()?;
            let numbers: Vec<f64> = strange.iter().map(|bits| f64::from_bits(*bits)).collect();
            let long = vec![context.rank() as u32; 100_000 * context.rank()];
            Ok((context.rank(), numbers, sum[0], long, Some("text".to_owned())))
        });
        let results = results.expect("the job succeeds");
        assert_eq!(results.len(), world.size());
        for (rank, (named, numbers, sum, long, text)) in results.into_iter().enumerate() {
            assert_eq!((rank, sum, text.as_deref()), (named, 3.0 * round as f32, Some("text")));
            assert_eq!(numbers.iter().map(|number| number.to_bits()).collect::<Vec<_>>(), strange);
            assert_eq!(long, vec![rank as u32; 100_000 * rank]);
        }
    }
    end(world)
}

fn alone() -> ExitCode {
    job(
        |world| JobOptions::new(world.size()),
        |context| {
            let group = everyone(context)?;
            assert_eq!(context.all_reduce(&group, Reduction::Sum, vec![2.0f32]).wait()?, [2.0]);
            Ok(())
        },
    )
}

/// Many more ranks than cores.
fn many() -> ExitCode {
    let options = |world: &World| JobOptions {
        routing: Routing {
            nodes: Nodes::equal(world.size(), 4),
            choice: Choice::Always(Algorithm::Hierarchical),
            grid: None,
        },
        ..JobOptions::new(world.size())
    };
    job(options, |context| {
        let group = everyone(context)?;
        for round in 0..20 {
            let sum = context.all_reduce(&group, Reduction::Sum, vec![round as f32; 1000]).wait()?;
            assert_eq!(sum, vec![(round * context.ranks()) as f32; 1000]);
        }
        Ok(())
    })
}
