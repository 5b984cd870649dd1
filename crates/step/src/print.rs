//! A program as text: what runs, on which shapes and shardings, and which collectives follow.

use std::fmt::Write as _;

use quadrille_spec::{AxisSet, CollectiveKind};

use crate::ledger::operation_flops;
use crate::{Collective, Layer, Operation, Section, StepProgram, StorageId, Value};

/// The program as a table, a line per operation; equal for all ranks.
pub fn print_program(program: &StepProgram) -> String {
    let layout = &program.layout;
    let mut text = String::new();
    let _ = writeln!(
        text,
        "{} · {} activations · grid {} · {} microbatch(es) of {} x {} tokens per data rank · {} · overlap {}",
        program.model.name,
        layout.activations,
        layout.grid,
        layout.microbatches(),
        layout.microbatch,
        layout.seq_len,
        layout.dtype,
        layout.overlap,
    );
    let (forward, backward) = (0..program.backward_start, program.backward_start..program.pass.ops.len());
    print_ops(&mut text, program, &program.pass, "forward", forward);
    print_ops(&mut text, program, &program.pass, "backward", backward);
    print_ops(&mut text, program, &program.update, "update", 0..program.update.ops.len());
    text
}

fn print_ops(text: &mut String, program: &StepProgram, section: &Section, title: &str, range: std::ops::Range<usize>) {
    let notes = MemoryNotes::new(program, section, range.end);
    let mut layer: Option<Layer> = None;
    for index in range.clone() {
        let op = &section.ops[index];
        if layer.replace(op.layer) != Some(op.layer) {
            let _ = writeln!(text, "\n{} · {title}", op.layer);
            let _ = writeln!(
                text,
                "{:>4}  {:<22} {:<36} {:<14} {:<38} {:<28} {:>10} {:>10}  memory",
                "#", "operation", "value", "local", "sharded", "collective", "payload", "FLOP"
            );
        }
        let memory = notes.line(section, index, title == "forward");
        let line = line(program, index, &op.operation, &memory);
        let _ = writeln!(text, "{}", line.trim_end());
    }
}

fn line(program: &StepProgram, index: usize, operation: &Operation, memory: &str) -> String {
    let (_, writes) = operation.operands();
    let value = writes.first().map(|value| program.value(*value));
    let name = value.map_or(String::new(), |value| value.name.clone());
    let local = value.map_or(String::new(), local_shape);
    let sharded = value.map_or(String::new(), |value| value.sharding.to_string());
    let (collective, payload) = match operation {
        Operation::Issue(collective) => collective_note(program, collective),
        Operation::ReduceScalar { scalar, axes } => {
            (format!("all-reduce {} ({scalar:?})", spans(program, *axes)), "8 B".to_owned())
        }
        _ => Default::default(),
    };
    let flops = match operation_flops(program, operation) {
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

fn collective_note(program: &StepProgram, collective: &Collective) -> (String, String) {
    let payload = match collective.kind {
        CollectiveKind::AllGather => collective.output,
        _ => collective.input,
    };
    let bytes = program.value(payload).local_elements as u64 * program.layout.dtype.bytes();
    let what = format!("{} {}", collective.kind.name(), spans(program, collective.axes));
    (what, scaled(bytes as f64, 1024.0, ["B", "KiB", "MiB", "GiB", "TiB"]))
}

/// `y+z (x4)`: axes and the number of members.
fn spans(program: &StepProgram, axes: AxisSet) -> String {
    format!("{} (x{})", axes.key(), program.layout.grid.size_of(axes))
}

/// What the forward pass keeps for the backward pass, and what is given back.
struct MemoryNotes<'a> {
    /// By storage: its last value's name, and whether it dies in the printed range.
    storages: Vec<(&'a str, bool)>,
}

impl<'a> MemoryNotes<'a> {
    fn new(program: &'a StepProgram, section: &Section, end: usize) -> Self {
        let mut storages = vec![("", false); program.storages.len()];
        for value in &program.values {
            storages[value.storage.0].0 = value.name.as_str();
        }
        for storage in section.lifetimes.deaths[..end].iter().flatten() {
            storages[storage.0].1 = true;
        }
        Self { storages }
    }

    fn line(&self, section: &Section, index: usize, forward: bool) -> String {
        let outlives = |storage: &&StorageId| forward && !self.storages[storage.0].1;
        let saved: Vec<&StorageId> = section.lifetimes.births[index].iter().filter(outlives).collect();
        let freed: Vec<&StorageId> = section.lifetimes.deaths[index].iter().collect();
        let list = |what: &str, storages: Vec<&StorageId>| {
            let names: Vec<&str> = storages.iter().map(|storage| self.storages[storage.0].0).collect();
            (!names.is_empty()).then(|| format!("{what} {}", names.join(", ")))
        };
        [list("saves", saved), list("frees", freed)].into_iter().flatten().collect::<Vec<_>>().join("; ")
    }
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
