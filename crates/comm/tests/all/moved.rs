//! Bytes that were moved are held against what calls come to: a collective that is carried out twice gives the right numbers,
//! and is found all the same.

use quadrille_comm::{
    Cause, CollectiveError, Element, Group, JobFailure, JobOptions, RankContext, Reduction, run_ranks,
};
use quadrille_spec::{Algorithm, Choice, CollectiveKind, Nodes, Routing};

const RANKS: usize = 4;

type Outcome = Result<(), Box<dyn std::error::Error + Send + Sync>>;

/// One collective of a kind, of `n` elements in all or in each chunk.
fn issue<T: Element>(context: &RankContext, world: &Group, kind: CollectiveKind, n: usize, in_place: bool) -> Outcome {
    let part = vec![T::default(); n];
    let whole = vec![T::default(); n * RANKS];
    match (kind, in_place) {
        (CollectiveKind::AllReduce, _) => drop(context.all_reduce(world, Reduction::Sum, part).wait()?),
        (CollectiveKind::Reduce, _) => drop(context.reduce(world, 1, part).wait()?),
        (CollectiveKind::Broadcast, _) => drop(context.broadcast(world, 1, part).wait()?),
        (CollectiveKind::ReduceScatter, false) => drop(context.reduce_scatter(world, whole, part).wait()?),
        (CollectiveKind::ReduceScatter, true) => drop(context.reduce_scatter_in_place(world, whole).wait()?),
        (CollectiveKind::AllGather, false) => drop(context.all_gather(world, part, whole).wait()?),
        (CollectiveKind::AllGather, true) => drop(context.all_gather_in_place(world, whole).wait()?),
        (CollectiveKind::AllToAll, _) => drop(context.all_to_all(world, whole.clone(), whole).wait()?),
        (
            CollectiveKind::Barrier
            | CollectiveKind::Send
            | CollectiveKind::Receive
            | CollectiveKind::Fetch
            | CollectiveKind::Store,
            _,
        ) => {
            context.barrier(world).wait()?;
        }
    }
    Ok(())
}

fn run<T: Element>(
    algorithm: Algorithm,
    kind: CollectiveKind,
    n: usize,
    in_place: bool,
    twice: Option<CollectiveKind>,
) -> Result<(), JobFailure> {
    let routing = Routing { nodes: Nodes::equal(RANKS, 2), choice: Choice::Always(algorithm), grid: None };
    let outcome = run_ranks(&JobOptions { routing, twice, ..JobOptions::new(RANKS) }, |context| {
        let world = context.group("world", &[0, 1, 2, 3])?;
        issue::<T>(context, &world, kind, n, in_place)
    });
    outcome.map(|_| ())
}

/// Small enough for one member to do the work of all, and too large.
const SIZES: [usize; 2] = [7, 40_001];

const KINDS: [CollectiveKind; 6] = [
    CollectiveKind::AllReduce,
    CollectiveKind::Reduce,
    CollectiveKind::Broadcast,
    CollectiveKind::ReduceScatter,
    CollectiveKind::AllGather,
    CollectiveKind::AllToAll,
];

fn every_collective(check: impl Fn(Algorithm, CollectiveKind, usize, bool)) {
    for algorithm in Algorithm::ALL {
        for kind in KINDS {
            for n in SIZES {
                for in_place in [false, true] {
                    check(algorithm, kind, n, in_place);
                }
            }
        }
    }
}

#[test]
fn a_collective_that_is_carried_out_twice_is_found() {
    every_collective(|algorithm, kind, n, in_place| {
        let what = format!("{algorithm} {}, {n} elements, in place {in_place}", kind.name());
        let failure = run::<f32>(algorithm, kind, n, in_place, Some(kind)).expect_err(&what);
        let Cause::Collective(error) = &failure.cause else { panic!("{what}: {failure}") };
        let CollectiveError::Moved { rank, planned, moved, .. } = **error else { panic!("{what}: {failure}") };
        assert_eq!((rank, moved), (failure.rank, 2 * planned), "{what}");
        assert!(planned > 0, "{what}");
        let text = failure.to_string();
        let name = kind.name();
        for part in
            [format!("rank {rank}: {moved} bytes were moved for {name}"), format!(" where {planned} were to be")]
        {
            assert!(text.contains(&part), "{part:?} is not in: {text}");
        }
    });
}

#[test]
fn collectives_that_are_carried_out_once_move_what_they_come_to() {
    every_collective(|algorithm, kind, n, in_place| {
        let other = Some(CollectiveKind::Barrier); // which has no bytes
        run::<f64>(algorithm, kind, n, in_place, other).unwrap_or_else(|failure| panic!("{algorithm}: {failure}"));
        run::<half::bf16>(algorithm, kind, n, in_place, None)
            .unwrap_or_else(|failure| panic!("{algorithm}: {failure}"));
    });
}

#[test]
fn the_error_names_rank_collective_and_both_numbers() {
    let failure = run::<f32>(Algorithm::Native, CollectiveKind::AllGather, 5, false, Some(CollectiveKind::AllGather));
    let text = failure.expect_err("carried out twice").to_string();
    let rest =
        ": 160 bytes were moved for all-gather of 5 into 20 f32 [job, start] #1 on group \"world\" where 80 were to be";
    assert!(text.contains(rest), "{text}");
}
