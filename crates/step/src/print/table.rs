//! The table of a section: a line per operation, or where that is too wide, a line and what does not fit on lines below it.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::{Shown, collective_note, local_shape, memory_notes, scaled, spans, told_bytes};
use crate::ledger::moved_to_host;
use crate::operation::Scalar;
use crate::schedule::Pass;
use crate::wrap::hung;
use crate::{At, Layer, Message, Op, Operation, Reasons, Section, StageProgram, StorageId, When, kind};

/// A section to be printed.
pub(super) struct Table<'a> {
    pub program: &'a StageProgram,
    pub section: &'a Section,
    /// Storages that the forward pass keeps.
    pub saved: &'a BTreeSet<StorageId>,
    /// The number of the first operation.
    pub first: usize,
    pub shown: &'a Shown,
}

/// A line of the table.
#[derive(Default)]
struct Line {
    number: String,
    operation: String,
    value: String,
    local: String,
    sharded: String,
    collective: String,
    payload: String,
    flops: String,
    memory: String,
    /// Why it communicates.
    reason: Option<String>,
}

/// What stands below an operation where a table of everything is too wide.
pub(super) const BELOW: &str =
    "below an operation: how its value is sharded; what is sent, and why; what is saved and freed";

/// Before what stands below an operation.
const INDENT: &str = "      ";

impl Table<'_> {
    pub fn print(&self, text: &mut String, pass: Option<Pass>, title: &str) {
        let section = self.section;
        let reasons = Reasons::of(self.program, self.section, pass);
        let is_shown = |layer: Layer| self.shown.layer.is_none_or(|shown| shown == layer);
        let is_told = |message: &&Message| is_shown(message.layer);
        let mut layer: Option<Layer> = None;
        let mut begin = |text: &mut String, of: Layer| {
            if layer.replace(of) != Some(of) {
                let _ = writeln!(text, "\n{of} · {title}");
                *text += &self
                    .shown
                    .width
                    .map_or_else(|| Line::header().wide(), |width| Line::narrow_header().narrow(width));
            }
        };
        for message in section.receives.iter().filter(is_told) {
            begin(text, message.layer);
            *text += &self.told(&self.message("receive", message, reasons.of_message(message, false)));
        }
        for (index, op) in section.ops.iter().enumerate().filter(|(_, op)| is_shown(op.layer)) {
            begin(text, op.layer);
            *text += &self.told(&Line { reason: reasons.why(index), ..self.line(index, op) });
        }
        for message in section.sends.iter().filter(is_told) {
            begin(text, message.layer);
            *text += &self.told(&self.message("send", message, reasons.of_message(message, true)));
        }
    }

    fn told(&self, line: &Line) -> String {
        self.shown.width.map_or_else(|| line.wide(), |width| line.narrow(width))
    }

    fn message(&self, what: &str, message: &Message, reason: String) -> Line {
        let value = self.program.value(message.value);
        Line {
            operation: what.to_owned(),
            value: value.name.clone(),
            local: local_shape(value),
            sharded: value.sharding.seen_on(self.program.grid()).to_string(),
            collective: format!("stage {}", message.peer),
            payload: told_bytes(self.program.local_bytes(message.value)),
            reason: Some(reason),
            ..Line::default()
        }
    }

    fn line(&self, index: usize, op: &Op) -> Line {
        let program = self.program;
        let operation = &op.operation;
        let value = operation.operands().writes().first().map(|value| program.value(*value));
        let (collective, payload) = communicated(program, operation);
        let flops = match operation.work(At::first(program)).flops() {
            0 => String::new(),
            flops => scaled(flops as f64, 1e3, ["", "K", "M", "G", "T"]),
        };
        let notes = [when(op), memory_notes(program, self.section, index, self.saved)];
        Line {
            number: (self.first + index).to_string(),
            operation: operation.name().to_owned(),
            value: value.map_or(String::new(), |value| value.name.clone()),
            local: value.map_or(String::new(), local_shape),
            sharded: value.map_or(String::new(), |value| value.sharding.seen_on(program.grid()).to_string()),
            collective,
            payload,
            flops,
            memory: notes.into_iter().filter(|note| !note.is_empty()).collect::<Vec<_>>().join("; "),
            reason: None,
        }
    }
}

/// What an operation sends, and how much.
fn communicated(program: &StageProgram, operation: &Operation) -> (String, String) {
    match operation {
        Operation::Issue(collective) => collective_note(program, collective),
        Operation::ReduceScalar(kind::ReduceScalar { scalar, axes }) => {
            let bytes = Scalar::BYTES as usize * scalar.elements();
            (format!("all-reduce {} ({scalar})", spans(program, *axes)), format!("{bytes} B"))
        }
        operation => match moved_to_host(program, operation) {
            Some((kind, bytes)) => (format!("{} host", kind.name()), told_bytes(bytes)),
            None => Default::default(),
        },
    }
}

fn when(op: &Op) -> String {
    let told = match op.when {
        When::Always => "",
        When::First => "first microbatch only",
        When::Last => "last microbatch only",
        When::Repeated => "where the gradient is clipped",
        When::Restored => "where it is not applied",
        When::Applied => "where it is applied",
    };
    told.to_owned()
}

impl Line {
    fn header() -> Self {
        let [number, operation, value, local, sharded, collective, payload, flops, memory] =
            ["#", "operation", "value", "local", "sharded", "collective", "payload", "FLOP", "memory"]
                .map(str::to_owned);
        Self { number, operation, value, local, sharded, collective, payload, flops, memory, reason: None }
    }

    /// Of what [`Line::narrow`] has on its first line; [`BELOW`] says what comes below.
    fn narrow_header() -> Self {
        let Self { number, operation, value, local, .. } = Self::header();
        Self { number, operation, value, local, payload: "sent, FLOP".to_owned(), ..Self::default() }
    }

    /// Everything on one line, the reason below it.
    fn wide(&self) -> String {
        let Self { number, operation, value, local, sharded, collective, payload, flops, memory, reason } = self;
        let line = format!(
            "{number:>4}  {operation:<22} {value:<36} {local:<14} {sharded:<38} {collective:<28} {payload:>10} {flops:>10}  {memory}"
        );
        let reason = reason.iter().map(|reason| format!("{INDENT}why: {reason}\n"));
        format!("{}\n{}", line.trim_end(), reason.collect::<String>())
    }

    /// What is computed, on a line; how it lies, what is sent and why, and memory below it.
    fn narrow(&self, width: usize) -> String {
        let width = width.max(Shown::NARROWEST);
        let amount = if self.payload.is_empty() { &self.flops } else { &self.payload };
        let local = &self.local;
        let room = width - (6 + 22 + 1 + 1 + 14 + 1 + 10);
        let line = format!(
            "{:>4}  {:<22} {:<room$} {local:<14} {amount:>10}",
            self.number,
            self.operation,
            shortened(&self.value, room)
        );
        let mut text = format!("{}\n", line.trim_end());
        let sent = match (self.reason.as_deref(), self.collective.as_str()) {
            (Some(reason), collective) => Some(format!("{collective}: {reason}")),
            (None, "") => None,
            (None, collective) => Some(collective.to_owned()),
        };
        let memory = Some(&self.memory).filter(|memory| !memory.is_empty()).cloned();
        let sharded = Some(&self.sharded).filter(|sharded| !sharded.is_empty() && self.operation != "wait").cloned();
        for more in [sharded, sent, memory].into_iter().flatten() {
            text += &hung(&format!("{INDENT}{more}"), width, INDENT.len());
        }
        text
    }
}

fn shortened(text: &str, width: usize) -> String {
    if text.chars().count() > width {
        text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
    } else {
        text.to_owned()
    }
}
