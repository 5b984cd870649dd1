//! `quadrille bench plan`: configurations that complete searches settle in a second, on one core.

use quadrille_measure::searches::measure;
use quadrille_report::bench::searches;

use crate::bench::arguments::BenchPlanArguments;
use crate::failure::Failure;
use crate::output::{print_json, print_text};

/// Measures and reports.
pub fn run(arguments: &BenchPlanArguments) -> Result<(), Failure> {
    let measured = measure(arguments.runs)?;
    if arguments.json { print_json(&measured) } else { print_text(&searches(&measured)) }
}
