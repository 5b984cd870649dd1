//! What a rank sends, computes and holds in a step.

use std::collections::BTreeMap;

use quadrille_engine::{DeviceUse, GraphUse, StepRecord, TrainOutcome};
use quadrille_run::units::{bytes, decimal, percent};
use quadrille_spec::{Axis, CollectiveKind, FlopsLedger, Grid, MemoryClass, RankLedger, Transfer};
use quadrille_step::{StepProgram, Verdict};

use crate::{Text, table};

/// All of so many ranks, in words.
pub(crate) fn all_ranks(ranks: usize) -> String {
    if ranks == 1 { "the rank".to_owned() } else { format!("all {ranks} ranks") }
}

/// A rank's ledger for people: a table of what it sends, its work, its memory.
pub fn text(grid: &Grid, rank: &RankLedger) -> Text {
    let heading = Text::heading(&format!("{}, one step", rank_name(grid, rank.rank)));
    Text::from("\n") + heading + transfers(grid, rank) + work(&rank.flops) + memory(rank)
}

/// What a training run says at its end: what was tuned, whether counts were as predicted, and the ledger of the last step.
pub fn of_run(program: &StepProgram, outcome: &TrainOutcome) -> Text {
    let matmuls = &outcome.ranks[0].matmuls;
    let (changed, measured) = matmuls.changed();
    let mut told = matmuls.algorithms().map_or_else(String::new, |algorithms| {
        let changed = algorithms.changed();
        let measured = algorithms.products.len();
        format!("{changed} of {measured} products run by other algorithms than {} takes by itself\n", algorithms.device)
    });
    if measured > 0 {
        told += &format!("{changed} of {measured} products run in another layout than their operands are stored in\n");
    }
    let Some(counted) = &outcome.counted else {
        return (told + "all steps were done already: none was counted\n").into();
    };
    let ranks = counted.ranks.len();
    told += &match outcome.difference {
        None => format!("ledger: bytes, FLOPs and memory of {} as predicted, in every step\n", all_ranks(ranks)),
        Some(_) => "ledger: DIFFERS from the prediction\n".to_owned(),
    };
    if program.layout.optimizer_overlap {
        told += &format!("updates: {}\n", repeats(&outcome.records));
    }
    told += &outcome.ranks[0].device_memory.map_or_else(String::new, |memory| format!("device: {}\n", device(memory)));
    told += &outcome.device_graphs().map_or_else(String::new, |told| format!("graphs: {}\n", graphs(told)));
    Text::from(told) + text(&program.layout.grid, &counted.ranks[0])
}

/// What the first rank has on its device.
pub(crate) fn device(memory: DeviceUse) -> String {
    let DeviceUse { buffers, alignment, workspace, scratch, pinned, used, total } = memory;
    let [buffers, alignment, workspace, scratch, pinned, used, total] =
        [buffers, alignment, workspace, scratch, pinned, used, total].map(bytes);
    format!(
        "{buffers} of buffers, {alignment} between them, {workspace} for products, {scratch} of scratch on the first rank, \
         {pinned} of the host's pinned; {used} of {total} in use by all"
    )
}

/// What all ranks did with graphs of their kernels.
pub(crate) fn graphs(told: GraphUse) -> String {
    let GraphUse { made, runs, updates, refused } = told;
    format!("{made} made, run {runs} times, {updates} kernels given other words, {refused} refused, on all ranks")
}

/// How many updates that were begun before the norm of the gradient was known did not stay.
pub(crate) fn repeats(records: &[StepRecord]) -> String {
    let times = |verdict| records.iter().filter(|record| record.verdict() == verdict).count();
    let [repeated, restored, steps] = [times(Verdict::Repeated), times(Verdict::Restored), records.len()];
    let share = percent(repeated as f64 / steps.max(1) as f64);
    format!(
        "{repeated} of {steps} ({share}) were done again since the gradient was clipped, {restored} were taken back"
    )
}

/// The rank, and in a pipeline its stage, counted from 0.
fn rank_name(grid: &Grid, rank: usize) -> String {
    let stage = grid.coordinate(rank).on(Axis::Pipe);
    match grid.size(Axis::Pipe) {
        1 => format!("rank {rank}"),
        stages => format!("rank {rank} in stage {stage} of {stages}"),
    }
}

/// Over axes of several ranks: what differs in others only is one.
fn transfers(grid: &Grid, rank: &RankLedger) -> Text {
    let mut sums: BTreeMap<(String, CollectiveKind), Transfer> = BTreeMap::new();
    for (axes, kinds) in &rank.axes {
        let several = |axis: &str| axis.parse().is_ok_and(|axis| grid.size(axis) > 1);
        let seen: Vec<&str> = axes.split('+').filter(|axis| several(axis)).collect();
        let seen = if seen.is_empty() { axes.clone() } else { seen.join("+") };
        kinds.iter().for_each(|(kind, transfer)| *sums.entry((seen.clone(), *kind)).or_default() += *transfer);
    }
    let rows: Vec<Vec<String>> = sums
        .into_iter()
        .map(|((axes, kind), Transfer { calls, payload_bytes, wire_bytes })| {
            vec![axes, kind.name().to_owned(), calls.to_string(), bytes(payload_bytes), bytes(wire_bytes)]
        })
        .collect();
    match rows.as_slice() {
        [] => "no communication\n".into(),
        rows => table(&["axes", "collective", "calls", "payload", "on the wire"], rows).into(),
    }
}

fn work(flops: &FlopsLedger) -> String {
    format!(
        "work: {}\n  forward {}, input gradients {}, weight gradients {}, attention {} + {}\n",
        decimal(flops.total() as f64, "FLOP"),
        decimal(flops.gemm_forward as f64, ""),
        decimal(flops.gemm_input_gradient as f64, ""),
        decimal(flops.gemm_weight_gradient as f64, ""),
        decimal(flops.attention_forward as f64, ""),
        decimal(flops.attention_backward as f64, ""),
    )
}

fn memory(rank: &RankLedger) -> String {
    let told = |class: MemoryClass| {
        let name = match class {
            MemoryClass::Parameters => "parameters",
            MemoryClass::Gradients => "gradients",
            MemoryClass::Optimizer => "optimizer",
            MemoryClass::Activations => "activations",
            MemoryClass::GatheredWeights => "gathered weights",
            MemoryClass::Buffers => "buffers",
            MemoryClass::Host => "beside it in the host's memory",
        };
        format!("{name} {}", bytes(rank.memory.peak_of.get(&class).copied().unwrap_or(0)))
    };
    let classes = MemoryClass::ALL.map(told);
    let in_host = rank.memory.peak_of.contains_key(&MemoryClass::Host);
    let host = if in_host { format!("  {}\n", told(MemoryClass::Host)) } else { String::new() };
    let (states, values) = classes.split_at(3);
    format!(
        "memory: {} at peak, in buffers of {}\n  {}\n  {}\n{host}",
        bytes(rank.memory.peak),
        bytes(rank.memory.allocated),
        states.join(", "),
        values.join(", ")
    )
}
