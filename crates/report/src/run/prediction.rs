//! What a step of the run is predicted to take: its program simulated on a cluster as the native model prices it.

use std::collections::BTreeMap;

use quadrille_cost::native::{Framework, NativeMachine, PriceError, Problem};
use quadrille_cost::simulation::{Machine, simulate_passes};
use quadrille_plan::local::machine;
use quadrille_run::processors;
use quadrille_spec::{Axis, Cluster};
use quadrille_step::{Op, StageProgram, StepProgram};

use super::read::Run;
use crate::ReportError;

/// Predicted times.
pub struct Prediction {
    /// The cluster that was priced.
    pub cluster: String,
    /// The times, or why there are none.
    pub times: Result<Times, String>,
}

/// Seconds of a step.
pub struct Times {
    /// From the end of one step to the end of the next.
    pub step: f64,
    /// Of every stage.
    pub stages: Vec<StageTimes>,
}

/// What a rank of a stage does in a step, in seconds.
pub struct StageTimes {
    /// By the name of the operation.
    pub operations: BTreeMap<&'static str, f64>,
    /// It waits for collectives.
    pub collectives: f64,
    /// It waits for other stages.
    pub stages: f64,
}

impl Prediction {
    /// Of a step of the run on the cluster.
    pub fn of(run: &Run, cluster: Cluster) -> Self {
        let name = cluster.name.clone();
        let ranks = run.program.layout.grid.ranks();
        let times = match machine::described(cluster, ranks, run.threads, processors()) {
            // Times of a machine that nobody knows teach nothing beside measured ones.
            (_, Some(_)) => {
                Err("nobody has measured it; calibrate it, and name its file as the `run.cluster`".to_owned())
            }
            (cluster, None) => times(&run.program, &cluster).map_err(|error| error.to_string()),
        };
        Self { cluster: name, times }
    }
}

fn times(program: &StepProgram, cluster: &Cluster) -> Result<Times, ReportError> {
    let StepProgram { model, layout, .. } = program;
    let framework = Framework::QUADRILLE.in_types_of(layout);
    let problem = Problem::new(model, cluster, framework, layout.global_batch, layout.seq_len)?;
    problem.check_placed(layout)?;
    let machine = NativeMachine::new(&problem, layout);
    let simulation = simulate_passes(program, &machine, &|| false).map_err(PriceError::from)?;
    let stages = program.stages.iter().zip(&simulation.stages).map(|(stage, times)| StageTimes {
        operations: operations(stage, &machine),
        collectives: times.waiting_on_collectives_s.values().sum::<f64>() + times.waiting_on_host_s,
        stages: times.waiting_on_stages_s,
    });
    Ok(Times { step: simulation.step_seconds, stages: stages.collect() })
}

/// Seconds of the operations of a step on a rank of the stage.
fn operations(stage: &StageProgram, machine: &dyn Machine) -> BTreeMap<&'static str, f64> {
    let mut seconds = BTreeMap::new();
    let mut add = |ops: &[Op], times: usize| {
        for op in ops.iter().filter(|op| op.operation.group().computes()) {
            *seconds.entry(op.operation.name()).or_default() +=
                op.times(times) as f64 * machine.operation_seconds(stage, op);
        }
    };
    let microbatches = stage.layout.microbatches();
    for section in stage.chunks.iter().flat_map(|chunk| chunk.sections()) {
        add(&section.ops, microbatches);
    }
    add(&stage.update.ops, 1);
    seconds
}

impl Times {
    /// The stage of a rank.
    pub fn of_rank(&self, program: &StepProgram, rank: usize) -> Option<&StageTimes> {
        self.stages.get(program.layout.grid.coordinate(rank).on(Axis::Pipe))
    }
}

#[cfg(test)]
mod tests {
    use quadrille_spec::{Layout, LayoutFile, Model};
    use quadrille_step::StepProgram;

    use super::*;

    /// The operations by name are those that the simulation runs.
    #[test]
    fn operations_add_up_to_what_stages_compute() {
        let model = Model::preset("gpt-tiny").unwrap();
        for text in [
            "grid = 'x=2,y=2,z=2'\nglobal_batch = 8",
            "grid = 'pipe=2,x=2'\nglobal_batch = 8\nmicrobatch = 1\nschedule = 'zb-h1'",
            "grid = 'pipe=2,data=2'\nglobal_batch = 8\nmicrobatch = 2\nrecompute = 'full'\nzero = 1",
        ] {
            let layout: Layout = LayoutFile::from_toml(text).unwrap().validate(&model).unwrap();
            let program = StepProgram::new(&model, &layout).unwrap();
            let (cluster, _) = machine::described(Cluster::preset("local").unwrap(), 1, 1, 8);
            let problem = Problem::new(&model, &cluster, Framework::QUADRILLE, 8, layout.seq_len).unwrap();
            let machine = NativeMachine::new(&problem, &layout);
            let simulation = simulate_passes(&program, &machine, &|| false).unwrap();
            let times = times(&program, &cluster).unwrap();
            for (stage, simulated) in times.stages.iter().zip(&simulation.stages) {
                let sum: f64 = stage.operations.values().sum();
                assert!((sum / simulated.busy_s - 1.0).abs() < 1e-9, "{text}: {sum} and {}", simulated.busy_s);
            }
        }
    }
}
