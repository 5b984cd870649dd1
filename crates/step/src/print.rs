//! A program as text: what runs, on which shapes and shardings, and which collectives follow.

mod table;

use std::collections::BTreeSet;
use std::fmt::Write as _;

use quadrille_spec::{Axis, AxisSet, Dispatch, KeepWeights, Layout, Linear, Offload, Recompute, Zero, counted};

use self::table::{BELOW, Table};
use crate::ledger::payload_bytes;
use crate::program::ChunkProgram;
use crate::schedule::{Action, Pass, Step};
use crate::wrap::hung;
use crate::{Collective, Layer, Members, Section, StageProgram, StepProgram, StorageId, Value};

/// Which part of a program is printed, and how wide.
#[derive(Debug, Clone, Copy, Default)]
pub struct Shown {
    /// One stage only.
    pub stage: Option<usize>,
    /// One layer only: its operations keep the numbers that they have in their passes.
    pub layer: Option<Layer>,
    /// The most columns of a line, at least [`Shown::NARROWEST`]; `None`: as many as a table of everything takes.
    pub width: Option<usize>,
}

impl Shown {
    /// What is narrower is not legible.
    pub const NARROWEST: usize = 60;
}

/// The program as a table, a line per operation, and below collectives why they are there; equal for all ranks of a stage. Axes of
/// one rank are not shown.
pub fn print_program(program: &StepProgram) -> String {
    print_part(program, &Shown::default())
}

/// A part of the program.
pub fn print_part(program: &StepProgram, shown: &Shown) -> String {
    let layout = &program.layout;
    let mut text = format!(
        "{} · {} activations · grid {} · {} of {} x {} {} per data rank · {} · overlap {}\n",
        program.model.name,
        layout.activations,
        layout.grid.short(),
        counted(layout.microbatches(), "microbatch"),
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
    if let Some(width) = shown.width {
        text = hung(&format!("{text}{BELOW}\n"), width, 0);
    }
    for stage in program.stages.iter().filter(|stage| shown.stage.is_none_or(|shown| shown == stage.stage)) {
        print_stage(&mut text, stage, shown);
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

fn print_stage(text: &mut String, program: &StageProgram, shown: &Shown) {
    let stages = program.grid().size(Axis::Pipe);
    if stages > 1 {
        let _ = writeln!(text, "\nstage {} of {stages} · {}", program.stage, program.layout.schedule);
        let order = order(program) + "\n";
        *text += &shown.width.map_or(order.clone(), |width| hung(&order, width, 2));
    }
    for (index, chunk) in program.chunks.iter().enumerate() {
        if program.chunks.len() > 1 {
            let _ = writeln!(text, "\nchunk {index}");
        }
        let mut first = 0;
        let saved = lasts(chunk);
        for (section, pass) in chunk.sections().into_iter().zip([Pass::Forward, Pass::Backward, Pass::WeightGradient]) {
            let title = match pass {
                Pass::WeightGradient => "weight gradients".to_owned(),
                pass => pass.to_string(),
            };
            Table { program, section, saved: &saved, first, shown }.print(text, Some(pass), &title);
            first += section.ops.len();
        }
    }
    let table = Table { program, section: &program.update, saved: &BTreeSet::new(), first: 0, shown };
    table.print(text, None, "update");
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
        Members::Blocks(size) => {
            format!("{} blocks of {} (x{size})", collective.kind.name(), program.grid().key(collective.axes))
        }
    };
    (what, told_bytes(bytes))
}

fn told_bytes(bytes: u64) -> String {
    scaled(bytes as f64, 1024.0, ["B", "KiB", "MiB", "GiB", "TiB"])
}

/// `y+z (x4)`: axes and the number of members.
fn spans(program: &StageProgram, axes: AxisSet) -> String {
    let grid = program.grid();
    let named = match grid.key(axes) {
        none if none.is_empty() => axes.key(),
        named => named,
    };
    format!("{named} (x{})", grid.size_of(axes))
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
