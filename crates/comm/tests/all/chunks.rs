//! Collectives on chunks of different lengths: bits against plain loops in the order of rings, ledgers, wrong tables.

use std::error::Error;
use std::fmt::Debug;
use std::time::{Duration, Instant};

use half::{bf16, f16};
use proptest::prelude::*;
use quadrille_comm::{
    Aborted, Cause, CollectiveError, Element, Group, JobFailure, JobOptions, Ledger, RankContext, run_ranks,
};
use quadrille_spec::{Algorithm, Choice, CollectiveKind, Nodes, Routing, Transfer};

type Outcome<R> = Result<R, Box<dyn Error + Send + Sync>>;

/// Runs `body` on all ranks with their group `world`; of an even number, half lie on each of two nodes.
fn on_ranks<R: Send>(
    ranks: usize,
    algorithm: Algorithm,
    body: impl Fn(&RankContext, &Group) -> Outcome<R> + Sync,
) -> Result<Vec<R>, JobFailure> {
    let members: Vec<usize> = (0..ranks).collect();
    let nodes = Nodes::equal(ranks, if ranks.is_multiple_of(2) { ranks / 2 } else { ranks });
    let routing = Routing { nodes, choice: Choice::Always(algorithm), grid: None };
    let options = JobOptions { routing, timeout: Duration::from_secs(300), ..JobOptions::new(ranks) };
    run_ranks(&options, |context| body(context, &context.group("world", &members)?))
}

trait Sample: Element + PartialEq + Debug {
    fn of(value: f64) -> Self;
}

impl Sample for f32 {
    fn of(value: f64) -> Self {
        value as f32
    }
}

impl Sample for f64 {
    fn of(value: f64) -> Self {
        value
    }
}

impl Sample for bf16 {
    fn of(value: f64) -> Self {
        bf16::from_f64(value)
    }
}

impl Sample for f16 {
    fn of(value: f64) -> Self {
        f16::from_f64(value)
    }
}

/// Numbers of very different size, so that another order of a sum has other bits.
fn input<T: Sample>(rank: usize, elements: usize) -> Vec<T> {
    let value = |i: usize| {
        let bits = (rank as u64 * 1_000_003 + i as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let unit = (bits >> 11) as f64 / (1u64 << 53) as f64 - 0.5;
        T::of(unit * f64::powi(4.0, (bits % 7) as i32))
    };
    (0..elements).map(value).collect()
}

fn blank<T: Sample>(elements: usize) -> Vec<T> {
    vec![T::of(-7.0); elements]
}

fn start(lengths: &[usize], chunk: usize) -> usize {
    lengths[..chunk].iter().sum()
}

fn range(lengths: &[usize], chunk: usize) -> std::ops::Range<usize> {
    start(lengths, chunk)..start(lengths, chunk + 1)
}

/// Element `i` of chunk `p`: from the member after `p` on, round to `p`, rounded at each.
fn ring_sum<T: Sample>(inputs: &[Vec<T>], p: usize, i: usize) -> T {
    let ranks = inputs.len();
    let in_order = (1..=ranks).map(|distance| inputs[(p + distance) % ranks][i]);
    in_order.reduce(|sum, own| T::rounded(sum.wide() + own.wide())).unwrap()
}

/// All three: gathers and scatters by `lengths`, and from `i` to `j` so many as `matrix[i][j]` says. Their ledgers.
fn check<T: Sample>(algorithm: Algorithm, lengths: &[usize], matrix: &[Vec<usize>]) {
    let ranks = lengths.len();
    let n = lengths.iter().sum();
    let received = |p: usize| matrix.iter().map(|sent| sent[p]).collect::<Vec<usize>>();
    let results = on_ranks(ranks, algorithm, |context, world| {
        let rank = context.rank();
        let sent = &matrix[rank];
        let received = received(rank);
        let of_all = input::<T>(rank, sent.iter().sum());
        let for_all = blank(received.iter().sum());
        let gathered = context.all_gather_chunks(world, lengths, input::<T>(rank, lengths[rank]), blank::<T>(n));
        let scattered = context.reduce_scatter_chunks(world, lengths, input::<T>(rank, n), blank::<T>(lengths[rank]));
        let exchanged = context.all_to_all_chunks(world, sent, &received, of_all, for_all);
        Ok(([gathered.wait()?, scattered.wait()?, exchanged.wait()?], context.take_ledger()))
    });
    let what = format!("{algorithm}, {lengths:?}, {matrix:?}");
    let results = results.unwrap_or_else(|failure| panic!("{what}: {failure}"));
    let parts: Vec<Vec<T>> = (0..ranks).map(|rank| input(rank, lengths[rank])).collect();
    let wholes: Vec<Vec<T>> = (0..ranks).map(|rank| input(rank, n)).collect();
    let outgoing: Vec<Vec<T>> = matrix.iter().enumerate().map(|(p, sent)| input(p, sent.iter().sum())).collect();
    for (p, ([gathered, scattered, exchanged], ledger)) in results.into_iter().enumerate() {
        assert_eq!(gathered, (parts[p].clone(), parts.concat()), "{what}: all-gather");
        let sums = range(lengths, p).map(|i| ring_sum(&wholes, p, i)).collect();
        assert_eq!(scattered, (wholes[p].clone(), sums), "{what}: reduce-scatter");
        let column = (0..ranks).flat_map(|q| outgoing[q][range(&matrix[q], p)].to_vec()).collect();
        assert_eq!(exchanged, (outgoing[p].clone(), column), "{what}: all-to-all");
        check_ledger::<T>(&ledger, lengths, &matrix[p], p);
    }
}

/// Member `p`'s ledger of [`check`].
fn check_ledger<T: Sample>(ledger: &Ledger, lengths: &[usize], sent: &[usize], p: usize) {
    let ranks = lengths.len();
    let n = lengths.iter().sum::<usize>();
    let counted: Vec<(CollectiveKind, Transfer)> = ledger.iter().map(|(key, sum)| (key.collective, *sum)).collect();
    let bytes = |elements: usize| (elements * T::KIND.bytes()) as u64;
    let once = |payload, wire| Transfer { calls: 1, payload_bytes: bytes(payload), wire_bytes: bytes(wire) };
    let all: usize = sent.iter().sum();
    let mut expected = vec![
        (CollectiveKind::AllGather, once(n, n - lengths[(p + 1) % ranks])),
        (CollectiveKind::ReduceScatter, once(n, n - lengths[p])),
        (CollectiveKind::AllToAll, once(all, all - sent[p])),
    ];
    expected.sort_by_key(|(kind, _)| *kind);
    assert_eq!(counted, if ranks > 1 { expected } else { Vec::new() });
}

/// `matrix[i][j]` of numbers in which some are 0, also a whole row and a whole column.
fn matrix(ranks: usize, number: impl Fn(usize) -> usize) -> Vec<Vec<usize>> {
    let entry = |i: usize, j: usize| if i == 2 || j == 3 { 0 } else { number(7 * i + 3 * j) };
    (0..ranks).map(|i| (0..ranks).map(|j| entry(i, j)).collect()).collect()
}

#[test]
fn all_group_sizes_types_and_routes() {
    for ranks in 1..=6 {
        for algorithm in Algorithm::ALL {
            let growing: Vec<usize> = (0..ranks).collect();
            check::<f32>(algorithm, &growing, &matrix(ranks, |i| i % 5));
            let one: Vec<usize> = (0..ranks).map(|p| if p == ranks / 2 { 37 } else { 0 }).collect();
            check::<f64>(algorithm, &one, &matrix(ranks, |i| if i == 10 { 9 } else { 0 }));
            let some: Vec<usize> = (0..ranks).map(|p| (11 * p + 5) % 13).collect();
            check::<bf16>(algorithm, &some, &matrix(ranks, |i| i % 11));
            check::<f16>(algorithm, &some, &matrix(ranks, |i| 1 + i % 3));
            check::<f32>(algorithm, &vec![0; ranks], &matrix(ranks, |_| 0));
        }
    }
}

#[test]
fn large_chunks() {
    let lengths = [40_001, 0, 3, 70_000];
    for algorithm in Algorithm::ALL {
        check::<f32>(algorithm, &lengths, &matrix(4, |i| 5_000 * (i % 7)));
        check::<bf16>(algorithm, &lengths, &matrix(4, |i| 5_000 * (i % 7)));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn random_tables(ranks in 1usize..=6, numbers in prop::collection::vec(0usize..50, 42), algorithm in 0usize..4) {
        let algorithm = Algorithm::ALL[algorithm % Algorithm::ALL.len()];
        let lengths: Vec<usize> = numbers[..ranks].iter().map(|n| n.saturating_sub(20)).collect();
        let rows = numbers[6..].chunks(6).take(ranks);
        let matrix: Vec<Vec<usize>> = rows.map(|row| row[..ranks].to_vec()).collect();
        check::<f32>(algorithm, &lengths, &matrix);
        check::<bf16>(algorithm, &lengths, &matrix);
    }
}

/// One collective of three ranks that cannot be carried out.
fn error(body: impl Fn(&RankContext, &Group) -> Result<(), Aborted> + Sync, algorithm: Algorithm) -> CollectiveError {
    let begin = Instant::now();
    let failure = on_ranks(3, algorithm, |context, world| Ok(body(context, world)?)).expect_err("the job fails");
    assert!(begin.elapsed() < Duration::from_secs(60), "ended by the error, not by the timeout");
    let Cause::Collective(error) = &failure.cause else { panic!("another cause: {failure}") };
    (**error).clone()
}

fn gather(c: &RankContext, g: &Group, lengths: &[usize], input: usize, output: usize) -> Result<(), Aborted> {
    c.all_gather_chunks(g, lengths, vec![0f32; input], vec![0f32; output]).wait().map(drop)
}

fn scatter(c: &RankContext, g: &Group, lengths: &[usize], input: usize, output: usize) -> Result<(), Aborted> {
    c.reduce_scatter_chunks(g, lengths, vec![0f32; input], vec![0f32; output]).wait().map(drop)
}

fn exchange(c: &RankContext, g: &Group, sent: &[usize], received: &[usize]) -> Result<(), Aborted> {
    let [input, output] = [sent, received].map(|table| vec![0f32; table.iter().sum()]);
    c.all_to_all_chunks(g, sent, received, input, output).wait().map(drop)
}

#[test]
fn a_table_that_is_wrong_by_itself_names_the_rule() {
    type Wrong = fn(&RankContext, &Group) -> Result<(), Aborted>;
    let cases: [(Wrong, &str); 9] = [
        (|c, g| gather(c, g, &[1, 1], 1, 2), "a table of 2 chunks in a group of 3; one for each member"),
        (|c, g| gather(c, g, &[2, 2, 2], 3, 6), "by the table the input must have 2 elements"),
        (|c, g| gather(c, g, &[2, 2, 2], 2, 7), "by the table the output must have 6 elements"),
        (|c, g| scatter(c, g, &[1, 1, 1, 0], 3, 1), "a table of 4 chunks in a group of 3"),
        (|c, g| scatter(c, g, &[2, 2, 2], 5, 2), "by the table the input must have 6 elements"),
        (|c, g| scatter(c, g, &[2, 2, 2], 6, 1), "by the table the output must have 2 elements"),
        (|c, g| exchange(c, g, &[1; 3], &[1; 2]), "a table of 2 chunks in a group of 3"),
        (|c, g| gather(c, g, &[usize::MAX; 3], 0, 0), "more elements than can be counted"),
        (
            |c, g| {
                let mut sent = [1; 3];
                let mut received = [1; 3];
                (sent[g.index()], received[g.index()]) = (2, 3);
                exchange(c, g, &sent, &received)
            },
            "it sends itself 2 elements, but receives 3 from itself",
        ),
    ];
    for (wrong, rule) in cases {
        for algorithm in [Algorithm::Native, Algorithm::Ring] {
            let error = error(wrong, algorithm);
            assert!(matches!(error, CollectiveError::Arguments { ranks: 3, .. }), "{error}");
            assert!(error.to_string().contains(rule), "{error}");
        }
    }
}

#[test]
fn tables_of_members_must_be_one() {
    // Of the same sum; the own chunk of nobody differs, or that of one.
    for (one, others) in [([4, 1, 2], [4, 2, 1]), ([1, 1, 5], [1, 5, 1]), ([0, 0, 0], [0, 0, 1])] {
        for gathers in [true, false] {
            let error = error(
                |c, g| {
                    let lengths = if c.rank() == 0 { one } else { others };
                    let own = lengths[c.rank()];
                    let all = lengths.iter().sum();
                    if gathers { gather(c, g, &lengths, own, all) } else { scatter(c, g, &lengths, all, own) }
                },
                Algorithm::Native,
            );
            let CollectiveError::Mismatch { first, second, .. } = &error else { panic!("{error}") };
            assert!((first.0 == 0) ^ (second.0 == 0), "rank 0 and another: {error}");
            assert_ne!(first.1.chunks, second.1.chunks);
            assert!(error.to_string().contains("f32 in chunks by table "), "{error}");
        }
    }
}

#[test]
fn both_sides_of_a_chunk_must_mean_one_length() {
    for (sent, expected) in [(5, 4), (4, 5), (0, 3), (3, 0), (60_000, 59_999)] {
        let error = error(
            |c, g| match c.rank() {
                1 => exchange(c, g, &[1, 1, sent], &[1; 3]),
                2 => exchange(c, g, &[1; 3], &[1, expected, 1]),
                _ => exchange(c, g, &[1; 3], &[1; 3]),
            },
            Algorithm::Native,
        );
        let CollectiveError::Chunk { from: 1, to: 2, .. } = error else { panic!("{error}") };
        let text = format!("rank 1 sends a chunk of {sent} elements, but rank 2 expects {expected}");
        assert!(error.to_string().contains(&text), "{error}");
    }
}

#[test]
fn equal_and_other_chunks_do_not_mix() {
    for (gathers, name) in
        [(true, "all-gather of 2 into 6 f32 in chunks by"), (false, "all-to-all of 6 into 6 f32 in chunks")]
    {
        let error = error(
            |c, g| match (c.rank(), gathers) {
                (0, true) => gather(c, g, &[2; 3], 2, 6),
                (_, true) => c.all_gather(g, vec![0f32; 2], vec![0f32; 6]).wait().map(drop),
                (0, false) => exchange(c, g, &[2; 3], &[2; 3]),
                (_, false) => c.all_to_all(g, vec![0f32; 6], vec![0f32; 6]).wait().map(drop),
            },
            Algorithm::Ring,
        );
        assert!(matches!(error, CollectiveError::Mismatch { .. }) && error.to_string().contains(name), "{error}");
    }
}

/// Equal chunks may meet in shared memory, where who exchanges chunks of tables does not come: late, not silent.
#[test]
fn a_member_in_shared_memory_misses_one_with_a_table() {
    let options = JobOptions { timeout: Duration::from_millis(500), ..JobOptions::new(3) };
    let outcome = run_ranks(&options, |context| {
        let world = context.group("world", &[0, 1, 2])?;
        match context.rank() {
            0 => gather(context, &world, &[2; 3], 2, 6)?,
            _ => drop(context.all_gather(&world, vec![0f32; 2], vec![0f32; 6]).wait()?),
        }
        Ok(())
    });
    let failure = outcome.expect_err("they never meet");
    let Cause::Collective(error) = &failure.cause else { panic!("another cause: {failure}") };
    assert!(matches!(**error, CollectiveError::Stuck { .. }), "{failure}");
    assert!(failure.to_string().contains(", its communication waits in all-gather of 2 into 6 f32"), "{failure}");
}

#[test]
fn chunks_that_are_carried_out_twice_are_found() {
    for twice in [CollectiveKind::AllGather, CollectiveKind::ReduceScatter, CollectiveKind::AllToAll] {
        let options = JobOptions { twice: Some(twice), ..JobOptions::new(3) };
        let outcome = run_ranks(&options, |context| {
            let world = context.group("world", &[0, 1, 2])?;
            match twice {
                CollectiveKind::AllGather => gather(context, &world, &[2; 3], 2, 6)?,
                CollectiveKind::ReduceScatter => scatter(context, &world, &[2; 3], 6, 2)?,
                _ => exchange(context, &world, &[2; 3], &[2; 3])?,
            }
            Ok(())
        });
        let text = outcome.expect_err("carried out twice").to_string();
        assert!(text.contains("32 bytes were moved for") && text.contains(" where 16 were to be"), "{text}");
    }
}
