//! A run with a callback on the thread that has asked for it.

use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::spawn;

use pyo3::prelude::*;
use quadrille::engine::{RunEvent, StepRecord};
use quadrille::run::Event;
use quadrille_cli::command_line::{self, Failure, Trained};
use serde::Serialize;

use crate::apart::{next, panicked};
use crate::raised;

/// What the thread of a run tells.
enum Told {
    /// A step's record, or another event, as JSON; the run waits for the answer.
    Event(String),
    /// The run has ended.
    End(Result<Trained, Failure>),
}

/// Trains and calls `callback` with what happens, as JSON: `{"step": record}` or `{"event": event}`; `False` ends the run in good
/// order. What the run says at its end, as JSON, with the step after which it was stopped, if it was.
///
/// What the callback raises is raised when the run has ended after its step; so is an interruption, and a second one at once.
#[pyfunction]
pub fn train(py: Python<'_>, words: Vec<String>, callback: &Bound<'_, PyAny>) -> PyResult<(String, Option<u64>)> {
    let (told, mut listening) = channel();
    let (answering, answers) = channel();
    let worker = spawn(move || {
        let result = command_line::train(&words, &mut teller(told.clone(), answers));
        let _ = told.send(Told::End(result));
    });
    let mut error = None;
    let mut is_interrupted = false;
    loop {
        match next(py, &mut listening) {
            Ok(Told::Event(event)) => {
                let answer = if error.is_some() { Ok(ControlFlow::Break(())) } else { asked(callback, event) };
                let answer = answer.unwrap_or_else(|raised| {
                    error = Some(raised);
                    ControlFlow::Break(())
                });
                // A run that has failed meanwhile says so at its end.
                let _ = answering.send(answer);
            }
            Ok(Told::End(result)) => return ended(py, result, error),
            Err(RecvTimeoutError::Timeout) => match py.check_signals() {
                Err(again) if is_interrupted => return Err(again),
                Err(interruption) => {
                    is_interrupted = true;
                    error.get_or_insert(interruption);
                }
                Ok(()) => {}
            },
            Err(RecvTimeoutError::Disconnected) => panicked(worker),
        }
    }
}

/// Tells every event and waits for the answer; when nobody answers any more the run is to end.
fn teller(told: Sender<Told>, answers: Receiver<ControlFlow<()>>) -> impl FnMut(&RunEvent) -> ControlFlow<()> + Send {
    let mut at = 0;
    move |happened| {
        if let RunEvent::Step(record) = happened {
            at = record.step;
            tell(&told, &answers, &Happened::Step(record))?;
        }
        match Event::of(happened, at) {
            Some(event) => tell(&told, &answers, &Happened::Event(event)),
            None => ControlFlow::Continue(()),
        }
    }
}

/// An event of a run, as Python reads it.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum Happened<'a> {
    Step(&'a StepRecord),
    Event(Event),
}

fn tell(told: &Sender<Told>, answers: &Receiver<ControlFlow<()>>, event: &Happened) -> ControlFlow<()> {
    let event = serde_json::to_string(event).unwrap_or_default();
    match told.send(Told::Event(event)) {
        Ok(()) => answers.recv().unwrap_or(ControlFlow::Break(())),
        Err(_) => ControlFlow::Break(()),
    }
}

/// What the callback says: `False` ends the run.
fn asked(callback: &Bound<'_, PyAny>, event: String) -> PyResult<ControlFlow<()>> {
    let answer = callback.call1((event,))?;
    let stop = answer.extract::<bool>().is_ok_and(|goes_on| !goes_on);
    Ok(if stop { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
}

/// The end of a run for Python: what was raised while it went comes first.
fn ended(py: Python<'_>, result: Result<Trained, Failure>, error: Option<PyErr>) -> PyResult<(String, Option<u64>)> {
    match (error, result) {
        (Some(error), _) => Err(error),
        (None, Ok(Trained { summary, stopped })) => Ok((summary.to_string(), stopped)),
        (None, Err(failure)) => Err(raised(py, &failure)),
    }
}
