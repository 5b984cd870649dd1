//! `quadrille bench simulation`: simulated against measured steps.

use quadrille_measure::simulation::{MODEL, SimulationBench};
use quadrille_report::bench::SimulationReport;
use quadrille_run::{StatesSpec, resources};
use quadrille_spec::Model;

use crate::bench::arguments::BenchSimulationArguments;
use crate::failure::Failure;
use crate::launch::Launch;
use crate::output::{print_json, print_text};
use crate::settings::assignment;

/// Measures and reports.
pub fn run(arguments: &BenchSimulationArguments) -> Result<(), Failure> {
    let BenchSimulationArguments { set, global_batch, steps, .. } = arguments;
    let overrides = set.iter().map(|text| assignment(text)).collect::<Result<Vec<_>, _>>()?;
    let model = Model::from_toml(MODEL, &overrides)?;
    let bench = SimulationBench::new(model.clone(), *global_batch)?;
    bench
        .programs()
        .iter()
        .try_for_each(|program| resources::check(program, 1, &Launch::THREADS, &StatesSpec::Memory, 0))?;
    let cores = quadrille_run::cores();
    let measured = bench.measure(*steps, cores)?;
    let report =
        SimulationReport { model: &model, global_batch: *global_batch, cores, steps: *steps, measured: &measured };
    if arguments.json { print_json(&report.document()) } else { print_text(&report.text()) }
}
