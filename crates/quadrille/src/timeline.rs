//! `quadrille explain --timeline` and `--trace`: the step simulated on a machine.

use std::path::PathBuf;

use clap::Args;
use quadrille_cost::native::{Framework, NativeMachine, Problem};
use quadrille_cost::simulation::{DeviceRates, RingNetwork, Simulation, UniformMachine, simulate};
use quadrille_cost::trace::Trace;
use quadrille_plan::local::machine::{LOCAL_GFLOPS, LOCAL_LATENCY_US, LOCAL_MEMORY_GB_S};
use quadrille_run::{create_trace, write_trace};
use quadrille_spec::Cluster;
use quadrille_step::StepProgram;

use crate::failure::Failure;

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
    #[arg(long, value_name = "GFLOP/S")]
    pub device_gflops: Option<f64>,
    /// The same: GB/s of a device's memory, e.g. --memory-gb-s 1555 [default: 10 on local]
    #[arg(long, value_name = "GB/S")]
    pub memory_gb_s: Option<f64>,
    /// The same: microseconds before an operation or a message begins, e.g. --latency-us 5 [default: 1]
    #[arg(long, value_name = "US")]
    pub latency_us: Option<f64>,
}

impl MachineArguments {
    /// Whether a simulation is asked for.
    pub fn is_asked(&self) -> bool {
        self.timeline || self.trace.is_some()
    }

    /// Whether devices compute at one rate: where rates are typed, or the cluster says nothing of its devices.
    fn is_uniform(&self, cluster: &Cluster) -> bool {
        let typed = [self.device_gflops, self.memory_gb_s, self.latency_us];
        typed.iter().any(Option::is_some) || cluster.device.is_none()
    }

    fn rates(&self, cluster: &Cluster) -> Result<DeviceRates, Failure> {
        let is_local = cluster.name == "local";
        let rate = |flag: &str, typed: Option<f64>, local: f64| match typed {
            Some(rate) if rate.is_finite() && rate > 0.0 => Ok(rate * 1e9),
            Some(rate) => Err(Failure::usage(format!("{flag} {rate}: a rate is positive; give one, e.g. {flag} 100"))),
            None if is_local => Ok(local * 1e9),
            None => Err(Failure::usage(format!(
                "a simulation of devices of one rate on {} needs {flag}: give it, or leave the other rates out",
                cluster.name
            ))),
        };
        let flops = rate("--device-gflops", self.device_gflops, LOCAL_GFLOPS)?;
        let memory = rate("--memory-gb-s", self.memory_gb_s, LOCAL_MEMORY_GB_S)?;
        Ok(DeviceRates {
            gemm_flop_per_s: flops,
            attention_flop_per_s: flops,
            memory_bytes_per_s: memory,
            operation_latency_s: self.latency()?,
        })
    }

    fn latency(&self) -> Result<f64, Failure> {
        match self.latency_us.unwrap_or(LOCAL_LATENCY_US) {
            microseconds if microseconds.is_finite() && microseconds >= 0.0 => Ok(microseconds * 1e-6),
            other => Err(Failure::usage(format!("--latency-us {other}: a time is at least 0; give one, e.g. 5"))),
        }
    }

    /// Simulates a step of a framework's `program` and writes the trace that was asked for.
    pub fn simulate(
        &self,
        program: &StepProgram,
        cluster: &Cluster,
        framework: Framework,
    ) -> Result<Simulation, Failure> {
        let StepProgram { model, layout, .. } = program;
        let simulation = if self.is_uniform(cluster) {
            let network = RingNetwork::new(cluster, layout, self.latency()?)?;
            simulate(program, &UniformMachine { rates: self.rates(cluster)?, network })
        } else {
            let problem =
                Problem::new(model, cluster, framework.in_types_of(layout), layout.global_batch, layout.seq_len)?;
            problem.check_placed(layout)?;
            problem.check_states(&program.stages)?;
            simulate(program, &NativeMachine::new(&problem, layout))
        };
        let simulation = simulation.map_err(|error| Failure::Run(error.into()))?;
        if let Some(path) = &self.trace {
            write_trace(path, create_trace(path)?, &Trace::from(&simulation))?;
        }
        Ok(simulation)
    }
}
