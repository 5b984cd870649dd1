//! `quadrille explain --timeline` and `--trace`: the step simulated on a machine.

use std::collections::BTreeMap;

use quadrille_cost::native::{Framework, NativeMachine, Problem};
use quadrille_cost::simulation::{DeviceRates, Lane, RingNetwork, Simulation, UniformMachine, simulate, timeline};
use quadrille_cost::trace::Trace;
use quadrille_plan::local::machine::{LOCAL_GFLOPS, LOCAL_LATENCY_US, LOCAL_MEMORY_GB_S};
use quadrille_run::{create_trace, write_trace};
use quadrille_spec::Cluster;
use quadrille_step::StepProgram;
use serde_json::{Value, json};

use crate::arguments::MachineArguments;
use crate::failure::Failure;
use crate::output::table;

/// Columns of a timeline.
const WIDTH: usize = 100;

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
            simulate(program, &NativeMachine::new(&problem, layout))
        };
        let simulation = simulation.map_err(|error| Failure::Run(error.into()))?;
        if let Some(path) = &self.trace {
            write_trace(path, create_trace(path)?, &Trace::from(&simulation))?;
        }
        Ok(simulation)
    }
}

/// The timeline, and where the time of each stage goes.
pub fn text(simulation: &Simulation) -> String {
    let milliseconds = |seconds: f64| format!("{:.3} ms", 1e3 * seconds);
    // Of states that lie in the host's memory.
    let copied = simulation.events.iter().any(|event| event.lane == Lane::Host);
    let rows = simulation.stages.iter().enumerate().map(|(stage, times)| {
        // The sum of nothing would be -0.
        let collectives = times.waiting_on_collectives_s.values().fold(0.0, |sum, seconds| sum + seconds);
        let copies = copied.then_some(times.waiting_on_host_s);
        let spent = [times.busy_s, collectives].into_iter().chain(copies);
        let spent = spent.chain([times.waiting_on_stages_s, times.update_s]);
        std::iter::once(stage.to_string()).chain(spent.map(milliseconds)).collect()
    });
    let copies = copied.then_some("waits for copies");
    let header = ["stage", "computes", "waits for collectives"].into_iter().chain(copies);
    let header: Vec<&str> = header.chain(["waits for stages", "of it the update"]).collect();
    format!(
        "\nsimulated step {}, bubble {:.1}% of all other time; drawn from the first stage's begin to the last's end\n{}\n{}",
        milliseconds(simulation.step_seconds),
        100.0 * simulation.bubble(),
        timeline(simulation, WIDTH),
        table(&header, &rows.collect::<Vec<_>>())
    )
}

/// The same numbers as a document.
pub fn document(simulation: &Simulation) -> Value {
    let stages = simulation.stages.iter().map(|times| {
        let collectives = times.waiting_on_collectives_s.iter().map(|(axes, seconds)| (axes.key(), *seconds));
        json!({
            "busy_s": times.busy_s,
            "waiting_on_collectives_s": collectives.collect::<BTreeMap<_, _>>(),
            "waiting_on_host_s": times.waiting_on_host_s,
            "waiting_on_stages_s": times.waiting_on_stages_s,
            "update_s": times.update_s,
        })
    });
    json!({
        "step_s": simulation.step_seconds,
        "bubble": simulation.bubble(),
        "stages": stages.collect::<Vec<_>>(),
        "timeline": timeline(simulation, WIDTH).lines().collect::<Vec<_>>(),
    })
}
