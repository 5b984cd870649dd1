//! What the ranks did in the last step, in the form of the simulated traces; and the files of both.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::time::Duration;

use quadrille_cost::trace::{Trace, TraceEvent, chrome_trace};
use quadrille_engine::{RankReport, TracedOperation, TracedTransfer};
use quadrille_spec::{Axis, CollectiveKind};
use quadrille_step::StepProgram;
use quadrille_step::schedule::Action;

use crate::{Refusal, RunError};

/// Opens the file of a trace, which keeps what it holds until the trace is written.
///
/// # Errors
/// The system's.
pub fn create_trace(path: &Path) -> Result<File, RunError> {
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(path);
    let unwritable = |error: io::Error| {
        let why = quadrille_files::reason(&error);
        let remedy = quadrille_files::remedy(path, &error);
        Refusal::new(format!("cannot write the trace {}: {why}{remedy}", path.display()))
    };
    Ok(file.map_err(unwritable)?)
}

/// Fills a file for `chrome://tracing` or Perfetto.
///
/// # Errors
/// The system's.
pub fn write_trace(path: &Path, file: File, trace: &Trace) -> Result<(), RunError> {
    filled(file, trace).map_err(|error| RunError::Unwritten { what: "the trace ", path: path.to_owned(), error })
}

fn filled(file: File, trace: &Trace) -> io::Result<()> {
    // Devices and pipes hold nothing that could be cut off.
    if file.metadata().is_ok_and(|metadata| metadata.is_file()) {
        file.set_len(0)?;
    }
    let mut writer = BufWriter::new(file);
    serde_json::to_writer(&mut writer, &chrome_trace(trace))?;
    writer.flush()
}

/// A process per rank: its passes, its operations, its collectives by axes, its messages. Time begins with the first
/// operation of any rank.
pub(crate) fn measured(program: &StepProgram, ranks: &[RankReport]) -> Trace {
    let traces = || ranks.iter().enumerate().filter_map(|(rank, report)| Some((rank, report.trace.as_ref()?)));
    let begin = traces().flat_map(|(_, trace)| trace.operations.iter().map(|span| span.start)).min();
    let Some(begin) = begin else { return Trace::default() };
    let grid = &program.layout.grid;
    let name = |rank| format!("rank {rank}, stage {}", grid.coordinate(rank).on(Axis::Pipe));
    let mut events = Vec::new();
    for (rank, trace) in traces() {
        let clock = Clock { rank, begin };
        events.extend(passes(&clock, &trace.operations));
        events.extend(trace.operations.iter().map(|span| operation(&clock, span)));
        events.extend(communication(&clock, &trace.communication));
    }
    Trace { processes: (0..ranks.len()).map(name).collect(), events }
}

struct Clock {
    rank: usize,
    begin: Duration,
}

impl Clock {
    fn event(&self, lane: String, name: String, category: &'static str, start: Duration, end: Duration) -> TraceEvent {
        let seconds = |at: Duration| at.saturating_sub(self.begin).as_secs_f64();
        let process = self.rank;
        let args = BTreeMap::new();
        TraceEvent { process, lane, name, category, start_s: seconds(start), end_s: seconds(end), args }
    }
}

fn named(action: Option<Action>) -> String {
    action.map_or_else(|| "update".to_owned(), |action| action.to_string())
}

/// From the first to the last operation of each pass.
fn passes(clock: &Clock, operations: &[TracedOperation]) -> Vec<TraceEvent> {
    let computes: Vec<&TracedOperation> = operations.iter().filter(|span| !is_message(&span.name)).collect();
    let runs = computes.chunk_by(|a, b| a.action == b.action);
    let event = |run: &[&TracedOperation]| {
        let first = run.first()?;
        let last = run.last()?;
        Some(clock.event("passes".to_owned(), named(first.action), "pass", first.start, last.end))
    };
    runs.filter_map(event).collect()
}

/// Whether an operation waits for another stage.
fn is_message(name: &str) -> bool {
    matches!(name, "receive" | "release")
}

/// Whether an operation waits for a collective, or hands one to the communication thread.
fn is_collective(name: &str) -> bool {
    matches!(name, "wait" | "wait-carried" | "issue" | "reduce-scalar")
}

fn operation(clock: &Clock, span: &TracedOperation) -> TraceEvent {
    let waits = is_message(&span.name) || is_collective(&span.name);
    let category = if waits { "wait" } else { "compute" };
    let event = clock.event("compute".to_owned(), span.name.to_string(), category, span.start, span.end);
    TraceEvent { args: [("layer", span.layer.clone()), ("during", named(span.action))].into(), ..event }
}

/// Collectives on a lane for their axes, messages on one for each direction; what overlaps goes to further lanes.
fn communication(clock: &Clock, spans: &[TracedTransfer]) -> Vec<TraceEvent> {
    let mut busy: BTreeMap<String, Vec<Duration>> = BTreeMap::new();
    let mut events = Vec::new();
    for span in spans {
        let (lane, category) = match span.kind {
            CollectiveKind::Send => ("messages sent".to_owned(), "message"),
            CollectiveKind::Receive => ("messages received".to_owned(), "message"),
            _ => (format!("collectives {}", span.group), "collective"),
        };
        let ends = busy.entry(lane.clone()).or_default();
        let free = ends.iter().position(|end| *end <= span.start).unwrap_or(ends.len());
        match ends.get_mut(free) {
            Some(end) => *end = span.end,
            None => ends.push(span.end),
        }
        let lane = if free == 0 { lane } else { format!("{lane} {}", free + 1) };
        let event = clock.event(lane, span.kind.name().to_owned(), category, span.start, span.end);
        let args = [("layer", span.layer.clone()), ("bytes", span.payload_bytes.to_string())].into();
        events.push(TraceEvent { args, ..event });
    }
    events
}
