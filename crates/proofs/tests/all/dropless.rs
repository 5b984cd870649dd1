//! Experts that drop nothing: rows come as tokens choose, and what is sent, computed and held is predicted from their numbers.

use proptest::prelude::*;
use quadrille_proofs::{
    assert_caught, assert_stopped, expert_cases, for_random, holds, layout_with, mixture_of, prove, replaced,
    trajectory,
};
use quadrille_spec::{
    Activations, Axis, Capacity, CollectiveKind, Dispatch, DropOrder, ElementType, Experts, FeedForward, Model, Zero,
};
use quadrille_step::{Collective, Op, Operation, StepProgram, predict};

use crate::experts::{assert_switches_change_no_bit, collectives, unbroken};

fn with_capacity(layers: usize, capacity: Option<Capacity>) -> Model {
    let mut model = mixture_of(layers);
    model.blocks = model.blocks.each(|block| {
        if let FeedForward::Experts(experts) = &mut block.feed_forward {
            experts.capacity = capacity;
        }
    });
    model
}

fn dropless(layers: usize) -> Model {
    with_capacity(layers, None)
}

/// As many rows as tokens choose: none, one or all of a rank's, and always as many as their routers have counted.
#[test]
fn layouts_equal_the_serial_model() {
    let all = expert_cases().prop_filter("no places", |case| {
        let mut experts = case.model.blocks.kinds().iter().filter_map(|block| block.feed_forward.experts());
        experts.all(|experts| experts.capacity.is_none())
    });
    for_random(50, all, |case| holds(&case, ElementType::F64));
}

#[test]
fn switches_change_no_bit() {
    assert_switches_change_no_bit(&dropless(2));
}

/// A serial run and places for every choice lose the same, up to the order of sums.
#[test]
fn places_for_all_are_as_good() {
    let model = mixture_of(1);
    let Experts { count, per_token, .. } = *model.blocks.first().feed_forward.experts().unwrap();
    let all = Capacity { factor: count as f64 / per_token as f64, group: None, drop: DropOrder::Choice };
    let losses = [None, Some(all)].map(|capacity| {
        let model = with_capacity(1, capacity);
        let layout = layout_with(&model, "x=2,expert=2", 8, |request| {
            request.expert_rows = if capacity.is_some() { 0 } else { 100 };
        });
        let program = StepProgram::new(&model, &layout);
        program.map(|program| trajectory(&program, 2, 1).unwrap()[0].outcomes[1].loss).map(f64::from_bits)
    });
    let [dropless, placed] = losses.map(Result::unwrap);
    assert!((dropless / placed - 1.0).abs() < 1e-12, "{dropless} {placed}");
}

/// All tokens are alike, so that they choose the same experts: four times as many rows come to their rank as equal loads bring.
#[test]
fn rows_without_room_end_the_step_with_the_remedy() {
    let model = dropless(1);
    let program = |rows| {
        let layout = layout_with(&model, "expert=4", 8, |request| request.expert_rows = rows);
        StepProgram::new(&model, &layout).unwrap()
    };
    let error = trajectory(&program(1), 1, 1).unwrap_err().to_string();
    assert!(error.contains("at block 0, admit: ") && error.contains(" rows of '"), "{error}");
    let times: usize = error.split("`layout.expert_rows` ").nth(1).unwrap().split(',').next().unwrap().parse().unwrap();
    assert!((2..=4).contains(&times), "{error}");
    // What can come at most is the usual room here.
    assert!(prove(&program(4), 2).unwrap().ok && prove(&program(0), 2).unwrap().ok);
    let room = |rows| predict(&program(rows)).ranks[0].memory.allocated;
    assert!(room(1) < room(2) && room(2) < room(4) && room(4) == room(0) && room(9) == room(4));
}

/// Before a step its loads are taken to be equal: each rank gets as many rows as its tokens choose.
#[test]
fn equal_loads_are_expected() {
    let model = dropless(1);
    let layout = layout_with(&model, "x=2,expert=4", 8, |request| request.zero = Zero::Off);
    let program = StepProgram::new(&model, &layout).unwrap();
    let ledger = &predict(&program).ranks[0];
    // Two sequences of 8 tokens on two ranks of x, each of which sends two rows of 8 numbers of 8 bytes: 3 of 4 parts leave,
    // twice forward and twice backward.
    let rows = 2 * 8 / 2 * 2;
    assert_eq!(ledger.axes["expert"][&CollectiveKind::AllToAll].wire_bytes, 4 * rows * 8 * 3 / 4 * 8);
    // Lengths of 8 queues, from 8 ranks.
    assert_eq!(ledger.axes["x+expert"][&CollectiveKind::AllGather].wire_bytes, 7 * 8 * 8);
}

/// How many rows come from whom is known by the gathered counts alone.
#[test]
fn counts_of_rows_must_be_gathered() {
    let program = unbroken(&dropless(1), Activations::Scattered, &[Axis::Expert], Dispatch::Dropped);
    assert!(prove(&program, 1).unwrap().ok);
    let is_of_counts = |it: &Collective| program.stages[0].value(it.output).name == "queue lengths of all";
    let gathers: Vec<_> = collectives(&program).into_iter().filter(is_of_counts).collect();
    let [gather] = gathers[..] else { panic!("one block gathers its counts once: {gathers:?}") };
    assert_eq!(gather.axes.key(), "x+expert");
    // The ranks along y and z have other rows, and as many counts.
    let elsewhere = Collective { axes: [Axis::Y, Axis::Z].into_iter().collect(), ..gather };
    // Tokens have places that the queues do not; rows of other ranks do not come in the lengths that are expected either.
    let without = ("no counts", None, &["block 0", "dispatch"][..]);
    let of_others = ("counts of other ranks", Some(elsewhere), &["block 0"][..]);
    for (change, instead, names) in [without, of_others] {
        let other = |op: &Op, operation: fn(Collective) -> Operation| -> Vec<Op> {
            instead.into_iter().map(|it| Op { operation: operation(it), ..*op }).collect()
        };
        let broken = replaced(&program, |op| match op.operation {
            Operation::Issue(it) if it == gather => other(op, Operation::Issue),
            Operation::Wait(it) if it == gather => other(op, Operation::Wait),
            _ => vec![*op],
        });
        assert_stopped(&broken, names, change);
    }
}

#[test]
fn every_collective_matters() {
    let layouts = [
        (Activations::Scattered, vec![Axis::Z, Axis::Expert], Dispatch::Dropped),
        (Activations::Replicated, vec![Axis::X, Axis::Expert], Dispatch::Dropped),
        (Activations::Replicated, vec![Axis::Expert], Dispatch::Duplicated),
    ];
    for (activations, over, dispatch) in layouts {
        let program = unbroken(&dropless(2), activations, &over, dispatch);
        assert!(prove(&program, 1).unwrap().ok);
        let stage = &program.stages[0];
        let mut caught = 0;
        for collective in collectives(&program) {
            let value = stage.value(collective.output);
            if value.counts.is_some() {
                let broken = replaced(&program, |op| match op.operation {
                    Operation::Issue(it) | Operation::Wait(it) if it == collective => Vec::new(),
                    _ => vec![*op],
                });
                let change = format!("{activations}, {dispatch}: no {} of {}", collective.kind.name(), value.name);
                assert_caught(&broken, 1, &change);
                caught += 1;
            }
        }
        assert!(caught >= 16, "{caught}");
    }
}
