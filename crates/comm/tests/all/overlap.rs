//! Several groups, many collectives in flight, waits out of order, messages.

use quadrille_comm::{Group, JobOptions, Label, Pending, RankContext, Reduction, run_ranks};

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// A rank's groups along the axes of a grid; the first axis varies fastest. Group `i` is named `a{i}`.
fn axis_groups(context: &RankContext, grid: &[usize]) -> Outcome<Vec<Group>> {
    let mut stride = 1;
    let mut groups = Vec::new();
    for (axis, &size) in grid.iter().enumerate() {
        let base = context.rank() - context.rank() / stride % size * stride;
        let members: Vec<usize> = (0..size).map(|i| base + i * stride).collect();
        groups.push(context.group(&format!("a{axis}"), &members)?);
        stride *= size;
    }
    Ok(groups)
}

#[test]
fn reducing_over_every_axis_reduces_over_the_world() {
    for grid in [vec![2, 2, 2], vec![3, 2], vec![1, 4, 1, 2], vec![2, 2, 2, 2]] {
        let ranks: usize = grid.iter().product();
        let sums = run_ranks(&JobOptions::new(ranks), |context| {
            let mut buffer = vec![f64::from(1u32 << context.rank()); 5];
            for group in axis_groups(context, &grid)? {
                buffer = context.all_reduce(&group, Reduction::Sum, buffer).wait()?;
            }
            Ok(buffer)
        });
        let all = f64::from((1u32 << ranks) - 1);
        assert_eq!(sums.unwrap(), vec![vec![all; 5]; ranks], "grid {grid:?}");
    }
}

#[test]
fn many_in_flight_are_waited_for_in_any_order() {
    const COUNT: usize = 60;
    let results = run_ranks(&JobOptions::new(8), |context| {
        let groups = axis_groups(context, &[2, 2, 2])?;
        // Sizes on both sides of the one up to which a single member does the work.
        let size = |i: usize| if i.is_multiple_of(5) { 20_000 } else { 1 + i };
        let issue = |i: usize| {
            let buffer = vec![(context.rank() * COUNT + i) as f32; size(i)];
            context.all_reduce(&groups[i % 3], Reduction::Sum, buffer)
        };
        let mut pending: Vec<Option<Pending<Vec<f32>>>> = (0..COUNT).map(|i| Some(issue(i))).collect();
        // 7 and 60 are coprime: this visits all, in another order on every rank.
        for step in 0..COUNT {
            let i = (step * 7 + context.rank() * 11) % COUNT;
            let Some(in_flight) = pending[i].take() else { return Err("waited twice".into()) };
            let peers: usize = groups[i % 3].members().iter().map(|rank| rank * COUNT + i).sum();
            assert_eq!(in_flight.wait()?, vec![peers as f32; size(i)], "collective {i}");
        }
        Ok(())
    });
    results.unwrap();
}

#[test]
fn collectives_complete_without_a_wait() {
    let results = run_ranks(&JobOptions::new(3), |context| {
        let world = context.group("world", &[0, 1, 2])?;
        drop(context.all_reduce(&world, Reduction::Sum, vec![1.0f32; 10]));
        if context.rank() == 0 {
            return Ok(3.0); // leaves; its part is done nevertheless
        }
        let rest = context.group("rest", &[1, 2])?;
        Ok(1.0 + context.all_reduce(&rest, Reduction::Sum, vec![1.0f32]).wait()?[0])
    });
    assert_eq!(results.unwrap(), [3.0; 3]);
}

#[test]
fn messages_cross_without_deadlock() {
    let results = run_ranks(&JobOptions::new(2), |context| {
        let pair = context.group("pipe", &[0, 1])?;
        let other = 1 - pair.index();
        // Both receive first: a queue that blocked on messages would never reach the sends.
        let first = context.receive(&pair, other, 0, vec![0.0f64; 3]);
        let second = context.receive(&pair, other, 0, vec![0.0f64; 30_000]);
        let sum = context.all_reduce(&pair, Reduction::Sum, vec![1.0f32]);
        let sent = context.send(&pair, other, 0, vec![context.rank() as f64; 3]);
        drop(context.send(&pair, other, 0, vec![10.0 + context.rank() as f64; 30_000]));
        assert_eq!(sum.wait()?, [2.0]);
        assert_eq!(second.wait()?, vec![10.0 + other as f64; 30_000]);
        assert_eq!(first.wait()?, [other as f64; 3]);
        assert_eq!(sent.wait()?, [context.rank() as f64; 3]);
        Ok(())
    });
    results.unwrap();
}

#[test]
fn a_message_outlives_its_sender() {
    let results = run_ranks(&JobOptions::new(3), |context| {
        let all = context.group("pipe", &[0, 1, 2])?;
        if context.rank() == 0 {
            drop(context.send(&all, 2, 0, vec![5.0f32]));
            return Ok(5.0);
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
        let late = context.group("late", &[1, 2])?;
        context.barrier(&late).wait()?;
        if context.rank() == 1 { Ok(5.0) } else { Ok(context.receive(&all, 0, 0, vec![0.0f32]).wait()?[0]) }
    });
    assert_eq!(results.unwrap(), [5.0; 3]);
}

#[test]
fn member_order_decides_the_chunks() {
    let results = run_ranks(&JobOptions::new(3), |context| {
        context.enter(Label::new("step"), "gather")?;
        let group = context.group("turned", &[2, 0, 1])?;
        let (_, all) = context.all_gather(&group, vec![context.rank() as f32], vec![0.0; 3]).wait()?;
        Ok((group.index(), all))
    });
    let expected = [1, 2, 0].map(|index| (index, vec![2.0, 0.0, 1.0]));
    assert_eq!(results.unwrap(), expected);
}
