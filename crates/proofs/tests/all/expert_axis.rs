//! The expert axis of models without experts: a factor of the batch, which does what data does, bit for bit.

use std::collections::BTreeMap;

use proptest::prelude::*;
use quadrille_proofs::{
    Case, Trajectory, assert_caught, combined_cases, edited, for_random, model, operations, program_with, prove,
    replaced, trajectory,
};
use quadrille_spec::{AxesLedger, Axis, AxisSet, CollectiveKind, ElementType, Grid, HOST, Layout, RankLedger, Zero};
use quadrille_step::{Operation, Scalar, StepProgram, kind};

/// The grid with its shares of the batch as so many expert ranks, and the others as data ranks; expert lies just inside data,
/// so that every rank has the same share.
fn shared_out(grid: &Grid, expert: usize) -> Grid {
    let axes = grid.order().axes().into_iter().filter(|axis| *axis != Axis::Expert);
    let named = axes.flat_map(|axis| if axis == Axis::Data { vec![Axis::Expert, axis] } else { vec![axis] });
    let order = named.map(Axis::name).collect::<Vec<_>>().join(",");
    let data = grid.batch_shares() / expert;
    let sizes = grid.with(Axis::Expert, expert).and_then(|grid| grid.with(Axis::Data, data));
    sizes.unwrap().with_order(order.parse().unwrap())
}

/// Its ledgers as if expert ranks were data ranks: without axes of size 1, which send nothing.
fn as_data(ledger: &RankLedger, grid: &Grid) -> RankLedger {
    let renamed = |axes: &AxesLedger| {
        let mut merged = AxesLedger::new();
        for (key, kinds) in axes.iter().filter(|(_, kinds)| !kinds.is_empty()) {
            let merged = merged.entry(as_data_key(key, grid)).or_default();
            for (kind, transfer) in kinds {
                *merged.entry(*kind).or_default() += *transfer;
            }
        }
        merged
    };
    let mut ledger = ledger.clone();
    ledger.axes = renamed(&ledger.axes);
    ledger.layers.iter_mut().for_each(|layer| layer.axes = renamed(&layer.axes));
    ledger
}

fn as_data_key(key: &str, grid: &Grid) -> String {
    if key == HOST || key == AxisSet::WORLD.key() {
        return key.to_owned();
    }
    let axes = key.split('+').map(|name| name.parse::<Axis>().unwrap()).filter(|axis| grid.size(*axis) > 1);
    let axes = axes.map(|axis| if axis == Axis::Expert { Axis::Data } else { axis });
    axes.collect::<AxisSet>().key()
}

/// What every rank of a layout computes in three steps, and what it counts.
fn run(case: &Case, expert: usize) -> Vec<Trajectory> {
    let grid = shared_out(&case.layout.grid, expert);
    let program = Case { layout: Layout { grid, ..case.layout.clone() }, ..case.clone() }.program(ElementType::F64);
    let ranks = trajectory(&program, 3, case.threads).unwrap_or_else(|error| panic!("{:?}: {error}", program.layout));
    let of_data = |rank: Trajectory| {
        let ledger = rank.ledger.map(|ledger| as_data(&ledger, &grid));
        Trajectory { ledger, ..rank }
    };
    ranks.into_iter().map(of_data).collect()
}

fn divisors(number: usize) -> impl Iterator<Item = usize> {
    (2..=number).filter(move |divisor| number.is_multiple_of(*divisor))
}

/// Losses, norms, gradients, weights, and what is sent, computed and held: with every ZeRO stage, schedule and
/// recomputation, on context and pipelines, with states on the device and in the host's memory.
#[test]
fn expert_ranks_are_data_ranks_to_the_bit() {
    let cases = combined_cases().prop_filter("several shares", |case| case.layout.grid.batch_shares() > 1);
    for_random(25, cases, |case| {
        let data = run(&case, 1);
        for expert in divisors(case.layout.grid.batch_shares()) {
            prop_assert!(run(&case, expert) == data, "expert={}", expert);
        }
        Ok(())
    });
}

/// Two microbatches of each of four shares of the batch.
fn shares(grid: &str, zero: Zero) -> StepProgram {
    let program = program_with(&model(1), grid, 32, |request| (request.zero, request.microbatch) = (zero, Some(4)));
    let report = prove(&program, 1).unwrap();
    assert!(report.ok, "{report:?}");
    program
}

/// Where expert is 1 no collective names it; where it is more, all that name data do.
#[test]
fn keys_name_expert_where_it_is_above_one() {
    let keys = |grid| -> Vec<String> {
        let program = shares(grid, Zero::Off);
        let ledger = trajectory(&program, 1, 1).unwrap().swap_remove(0).ledger.unwrap();
        ledger.axes.into_keys().collect()
    };
    assert!(keys("y=2,z=2,data=4").iter().all(|key| !key.contains("expert")));
    let both = keys("y=2,z=2,expert=2,data=2");
    for key in ["expert+data", "y+z+expert+data", "z+expert+data", "expert", "data"] {
        assert!(both.iter().any(|known| known == key), "{key}: {both:?}");
    }
}

/// Every sum over expert, without it.
#[test]
fn every_sum_over_expert_matters() {
    let program = shares("expert=2,data=2", Zero::Off);
    let mut sums: BTreeMap<String, AxisSet> = BTreeMap::new();
    for (_, op) in operations(&program) {
        if let Operation::Issue(collective) = op.operation
            && collective.axes.contains(Axis::Expert)
        {
            assert_eq!(collective.kind, CollectiveKind::AllReduce);
            sums.insert(program.stages[0].value(collective.input).name.clone(), collective.axes);
        }
    }
    // A gradient for each parameter of a block, two tables and the last norm.
    assert!(sums.len() > 12, "{sums:?}");
    for name in sums.keys() {
        let broken = replaced(&program, |op| {
            let mut op = *op;
            if let Operation::Issue(collective) | Operation::Wait(collective) = &mut op.operation
                && program.stages[0].value(collective.input).name == *name
            {
                collective.axes = collective.axes.without(Axis::Expert.only());
            }
            vec![op]
        });
        assert_caught(&broken, 1, &format!("{name} is not summed over expert"));
    }
}

/// The loss, and the gradient norm of states that expert ranks share.
#[test]
fn every_scalar_over_expert_matters() {
    for (lost, zero) in [(Scalar::Loss, Zero::Off), (Scalar::GradientNormSquared, Zero::Gradients)] {
        let program = shares("expert=2,data=2", zero);
        let broken = edited(&program, |_, _, update| {
            for op in update {
                if let Operation::ReduceScalar(kind::ReduceScalar { scalar, axes }) = &mut op.operation
                    && *scalar == lost
                {
                    *axes = axes.without(Axis::Expert.only());
                }
            }
        });
        assert_caught(&broken, 1, &format!("{lost:?} is not summed over expert"));
    }
}
