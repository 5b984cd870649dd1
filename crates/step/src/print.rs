//! A program as text: what runs, on which shapes and shardings, and which collectives follow.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use quadrille_spec::{Axis, AxisSet, Dispatch, KeepWeights, Layout, Linear, Offload, Recompute, Zero};

use crate::ledger::{moved_to_host, payload_bytes};
use crate::program::ChunkProgram;
use crate::schedule::{Action, Pass, Step};
use crate::{
    At, Collective, Layer, Members, Message, Operation, Section, StageProgram, StepProgram, StorageId, Value, When,
    kind,
};

/// The program as a table, a line per operation; equal for all ranks of a stage.
pub fn print_program(program: &StepProgram) -> String {
    let layout = &program.layout;
    let mut text = String::new();
    let _ = writeln!(
        text,
        "{} · {} activations · grid {} · {} microbatch(es) of {} x {} {} per data rank · {} · overlap {}",
        program.model.name,
        layout.activations,
        layout.grid,
        layout.microbatches(),
        layout.microbatch,
        layout.seq_len,
        program.model.sequence_unit(),
        layout.dtype,
        layout.overlap,
    );
    if let Some(switches) = switches(layout) {
        let _ = writeln!(text, "{switches}");
    }
    let pruned = program.parameters().filter(|(_, parameter)| parameter.compressed.is_some()).count();
    if pruned > 0 {
        let estimated = if program.kept.is_empty() { ", as if every tile kept as many" } else { "" };
        let _ = writeln!(text, "{pruned} tensors pruned: gradients and states are of what is kept{estimated}");
    }
    for stage in &program.stages {
        print_stage(&mut text, stage);
    }
    text
}

/// What differs from the plainest layout.
fn switches(layout: &Layout) -> Option<String> {
    let mut parts = Vec::new();
    let mut note = |on: bool, text: String| parts.extend(on.then_some(text));
    note(layout.linear == Linear::Summa, format!("summa in {} panels", layout.summa_panels));
    note(!layout.experts_over.is_empty(), format!("experts over {}", layout.experts_over));
    note(layout.dispatch == Dispatch::Duplicated, "tokens duplicated".to_owned());
    note(layout.overlap_chunks > 1, format!("{} overlap chunks", layout.overlap_chunks));
    note(layout.recompute != Recompute::None, format!("recompute {}", layout.recompute));
    note(layout.keep_communicated, "outputs of collectives kept".to_owned());
    note(layout.zero != Zero::Off, format!("ZeRO {}", layout.zero));
    note(layout.keep_weights == KeepWeights::Step, "weights gathered once per step".to_owned());
    let states = format!("states in the host's memory, buckets of {} elements", layout.bucket);
    note(layout.offload != Offload::None, states);
    note(layout.optimizer_overlap, "buckets updated while gradients are reduced".to_owned());
    (!parts.is_empty()).then(|| parts.join(" · "))
}

fn print_stage(text: &mut String, program: &StageProgram) {
    let stages = program.grid().size(Axis::Pipe);
    if stages > 1 {
        let _ = writeln!(text, "\nstage {} of {stages} · {}", program.stage, program.layout.schedule);
        let _ = writeln!(text, "{}", order(program));
    }
    for (index, chunk) in program.chunks.iter().enumerate() {
        if program.chunks.len() > 1 {
            let _ = writeln!(text, "\nchunk {index}");
        }
        let mut first = 0;
        let ends = lasts(chunk);
        for (section, title) in chunk.sections().into_iter().zip(["forward", "backward", "weight gradients"]) {
            print_section(text, program, section, title, first, &ends);
            first += section.ops.len();
        }
    }
    print_section(text, program, &program.update, "update", 0, &BTreeSet::new());
}

/// The steps of a stage: `+F1` a posted receive, `F1` a pass, `-F1` a released send; with chunks `F1.0`.
fn order(program: &StageProgram) -> String {
    let name = |action: Action| {
        let pass = match action.pass {
            Pass::Forward => "F",
            Pass::Backward => "B",
            Pass::WeightGradient => "W",
        };
        let chunk = if program.chunks.len() > 1 { format!(".{}", action.chunk) } else { String::new() };
        format!("{pass}{}{chunk}", action.microbatch)
    };
    let steps = program.steps.iter().map(|step| match *step {
        Step::Post(action) => format!("+{}", name(action)),
        Step::Run(action) => name(action),
        Step::Release(action) => format!("-{}", name(action)),
    });
    steps.collect::<Vec<_>>().join(" ")
}

/// The storages that the forward pass keeps.
fn lasts(chunk: &ChunkProgram) -> BTreeSet<StorageId> {
    let freed = |section: &Section| section.lifetimes.deaths.iter().flatten().copied().collect::<BTreeSet<_>>();
    let freed_forward = freed(&chunk.forward);
    chunk.forward.lifetimes.births.iter().flatten().copied().filter(|born| !freed_forward.contains(born)).collect()
}

fn print_section(
    text: &mut String,
    program: &StageProgram,
    section: &Section,
    title: &str,
    first: usize,
    saved: &BTreeSet<StorageId>,
) {
    let mut layer: Option<Layer> = None;
    let message = |text: &mut String, what: &str, message: &Message| {
        let value = program.value(message.value);
        let bytes = program.local_bytes(message.value);
        let _ = writeln!(
            text,
            "      {what:<22} {:<36} {:<14} {:<38} {:<28} {:>10}",
            value.name,
            local_shape(value),
            value.sharding.to_string(),
            format!("stage {}", message.peer),
            told_bytes(bytes),
        );
    };
    for (index, op) in section.ops.iter().enumerate() {
        if layer.replace(op.layer) != Some(op.layer) {
            let _ = writeln!(text, "\n{} · {title}", op.layer);
            let _ = writeln!(
                text,
                "{:>4}  {:<22} {:<36} {:<14} {:<38} {:<28} {:>10} {:>10}  memory",
                "#", "operation", "value", "local", "sharded", "collective", "payload", "FLOP"
            );
        }
        if index == 0 {
            section.receives.iter().for_each(|received| message(text, "receive", received));
        }
        let mut notes = memory_notes(program, section, index, saved);
        let when = match op.when {
            When::Always => None,
            When::First => Some("first microbatch only"),
            When::Last => Some("last microbatch only"),
            When::Repeated => Some("where the gradient is clipped"),
            When::Restored => Some("where it is not applied"),
            When::Applied => Some("where it is applied"),
        };
        if let Some(when) = when {
            notes = [when, &notes].into_iter().filter(|note| !note.is_empty()).collect::<Vec<_>>().join("; ");
        }
        let line = line(program, first + index, &op.operation, &notes);
        let _ = writeln!(text, "{}", line.trim_end());
    }
    section.sends.iter().for_each(|sent| message(text, "send", sent));
}

/// What the forward pass keeps for the backward pass, and what is given back.
fn memory_notes(program: &StageProgram, section: &Section, index: usize, saved: &BTreeSet<StorageId>) -> String {
    let name = |storage: &StorageId| {
        let last = program.values.iter().rev().find(|value| value.storage == *storage);
        last.map_or("", |value| value.name.as_str())
    };
    let list = |what: &str, storages: Vec<&StorageId>| {
        let names: Vec<&str> = storages.into_iter().map(name).collect();
        (!names.is_empty()).then(|| format!("{what} {}", names.join(", ")))
    };
    let births = section.lifetimes.births[index].iter().filter(|storage| saved.contains(storage)).collect();
    let deaths = section.lifetimes.deaths[index].iter().collect();
    [list("saves", births), list("frees", deaths)].into_iter().flatten().collect::<Vec<_>>().join("; ")
}

fn line(program: &StageProgram, index: usize, operation: &Operation, memory: &str) -> String {
    let value = operation.operands().writes().first().map(|value| program.value(*value));
    let name = value.map_or(String::new(), |value| value.name.clone());
    let local = value.map_or(String::new(), local_shape);
    let sharded = value.map_or(String::new(), |value| value.sharding.to_string());
    let (collective, payload) = match operation {
        Operation::Issue(collective) => collective_note(program, collective),
        Operation::ReduceScalar(kind::ReduceScalar { scalar, axes }) => {
            (format!("all-reduce {} ({scalar:?})", spans(program, *axes)), format!("{} B", 8 * scalar.elements()))
        }
        operation => match moved_to_host(program, operation) {
            Some((kind, bytes)) => (format!("{} host", kind.name()), told_bytes(bytes)),
            None => Default::default(),
        },
    };
    let flops = match operation.work(At::first(program)).flops() {
        0 => String::new(),
        flops => scaled(flops as f64, 1e3, ["", "K", "M", "G", "T"]),
    };
    format!(
        "{index:>4}  {:<22} {name:<36} {local:<14} {sharded:<38} {collective:<28} {payload:>10} {flops:>10}  {memory}",
        operation.name()
    )
}

fn local_shape(value: &Value) -> String {
    if value.sharding.flat.is_empty() {
        format!("[{},{}]", value.local_rows, value.local_cols)
    } else {
        format!("[{}]", value.local_elements)
    }
}

fn collective_note(program: &StageProgram, collective: &Collective) -> (String, String) {
    let bytes = payload_bytes(program, collective);
    let what = format!("{} {}", collective.kind.name(), spans(program, collective.axes));
    let what = match collective.members {
        Members::All => what,
        Members::Root(root) => format!("{what} root {root}"),
        Members::Ends => format!("{} pipe ends (x2)", collective.kind.name()),
        Members::Blocks(size) => format!("{} blocks of {} (x{size})", collective.kind.name(), collective.axes.key()),
    };
    (what, told_bytes(bytes))
}

fn told_bytes(bytes: u64) -> String {
    scaled(bytes as f64, 1024.0, ["B", "KiB", "MiB", "GiB", "TiB"])
}

/// `y+z (x4)`: axes and the number of members.
fn spans(program: &StageProgram, axes: AxisSet) -> String {
    format!("{} (x{})", axes.key(), program.layout.grid.size_of(axes))
}

/// `1.5 MiB`, `786.4 K`: three or four digits and a unit.
fn scaled(mut value: f64, base: f64, units: [&str; 5]) -> String {
    let mut unit = 0;
    while value >= base && unit < 4 {
        value /= base;
        unit += 1;
    }
    let digits = if unit == 0 { 0 } else { 1 };
    format!("{value:.digits$} {}", units[unit]).trim_end().to_owned()
}
