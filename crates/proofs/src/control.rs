//! What a proof does with a broken program.

use std::time::Duration;

use quadrille_step::StepProgram;

use crate::run::{prove, prove_within};

/// How long a rank may wait in a program that may have no end.
const SHORT: Duration = Duration::from_secs(3);

/// Asserts that the program runs to its end, is counted as predicted, and gives wrong numbers.
///
/// # Panics
/// If it does not; the message begins with `change`.
pub fn assert_caught(program: &StepProgram, steps: u64, change: &str) {
    let report = prove(program, steps).unwrap_or_else(|error| panic!("{change}: {error}"));
    assert!(report.ledger_equal, "{change}: {report:?}");
    assert!(!report.ok, "{change} was not noticed: {report:?}");
}

/// Asserts that the program cannot run, and that the error names the rank, and all of `names`.
///
/// # Panics
/// If it runs to its end, or is stopped for another reason.
pub fn assert_stopped(program: &StepProgram, names: &[&str], change: &str) {
    let message = match prove_within(program, 2, SHORT) {
        Ok(report) => panic!("{change} ran to its end: {report:?}"),
        Err(error) => error.to_string(),
    };
    for name in names.iter().chain(&["rank "]) {
        assert!(message.contains(name), "{change}: {name:?} is not in: {message}");
    }
}
