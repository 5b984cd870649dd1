//! `quadrille explain --timeline` and `--trace`: the step simulated on a machine.

use std::path::PathBuf;

use clap::Args;
use quadrille_cost::native::Framework;
use quadrille_cost::simulate_step;
use quadrille_cost::simulation::{SaidRates, Simulation};
use quadrille_cost::trace::Trace;
use quadrille_report::lesson::MOST_PASSES;
use quadrille_run::{create_trace, write_trace};
use quadrille_spec::Cluster;
use quadrille_step::{ChunkProgram, StepProgram};

use crate::failure::Failure;
use crate::parse::real;

/// A machine to simulate the step on.
#[derive(Debug, Args)]
pub struct MachineArguments {
    /// Simulate the step on devices of --cluster, priced as by --price with --framework quadrille: a line per stage, time from
    /// left to right
    #[arg(long)]
    pub timeline: bool,
    /// Simulate, and write what runs when to this file, in place of what it holds; chrome://tracing and Perfetto show it
    #[arg(long, value_name = "FILE.json")]
    pub trace: Option<PathBuf>,
    /// Simulate on devices of one rate for all operations instead: GFLOP/s in products and attention, e.g.
    /// --device-gflops 280e3 [default: 50 on local]
    #[arg(long, value_name = "GFLOP/S", value_parser = real)]
    pub device_gflops: Option<f64>,
    /// The same: GB/s of a device's memory, e.g. --memory-gb-s 1555 [default: 10 on local]
    #[arg(long, value_name = "GB/S", value_parser = real)]
    pub memory_gb_s: Option<f64>,
    /// The same: microseconds before an operation or a message begins, e.g. --latency-us 5 [default: 1]
    #[arg(long, value_name = "US", value_parser = real)]
    pub latency_us: Option<f64>,
}

impl MachineArguments {
    /// Whether a simulation is asked for.
    pub fn is_asked(&self) -> bool {
        self.timeline || self.trace.is_some()
    }

    /// Simulates a step of a framework's `program` and writes the trace that was asked for; with what happens inside of passes for that,
    /// or where `events` are wanted.
    pub fn simulate(
        &self,
        program: &StepProgram,
        cluster: &Cluster,
        framework: Framework,
        events: bool,
    ) -> Result<Simulation, Failure> {
        let Self { device_gflops, memory_gb_s, latency_us, .. } = *self;
        let events = events || self.trace.is_some();
        check_length(program, events)?;
        let rates = SaidRates { device_gflops, memory_gb_s, latency_us }.on(cluster)?;
        let simulation = simulate_step(program, cluster, framework, rates, events)?;
        if let Some(path) = &self.trace {
            write_trace(path, create_trace(path)?, &Trace::from(&simulation))?;
        }
        Ok(simulation)
    }
}

/// Operations of all passes of a step, at most, that are followed one by one: they take about a gigabyte.
const MOST_OPERATIONS: usize = 1 << 23;

/// Refuses a step that would take many gigabytes to simulate.
fn check_length(program: &StepProgram, events: bool) -> Result<(), Failure> {
    let passes = program.layout.passes();
    let refuse = |number: usize, what: &str, most: usize, others: &str| {
        Err(Failure::usage(format!(
            "the step has {number} {what} on all stages, and at most {most} are simulated for one picture; take fewer microbatches \
             (a larger --microbatch, or a smaller --global-batch), stages or layers, or leave out {others}"
        )))
    };
    if passes > MOST_PASSES {
        return refuse(passes, "passes", MOST_PASSES, "--timeline, --trace, --html, --json and --cluster");
    }
    let of_chunks = program.stages.iter().flat_map(|stage| &stage.chunks).flat_map(ChunkProgram::sections);
    let in_microbatch: usize = of_chunks.map(|section| section.ops.len()).sum();
    let operations = in_microbatch.saturating_mul(program.layout.microbatches());
    if events && operations > MOST_OPERATIONS {
        refuse(
            operations,
            "operations",
            MOST_OPERATIONS,
            "--trace, --html, --json and --cluster; --timeline alone takes less",
        )
    } else {
        Ok(())
    }
}
