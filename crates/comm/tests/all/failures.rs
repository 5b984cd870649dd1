//! Every way to fail ends the job, quickly and with the right names.

use std::error::Error;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use quadrille_comm::{
    Aborted, Cause, CollectiveError, Group, JobFailure, JobOptions, Label, RankContext, Reduction, run_ranks,
};

/// Long enough for four threads to come to a collective on a busy machine.
const SHORT: Duration = Duration::from_millis(500);

type Outcome = Result<(), Box<dyn Error + Send + Sync>>;

/// Runs four ranks in one group and returns the job's failure. The deadline is far below the timeout: nobody may need
/// it, except where a test sets a short one.
fn failure(body: impl Fn(&RankContext, &Group) -> Outcome + Sync) -> JobFailure {
    failure_within(Duration::from_secs(300), body)
}

fn failure_within(timeout: Duration, body: impl Fn(&RankContext, &Group) -> Outcome + Sync) -> JobFailure {
    let start = Instant::now();
    let outcome = run_ranks(&JobOptions { timeout, ..JobOptions::new(4) }, |context| {
        let world = context.group("world", &[0, 1, 2, 3])?;
        context.enter(Label::indexed("block", context.rank() as u32), "forward")?;
        body(context, &world)
    });
    assert!(start.elapsed() < Duration::from_secs(60), "ended by the failure, not by luck");
    outcome.expect_err("the job fails")
}

fn collective(failure: &JobFailure) -> &CollectiveError {
    let Cause::Collective(error) = &failure.cause else { panic!("another cause: {failure}") };
    error
}

fn sum(context: &RankContext, group: &Group, elements: usize) -> Result<Vec<f32>, Aborted> {
    context.all_reduce(group, Reduction::Sum, vec![1.0; elements]).wait()
}

#[test]
fn a_panic_names_its_rank_place_and_message() {
    for elements in [1, 100_000] {
        let failure = failure(|context, world| {
            sum(context, world, elements)?;
            if context.rank() == 2 {
                panic!("number {}", 17);
            }
            sum(context, world, elements)?;
            Ok(())
        });
        let text = failure.to_string();
        assert_eq!(failure.rank, 2);
        assert!(text.starts_with("rank 2 failed at block 2, forward: panicked at "), "{text}");
        assert!(text.contains("failures.rs:") && text.contains("number 17"), "{text}");
    }
}

#[derive(Debug)]
struct NoCheckpoint(std::io::Error);

impl std::fmt::Display for NoCheckpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("no checkpoint")
    }
}

impl Error for NoCheckpoint {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.0)
    }
}

#[test]
fn an_error_keeps_its_sources_and_reaches_every_rank() {
    let told = AtomicUsize::new(0);
    let failure = failure(|context, world| {
        context.barrier(world).wait()?;
        if context.rank() == 1 {
            return Err(Box::new(NoCheckpoint(std::io::Error::other("disk full"))));
        }
        let aborted = sum(context, world, 10).expect_err("rank 1 never comes");
        assert_eq!(aborted.0.rank, 1);
        context.enter(Label::new("step"), "afterwards").expect_err("entering fails from now on");
        sum(context, world, 10).expect_err("so does every later wait");
        told.fetch_add(1, Ordering::SeqCst);
        Err(aborted.into())
    });
    assert_eq!(told.load(Ordering::SeqCst), 3);
    assert_eq!((failure.rank, failure.activity.layer), (1, Label::indexed("block", 1)));
    assert!(failure.to_string().ends_with("block 1, forward: no checkpoint: disk full"), "{failure}");
    assert!(matches!(failure.cause, Cause::Error(_)));
}

#[test]
fn entering_stops_a_rank_that_only_computes() {
    let failure = failure(|context, _| {
        if context.rank() == 0 {
            return Err("no data".into());
        }
        loop {
            context.enter(Label::new("step"), "computing")?;
            std::thread::yield_now();
        }
    });
    assert_eq!(failure.to_string(), "rank 0 failed at block 0, forward: no data");
}

#[test]
fn returning_early_is_noticed_by_those_who_wait() {
    // Before and after the others have arrived, in a collective and in messages.
    for (early, message) in [(true, false), (false, false), (true, true), (false, true)] {
        let failure = failure(|context, world| {
            let leaves = context.rank() == 3;
            if leaves != early {
                std::thread::sleep(Duration::from_millis(30));
            }
            match (leaves, message) {
                (true, _) => {}
                (false, true) => drop(context.receive(world, 3, 0, vec![0f32; 2]).wait()?),
                (false, false) => drop(sum(context, world, 5)?),
            }
            Ok(())
        });
        let CollectiveError::Departed { departed: 3, waiting, .. } = collective(&failure) else { panic!("{failure}") };
        assert!(!waiting.is_empty() && !waiting.contains(&3));
        assert!(failure.to_string().contains("rank 3 returned while"), "{failure}");
    }
}

#[test]
fn a_stuck_collective_names_who_is_late_and_where() {
    let failure = failure_within(SHORT, |context, world| {
        sum(context, world, 5)?;
        if context.rank() == 2 {
            loop {
                context.enter(Label::new("data"), "read")?;
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        sum(context, world, 7)?;
        Ok(())
    });
    let CollectiveError::Stuck { group, sequence, call, waited, arrived, late } = collective(&failure) else {
        panic!("{failure}")
    };
    assert_eq!((&**group, *sequence, call.input), ("world", 2, 7));
    assert!(*waited > SHORT);
    assert_eq!(*arrived, [0, 1, 3]);
    assert_eq!((late.len(), late[0].rank, late[0].issued), (1, 2, 1));
    assert!(failure.to_string().contains("late: rank 2 at data, read (reached #1)"), "{failure}");
}

#[test]
fn groups_used_in_crossed_orders_are_reported_as_stuck() {
    let failure = failure_within(SHORT, |context, _| {
        if context.rank() > 1 {
            return Ok(());
        }
        let names = if context.rank() == 0 { ["x", "y"] } else { ["y", "x"] };
        let groups = [context.group(names[0], &[0, 1])?, context.group(names[1], &[0, 1])?];
        let pending = groups.each_ref().map(|group| context.barrier(group));
        for pending in pending {
            pending.wait()?;
        }
        Ok(())
    });
    let CollectiveError::Stuck { late, .. } = collective(&failure) else { panic!("{failure}") };
    assert!(late[0].busy_with.is_some());
    assert!(failure.to_string().contains("its communication waits in barrier"), "{failure}");
}

/// Rank 1 issues what `other` issues; all others issue an all-reduce of six.
fn mismatch(other: impl Fn(&RankContext, &Group) -> Result<(), Aborted> + Sync) -> String {
    let failure = failure(|context, world| {
        match context.rank() {
            1 => other(context, world)?,
            _ => drop(sum(context, world, 6)?),
        }
        Ok(())
    });
    let CollectiveError::Mismatch { sequence: 1, first, second, .. } = collective(&failure) else {
        panic!("{failure}")
    };
    assert!((first.0 == 1) ^ (second.0 == 1), "rank 1 and one other: {failure}");
    failure.to_string()
}

#[test]
fn mismatches_name_both_calls() {
    let both = |text: &str, other: &str| {
        assert!(text.contains("all-reduce (sum) of 6 f32") && text.contains(other), "{text}");
    };
    both(&mismatch(|c, g| sum(c, g, 7).map(drop)), "all-reduce (sum) of 7 f32");
    both(&mismatch(|c, g| c.all_reduce(g, Reduction::Sum, vec![0f64; 6]).wait().map(drop)), "of 6 f64");
    both(&mismatch(|c, g| c.all_reduce(g, Reduction::Max, vec![0f32; 6]).wait().map(drop)), "(max) of 6 f32");
    both(&mismatch(|c, g| c.broadcast(g, 0, vec![0f32; 6]).wait().map(drop)), "broadcast from member 0 of 6 f32");
    let gather = |c: &RankContext, g: &Group| c.all_gather(g, vec![0f32; 6], vec![0f32; 24]).wait().map(drop);
    both(&mismatch(gather), "all-gather of 6 into 24 f32");
}

#[test]
fn roots_must_agree() {
    let failure = failure(|context, world| {
        let root = usize::from(context.rank() == 3);
        context.reduce(world, root, vec![0f32; 6]).wait()?;
        Ok(())
    });
    let CollectiveError::Mismatch { .. } = collective(&failure) else { panic!("{failure}") };
    let text = failure.to_string();
    assert!(text.contains("rank 3 issued reduce (sum) to member 1 of 6 f32"), "{text}");
    assert!(text.contains("reduce (sum) to member 0 of 6 f32"), "{text}");
}

#[test]
fn message_lengths_and_types_must_match() {
    for wide in [false, true] {
        let failure = failure(|context, world| {
            match context.rank() {
                0 if wide => drop(context.send(world, 1, 0, vec![0f64; 4]).wait()?),
                0 => drop(context.send(world, 1, 0, vec![0f32; 3]).wait()?),
                1 => drop(context.receive(world, 0, 0, vec![0f32; 4]).wait()?),
                _ => {}
            }
            Ok(())
        });
        assert!(matches!(collective(&failure), CollectiveError::Mismatch { .. }), "{failure}");
        assert!(failure.to_string().contains("receive from member 0 with tag 0 of 4 f32"), "{failure}");
    }
}

#[test]
fn a_call_that_is_wrong_by_itself_names_rank_group_and_sizes() {
    type Wrong = fn(&RankContext, &Group) -> Result<(), Aborted>;
    let cases: [(Wrong, &str); 9] = [
        (|c, g| c.reduce_scatter(g, vec![0f32; 6], vec![0f32; 1]).wait().map(drop), "multiple of 4"),
        (|c, g| c.reduce_scatter(g, vec![0f32; 8], vec![0f32; 3]).wait().map(drop), "output must have 2"),
        (|c, g| c.all_gather(g, vec![0f32; 2], vec![0f32; 9]).wait().map(drop), "output must have 8"),
        (|c, g| c.all_to_all(g, vec![0f32; 4], vec![0f32; 5]).wait().map(drop), "output must have 4"),
        (|c, g| c.reduce_scatter_in_place(g, vec![0f32; 6]).wait().map(drop), "input must be a multiple of 4"),
        (|c, g| c.all_gather_in_place(g, vec![0f32; 9]).wait().map(drop), "output must have 8 elements, 4 chunks of 2"),
        (|c, g| c.reduce(g, 4, vec![0f32; 4]).wait().map(drop), "member index below 4"),
        (|c, g| c.broadcast(g, 4, vec![0f32; 4]).wait().map(drop), "member index below 4"),
        (|c, g| c.send(g, g.index(), 0, vec![0f32; 4]).wait().map(drop), "no messages for itself"),
    ];
    for (wrong, rule) in cases {
        let failure = failure(|context, world| Ok(wrong(context, world)?));
        let CollectiveError::Arguments { rank, ranks: 4, .. } = collective(&failure) else { panic!("{failure}") };
        assert_eq!(*rank, failure.rank);
        assert!(failure.to_string().contains(rule), "{failure}");
    }
}

#[test]
fn impossible_groups_are_refused() {
    let cases: [(&[usize], &str); 4] = [
        (&[1, 2], "rank 0 asks for it but is not a member"),
        (&[0, 4], "rank 4 does not exist among 4 ranks"),
        (&[0, 1, 1], "listed twice"),
        (&[1, 0, 2, 3], "all members must use one order"),
    ];
    for (members, rule) in cases {
        let failure = failure(|context, world| {
            if [1, 2].contains(&context.rank()) {
                context.group("world", &[1, 2])?;
            }
            context.barrier(world).wait()?;
            if context.rank() == 0 {
                context.group("world", members)?;
            }
            Ok(())
        });
        assert!(matches!(collective(&failure), CollectiveError::Group { .. }));
        assert!(failure.to_string().contains(rule), "{failure}");
    }
}

#[test]
fn another_ranks_group_is_refused() {
    let lent = std::sync::Mutex::new(None);
    let failure = failure(|context, world| {
        if context.rank() == 0 {
            *lent.lock().unwrap() = Some(world.clone());
        }
        context.barrier(world).wait()?;
        let group = if context.rank() == 1 { lent.lock().unwrap().clone() } else { None };
        sum(context, group.as_ref().unwrap_or(world), 100_000)?;
        Ok(())
    });
    assert_eq!(failure.rank, 1);
    assert!(failure.to_string().contains("this is the handle of rank 0"), "{failure}");
}

#[test]
fn a_failure_while_large_transfers_run_is_safe() {
    for round in 0..20 {
        let failure = failure(|context, world| {
            let pending: Vec<_> =
                (0..8).map(|_| context.all_reduce(world, Reduction::Sum, vec![1f32; 200_000])).collect();
            if context.rank() == round % 4 {
                return Err("in the middle".into());
            }
            for pending in pending {
                pending.wait()?;
            }
            sum(context, world, 1)?;
            Ok(())
        });
        assert_eq!(failure.rank, round % 4);
    }
}

/// A buffer whose own code panics.
struct Faulty;

impl AsRef<[f32]> for Faulty {
    fn as_ref(&self) -> &[f32] {
        panic!("no storage")
    }
}

impl AsMut<[f32]> for Faulty {
    fn as_mut(&mut self) -> &mut [f32] {
        panic!("no storage")
    }
}

#[test]
fn a_buffer_that_panics_ends_the_job() {
    let failure = failure(|context, world| {
        match context.rank() {
            0 => context.all_reduce(world, Reduction::Sum, Faulty).wait().map(|_| ())?,
            _ => sum(context, world, 1).map(|_| ())?,
        }
        Ok(())
    });
    assert_eq!(failure.rank, 0);
    assert!(failure.to_string().contains("no storage"), "{failure}");
}

/// The failures that a collective of messages meets, by the algorithms that are made of them.
mod by_exchanges {
    use quadrille_spec::{Algorithm, Choice, Nodes, Routing};

    use super::*;

    fn failure(
        algorithm: Algorithm,
        timeout: Duration,
        body: impl Fn(&RankContext, &Group) -> Outcome + Sync,
    ) -> JobFailure {
        let start = Instant::now();
        let routing = Routing { nodes: Nodes::equal(4, 2), choice: Choice::Always(algorithm), grid: None };
        let outcome = run_ranks(&JobOptions { timeout, routing, ..JobOptions::new(4) }, |context| {
            let world = context.group("world", &[0, 1, 2, 3])?;
            context.enter(Label::indexed("block", context.rank() as u32), "forward")?;
            body(context, &world)
        });
        assert!(start.elapsed() < Duration::from_secs(60), "ended by the failure, not by luck");
        outcome.expect_err("the job fails")
    }

    const MESSAGES: [Algorithm; 3] = [Algorithm::Ring, Algorithm::Recursive, Algorithm::Hierarchical];

    #[test]
    fn a_panic_ends_those_who_wait() {
        for algorithm in MESSAGES {
            let failure = failure(algorithm, Duration::from_secs(300), |context, world| {
                if context.rank() == 1 {
                    panic!("number {}", 17);
                }
                sum(context, world, 100_000).map(|_| ()).map_err(Into::into)
            });
            assert_eq!(failure.rank, 1);
            assert!(failure.to_string().contains("number 17"), "{failure}");
        }
    }

    #[test]
    fn a_late_rank_is_named_with_what_it_does() {
        for algorithm in MESSAGES {
            let failure = failure(algorithm, SHORT, |context, world| {
                if context.rank() == 2 {
                    context.enter(Label::new("head"), "think")?;
                    while context.enter(Label::new("head"), "think").is_ok() {
                        std::thread::sleep(Duration::from_millis(10));
                    }
                    return Ok(());
                }
                sum(context, world, 1000).map(|_| ()).map_err(Into::into)
            });
            let CollectiveError::Stuck { late, .. } = collective(&failure) else { panic!("{failure}") };
            assert_eq!(late.iter().map(|late| late.rank).collect::<Vec<_>>(), [2]);
            assert!(failure.to_string().contains("rank 2 at head, think"), "{failure}");
        }
    }

    #[test]
    fn a_rank_that_has_returned_is_named() {
        for algorithm in MESSAGES {
            let failure = failure(algorithm, Duration::from_secs(300), |context, world| {
                if context.rank() == 3 {
                    return Ok(());
                }
                sum(context, world, 1000).map(|_| ()).map_err(Into::into)
            });
            assert!(matches!(collective(&failure), CollectiveError::Departed { departed: 3, .. }), "{failure}");
        }
    }

    #[test]
    fn calls_that_do_not_fit_are_both_named() {
        for algorithm in MESSAGES {
            let failure = failure(algorithm, Duration::from_secs(300), |context, world| {
                let elements = if context.rank() == 2 { 1001 } else { 1000 };
                sum(context, world, elements).map(|_| ()).map_err(Into::into)
            });
            let CollectiveError::Mismatch { first, second, .. } = collective(&failure) else { panic!("{failure}") };
            assert!(first.0 == 2 || second.0 == 2, "{failure}");
        }
    }

    /// Equal calls with the same members: only the groups' names tell them apart.
    #[test]
    fn collectives_of_other_groups_do_not_meet() {
        for algorithm in MESSAGES {
            let failure = failure(algorithm, Duration::from_secs(300), |context, _| {
                let group = context.group(if context.rank() == 2 { "x" } else { "y" }, &[0, 1, 2, 3])?;
                sum(context, &group, 1000).map(|_| ()).map_err(Into::into)
            });
            assert!(matches!(collective(&failure), CollectiveError::Mismatch { .. }), "{failure}");
        }
    }
}
