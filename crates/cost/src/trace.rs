//! Traces of what ran when, simulated or measured, in the trace event format that `chrome://tracing` and Perfetto show
//! ("Trace Event Format", Google: complete events `X` and metadata events `M` in the JSON object format).

use std::collections::BTreeMap;

use serde::Serialize;

use crate::simulation::{Event, PassSpan, Simulation};

/// Events of several processes.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Trace {
    /// The name of every process: a stage or a rank.
    pub processes: Vec<String>,
    /// In any order; those of one lane do not overlap.
    pub events: Vec<TraceEvent>,
}

/// Something that took time.
#[derive(Debug, Clone, PartialEq)]
pub struct TraceEvent {
    /// Its number in [`Trace::processes`].
    pub process: usize,
    /// What does one thing at a time: a thread, stream or link.
    pub lane: String,
    /// What it is.
    pub name: String,
    /// For filters: `pass`, `compute`, `collective`, `message`; in measured traces also `wait`.
    pub category: &'static str,
    /// Seconds from the beginning of the trace.
    pub start_s: f64,
    /// Seconds from the beginning of the trace.
    pub end_s: f64,
    /// Shown with the event.
    pub args: BTreeMap<&'static str, String>,
}

/// A trace as it is written to a JSON file; made by [`chrome_trace`].
#[derive(Debug, Serialize)]
pub struct ChromeTrace<'a> {
    #[serde(rename = "traceEvents")]
    events: Vec<ChromeEvent<'a>>,
    #[serde(rename = "displayTimeUnit")]
    unit: &'static str,
}

#[derive(Debug, Serialize)]
#[serde(tag = "ph")]
enum ChromeEvent<'a> {
    #[serde(rename = "M")]
    Metadata { name: &'static str, pid: usize, tid: usize, args: Name<'a> },
    #[serde(rename = "X")]
    Complete {
        name: &'a str,
        cat: &'static str,
        pid: usize,
        tid: usize,
        /// Microseconds.
        ts: f64,
        /// Microseconds.
        dur: f64,
        args: &'a BTreeMap<&'static str, String>,
    },
}

#[derive(Debug, Serialize)]
struct Name<'a> {
    name: &'a str,
}

/// The trace in the form of the viewers: processes by number, lanes as threads in the order of their first events.
pub fn chrome_trace(trace: &Trace) -> ChromeTrace<'_> {
    let metadata = |name, pid, tid, args| ChromeEvent::Metadata { name, pid, tid, args: Name { name: args } };
    let processes = trace.processes.iter().enumerate();
    let mut events: Vec<ChromeEvent> = processes.map(|(pid, name)| metadata("process_name", pid, 0, name)).collect();
    let mut threads: BTreeMap<(usize, &str), usize> = BTreeMap::new();
    let mut counts: BTreeMap<usize, usize> = BTreeMap::new();
    for event in &trace.events {
        let TraceEvent { process: pid, lane, name, category: cat, start_s, end_s, args } = event;
        let tid = *threads.entry((*pid, lane)).or_insert_with(|| {
            let count = counts.entry(*pid).or_default();
            *count += 1;
            events.push(metadata("thread_name", *pid, *count, lane));
            *count
        });
        let ts = start_s * 1e6;
        let dur = (end_s - start_s) * 1e6;
        events.push(ChromeEvent::Complete { name, cat, pid: *pid, tid, ts, dur, args });
    }
    ChromeTrace { events, unit: "ms" }
}

impl From<&Simulation> for Trace {
    /// A process per stage: its passes, then its streams and links.
    fn from(simulation: &Simulation) -> Self {
        let processes = (0..simulation.stages.len()).map(|stage| format!("stage {stage}")).collect();
        let events = simulation.passes.iter().map(pass).chain(simulation.events.iter().map(operation)).collect();
        Self { processes, events }
    }
}

fn pass(span: &PassSpan) -> TraceEvent {
    TraceEvent {
        process: span.stage,
        lane: "passes".to_owned(),
        name: span.action.map_or_else(|| "update".to_owned(), |action| action.to_string()),
        category: "pass",
        start_s: span.start_s,
        end_s: span.end_s,
        args: BTreeMap::new(),
    }
}

fn operation(event: &Event) -> TraceEvent {
    let during = event.action.map_or_else(|| "update".to_owned(), |action| action.to_string());
    TraceEvent {
        process: event.stage,
        lane: event.lane.to_string(),
        name: event.name.to_owned(),
        category: event.lane.category(),
        start_s: event.start_s,
        end_s: event.end_s,
        args: [("layer", event.layer.to_string()), ("during", during)].into(),
    }
}
