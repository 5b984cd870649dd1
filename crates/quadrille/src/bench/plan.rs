//! `quadrille bench plan`: configurations that complete searches settle in a second, on one core.

use quadrille_measure::searches::{Bounded, Measured, Searches, Yardstick, measure};

use crate::bench::arguments::BenchPlanArguments;
use crate::failure::Failure;
use crate::output::{decimal, print_json, print_text, table};

/// Measures and reports.
pub fn run(arguments: &BenchPlanArguments) -> Result<(), Failure> {
    let searches = measure(arguments.runs)?;
    if arguments.json { print_json(&searches) } else { print_text(&text(&searches)) }
}

fn text(document: &Searches) -> String {
    let rate = |rate: f64| decimal(rate, "").trim_end().to_owned();
    let header = ["search", "case", "settled", "time", "per second", "x LBNL solver", "x Calculon"];
    let row = |measured: &Measured| {
        let times = measured.ratios.map(rate);
        let milliseconds = format!("{:.2} ms", 1e3 * measured.seconds);
        let numbers = [measured.configurations.to_string(), milliseconds, rate(measured.configurations_per_second)];
        [measured.search.to_owned(), measured.case.clone()].into_iter().chain(numbers).chain(times).collect()
    };
    let yardsticks = document
        .yardsticks
        .map(|Yardstick { planner, configurations_per_second }| format!("{planner} {configurations_per_second}/s"));
    let Bounded { case, legal, priced, seconds } = &document.bounded;
    format!(
        "complete searches on one core; published planners on one core: {}\n\n{}\n\
         native with bounds ({case}): the best of {legal} legal layouts in {seconds:.2} s, of which {priced} were priced\n",
        yardsticks.join(", "),
        table(&header, &document.searches.iter().map(row).collect::<Vec<_>>())
    )
}
