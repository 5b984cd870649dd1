//! Configurations that complete searches settle in a second.

use quadrille_measure::searches::{Bounded, Measured, Searches, Yardstick};
use quadrille_run::units::decimal;
use schemars::JsonSchema;
use serde::Serialize;

use crate::{ReportVersion, Text, table};

/// Searches beside their yardsticks: what `bench plan --json` prints.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct SearchesReport {
    /// Version of the document.
    pub version: ReportVersion,
    /// The searches.
    #[serde(flatten)]
    pub searches: Searches,
}

/// A table for people, and how many layouts bounds leave out.
pub fn text(searches: &Searches) -> Text {
    let header = ["search", "case", "settled", "time", "per second", "x LBNL solver", "x Calculon"];
    let yardsticks = searches
        .yardsticks
        .map(|Yardstick { planner, configurations_per_second }| format!("{planner} {configurations_per_second}/s"));
    let Bounded { case, legal, priced, seconds } = &searches.bounded;
    let head = format!("complete searches on one core; published planners on one core: {}\n\n", yardsticks.join(", "));
    let table = table(&header, &searches.searches.iter().map(row).collect::<Vec<_>>());
    let foot = format!(
        "\nnative with bounds ({case}): the best of {legal} legal layouts in {seconds:.2} s, of which {priced} were priced\n"
    );
    Text::from(head) + table + foot
}

fn row(measured: &Measured) -> Vec<String> {
    let rate = |rate: f64| decimal(rate, "").trim_end().to_owned();
    let times = measured.ratios.map(rate);
    let milliseconds = format!("{:.2} ms", 1e3 * measured.seconds);
    let numbers = [measured.configurations.to_string(), milliseconds, rate(measured.configurations_per_second)];
    [measured.search.to_owned(), measured.case.clone()].into_iter().chain(numbers).chain(times).collect()
}
