//! `quadrille bench simulation`: simulated against measured steps.

use quadrille_measure::constants::Constants;
use quadrille_measure::simulation::{MODEL, NOT_MODELLED, Simulated, SimulationBench};
use quadrille_run::resources;
use quadrille_spec::Model;
use serde::Serialize;

use crate::bench::arguments::BenchSimulationArguments;
use crate::failure::Failure;
use crate::launch::Launch;
use crate::output::{print_json, print_text, table};
use crate::settings;

#[derive(Serialize)]
struct Document {
    model: Model,
    global_batch: usize,
    cores: usize,
    /// Measured ones of each layout.
    steps: u64,
    #[serde(flatten)]
    measured: Simulated,
    not_modelled: &'static str,
}

/// Measures and reports.
pub fn run(arguments: &BenchSimulationArguments) -> Result<(), Failure> {
    let model = Model::from_toml(MODEL, &overrides(&arguments.set)?)?;
    let BenchSimulationArguments { global_batch, steps, .. } = *arguments;
    let bench = SimulationBench::new(model.clone(), global_batch)?;
    bench.programs().iter().try_for_each(|program| resources::check(program, 1, &Launch::THREADS, 0))?;
    let cores = settings::cores();
    let measured = bench.measure(steps, cores)?;
    let document = Document { model, global_batch, cores, steps, measured, not_modelled: NOT_MODELLED };
    if arguments.json { print_json(&document) } else { print_text(&text(&document)) }
}

/// Assignments of `--set`.
fn overrides(set: &[String]) -> Result<Vec<(String, String)>, Failure> {
    let split = |assignment: &String| match assignment.split_once('=') {
        Some((key, value)) => Ok((key.to_owned(), value.to_owned())),
        None => Err(Failure::usage(format!("--set {assignment}: write it as key=value"))),
    };
    set.iter().map(split).collect()
}

/// The measured constants; the simulation has the mean of both rows.
fn constants(document: &Document) -> String {
    let row = |calibration: &Constants| {
        let rates = [calibration.product_gflops, calibration.attention_gflops, calibration.memory_gb_s];
        let ring = [calibration.operation_latency_us, calibration.ring_gb_s, calibration.message_latency_us];
        rates.into_iter().chain(ring).map(|number| format!("{number:.1}")).collect::<Vec<_>>()
    };
    let times = ["before", "after"].into_iter().zip(&document.measured.calibration_each);
    let rows: Vec<Vec<String>> = times.map(|(when, each)| [vec![when.to_owned()], row(each)].concat()).collect();
    let header =
        ["measured", "products GFLOP/s", "attention GFLOP/s", "memory GB/s", "operation us", "ring GB/s", "message us"];
    table(&header, &rows)
}

fn text(document: &Document) -> String {
    let Document { model, measured, .. } = document;
    let head = format!(
        "{}: {} layers, hidden {}, {} tokens a sequence, {} sequences a step; {} cores, one thread per rank; median of {} \
         step(s)\n{}\n",
        model.name,
        model.layers(),
        model.hidden,
        model.seq_len,
        document.global_batch,
        document.cores,
        document.steps,
        constants(document)
    );
    let rows: Vec<Vec<String>> = measured
        .layouts
        .iter()
        .map(|row| {
            let numbers = [row.simulated_ms, row.measured_ms].map(|ms| format!("{ms:.1}"));
            let shares = [row.simulated_waiting_percent, row.waiting_percent].map(|share| format!("{share:.1}"));
            let [simulated_ms, measured_ms] = numbers;
            let [simulated_share, share] = shares;
            let error = format!("{:+.1}", row.error_percent);
            let crowding = format!("{:.2}", row.crowding);
            vec![row.layout.clone(), crowding, simulated_ms, measured_ms, error, simulated_share, share]
        })
        .collect();
    let header =
        ["layout", "crowding", "simulated ms", "measured ms", "error %", "simulated waiting %", "measured waiting %"];
    head + &table(&header, &rows)
        + &format!(
            "\nabsolute error: {:.1}% on average, {:.1}% at most\ncrowding: simulated ranks that compute at once over cores, \
             by which every rate is divided\nnot modelled: {}\n",
            measured.mean_absolute_error_percent, measured.largest_absolute_error_percent, document.not_modelled
        )
}
