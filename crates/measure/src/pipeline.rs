//! Schedules against each other, where passes have given lengths.
//!
//! A tiny model is trained in earnest, but its passes are stretched by waiting, so that stages need no core of their own:
//! a forward pass takes t, a backward pass 2 t, half of which weight gradients that are put off. Chunks share this time.
//!
//! Letters: p stages, m microbatches, t seconds of a forward pass.

use std::time::Duration;

use quadrille_comm::{JobOptions, MessageDelay, MessageInfo, run_ranks};
use quadrille_cost::simulation::{Communication, Machine, simulate};
use quadrille_engine::{Cpu, EngineError, Hyper, InitialValues, RankEngine, random_full_batch};
use quadrille_spec::{Grid, Layout, LayoutRequest, Model, RandomStream, Schedule};
use quadrille_step::schedule::{Action, Pass};
use quadrille_step::{GemmPass, Layer, Op, Operation, StageProgram, StepProgram, kind};
use schemars::JsonSchema;
use serde::Serialize;

use crate::timing::{median, seconds};
use crate::{MeasureError, OnProgress, Progress, Refusal, Setting};

/// How much longer passes take on a slow stage.
pub const SLOWDOWN: f64 = 1.5;
/// Keys initial values, tokens and delays.
const SEED: u64 = 1;
/// Products that give gradients of weights in a block: of qkv, projection, up and down.
const WEIGHT_PRODUCTS: f64 = 4.0;
/// The longest pass that is accepted.
const MAX_PASS_MS: f64 = 1e4;

/// What is irregular.
#[derive(Debug, Clone, Copy)]
struct Scenario {
    name: &'static str,
    /// The middle stage takes [`SLOWDOWN`] times as long.
    slow_stage: bool,
    /// Messages are under way for up to 2 t, evenly distributed.
    delays: bool,
}

const SCENARIOS: [Scenario; 4] = [
    Scenario { name: "equal stages", slow_stage: false, delays: false },
    Scenario { name: "slow stage", slow_stage: true, delays: false },
    Scenario { name: "varying delays", slow_stage: false, delays: true },
    Scenario { name: "both", slow_stage: true, delays: true },
];

/// Schedules with their chunks per stage; the others are held against the first.
const SCHEDULES: [(Schedule, usize); 5] = [
    (Schedule::OneForwardOneBackward, 1),
    (Schedule::Gpipe, 1),
    (Schedule::Interleaved, 2),
    (Schedule::ZeroBubble, 1),
    (Schedule::MessageDriven, 1),
];

/// A schedule in a scenario.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Run {
    /// What is irregular, in words.
    pub scenario: &'static str,
    /// The order of passes.
    pub schedule: Schedule,
    /// Of each stage.
    pub chunks: usize,
    /// Milliseconds of a step, the median.
    pub step_ms: f64,
    /// Of every measured step, in order.
    pub step_ms_each: Vec<f64>,
    /// With every delay at its mean, t. None for delays with chunks: the simulator lets messages of a link travel one
    /// after the other, and passes that are shorter than t would wait for the link.
    pub simulated_ms: Option<f64>,
    /// The passes of the slowest stage alone.
    pub ideal_ms: f64,
    /// `step_ms` over that of 1F1B in this scenario.
    pub relative_to_1f1b: f64,
}

/// Schedules of given sizes, in every scenario.
#[derive(Debug)]
pub struct PipelineBench {
    stages: usize,
    pass_ms: f64,
    programs: Vec<StepProgram>,
}

impl PipelineBench {
    /// Steps of so many microbatches on so many stages, in which a forward pass takes `pass_ms` milliseconds. Interleaved
    /// schedules are left out where the stages do not divide the microbatches.
    ///
    /// # Errors
    /// Passes that take no time or longer than ten seconds; numbers of which there is no layout.
    pub fn new(stages: usize, microbatches: usize, pass_ms: f64) -> Result<Self, MeasureError> {
        if !(pass_ms > 0.0 && pass_ms <= MAX_PASS_MS) {
            let rule = format!(" {pass_ms}: give a number above 0, {MAX_PASS_MS} at most");
            return Err(Refusal::of(Setting::PassMs).text(rule).into());
        }
        // Groups of microbatches are as long as the pipeline.
        let possible = |(schedule, _): &(Schedule, usize)| {
            *schedule != Schedule::Interleaved || microbatches.is_multiple_of(stages)
        };
        let possible = SCHEDULES.into_iter().filter(possible);
        let programs = possible.map(|(schedule, chunks)| program(schedule, [stages, chunks, microbatches]));
        Ok(Self { stages, pass_ms, programs: programs.collect::<Result<_, _>>()? })
    }

    /// What is run, a program for each schedule.
    pub fn programs(&self) -> &[StepProgram] {
        &self.programs
    }

    /// Runs every schedule in every scenario for so many steps, after one that warms up; by scenario, 1F1B first. Tells before each
    /// which comes next.
    ///
    /// # Errors
    /// A rank's failure.
    pub fn measure(&self, steps: u64, told: OnProgress) -> Result<Vec<Run>, MeasureError> {
        let mut runs = Vec::<Run>::new();
        let of = SCENARIOS.len() * self.programs.len();
        for scenario in SCENARIOS {
            let first = runs.len();
            for program in &self.programs {
                let next = format!("{}, {}", program.layout.schedule, scenario.name);
                told(Progress { done: runs.len(), of, next: Some(&next) });
                let paces = Paces { scenario, pass_s: self.pass_ms / 1e3, stages: self.stages };
                let mut run = paces.run(program, steps)?;
                run.relative_to_1f1b = run.step_ms / runs.get(first).unwrap_or(&run).step_ms;
                runs.push(run);
            }
        }
        Ok(runs)
    }
}

/// A step of a model with one small block for each chunk.
fn program(schedule: Schedule, [stages, chunks, microbatches]: [usize; 3]) -> Result<StepProgram, MeasureError> {
    let sizes = "hidden = 8\nheads = 1\nvocab = 8\nseq_len = 4";
    let model = Model::from_toml(&format!("name = \"paced\"\nlayers = {}\n{sizes}", stages * chunks), &[])?;
    let grid: Grid = format!("pipe={stages}").parse()?;
    let request = LayoutRequest { schedule, chunks, microbatch: Some(1), ..LayoutRequest::new(grid, microbatches) };
    Ok(StepProgram::new(&model, &Layout::new(&model, &request)?)?)
}

/// How long passes and messages of a scenario take.
#[derive(Debug, Clone, Copy)]
struct Paces {
    scenario: Scenario,
    /// t.
    pass_s: f64,
    stages: usize,
}

impl Paces {
    fn run(&self, program: &StepProgram, steps: u64) -> Result<Run, MeasureError> {
        let Layout { schedule, chunks, .. } = program.layout;
        let measured = self.measure(program, steps)?;
        let simulated = if self.scenario.delays && chunks > 1 { None } else { Some(simulate(program, self)?) };
        let step_ms_each: Vec<f64> = measured.into_iter().map(|seconds| 1e3 * seconds).collect();
        Ok(Run {
            scenario: self.scenario.name,
            schedule,
            chunks,
            step_ms: median(step_ms_each.clone()),
            step_ms_each,
            simulated_ms: simulated.map(|simulation| 1e3 * simulation.step_seconds),
            ideal_ms: 1e3 * self.ideal_seconds(program),
            relative_to_1f1b: 1.0,
        })
    }

    /// Seconds of every step but the first, on the rank that takes longest.
    fn measure(&self, program: &StepProgram, steps: u64) -> Result<Vec<f64>, EngineError> {
        let ranks = program.layout.grid.ranks();
        let pass_s = self.pass_s;
        let batch = random_full_batch(&program.model, SEED, program.layout.seq_len);
        let job = JobOptions {
            timeout: Duration::from_secs(60) + Duration::from_secs_f64(4.0 * self.ideal_seconds(program)),
            message_delay: self.scenario.delays.then(|| MessageDelay::new(move |message| delay(pass_s, message))),
            ..JobOptions::new(ranks)
        };
        let by_rank = run_ranks(&job, |context| {
            let members: Vec<usize> = (0..ranks).collect();
            let world = context.group("bench", &members)?;
            let initial = InitialValues::Training;
            let mut engine = RankEngine::<Cpu<f32>>::new(program, context, 1, Hyper::default(), SEED, initial)?;
            let paces = *self;
            let stage = program.of_rank(context.rank());
            engine.set_pace(Box::new(move |action| paces.length(stage, action)));
            let mut times = Vec::new();
            for _ in 0..=steps {
                context.barrier(&world).wait()?;
                let mut outcome = None;
                times.push(seconds(|| outcome = Some(engine.step(&batch))));
                outcome.transpose()?;
            }
            Ok(times)
        })?;
        let slowest = |step: usize| by_rank.iter().map(|times| times[step]).fold(0.0, f64::max);
        Ok((1..=steps as usize).map(slowest).collect())
    }

    /// How long a pass lasts.
    fn length(&self, stage: &StageProgram, action: Action) -> Duration {
        let in_one = stage.layout.schedule != Schedule::ZeroBubble && action.pass == Pass::Backward;
        let forwards = if in_one { 2.0 } else { 1.0 };
        Duration::from_secs_f64(forwards * self.forward_s(stage) * self.slowdown(stage.stage, Some(action)))
    }

    /// Seconds of a chunk's forward pass.
    fn forward_s(&self, stage: &StageProgram) -> f64 {
        self.pass_s / stage.layout.chunks as f64
    }

    /// Forward and backward passes of all microbatches on the slowest stage.
    fn ideal_seconds(&self, program: &StepProgram) -> f64 {
        let slowdown = if self.scenario.slow_stage { SLOWDOWN } else { 1.0 };
        3.0 * self.pass_s * slowdown * program.layout.microbatches() as f64
    }
}

/// Charges a pass's length on the attention and the weight gradients of its block, and nothing else.
impl Machine for Paces {
    fn operation_seconds(&self, stage: &StageProgram, op: &Op) -> f64 {
        match op.operation {
            Operation::Attention(_) | Operation::AttentionBackward(_) => self.forward_s(stage),
            Operation::Gemm(kind::Gemm { pass: GemmPass::WeightGradient, .. })
                if matches!(op.layer, Layer::Block(_)) =>
            {
                self.forward_s(stage) / WEIGHT_PRODUCTS
            }
            _ => 0.0,
        }
    }

    fn collective_seconds(&self, _: &Communication) -> f64 {
        0.0
    }

    fn message_seconds(&self, _: u64) -> f64 {
        if self.scenario.delays { self.pass_s } else { 0.0 }
    }

    fn slowdown(&self, stage: usize, _: Option<Action>) -> f64 {
        if self.scenario.slow_stage && stage == self.stages / 2 { SLOWDOWN } else { 1.0 }
    }
}

/// How long a message is under way: between 0 and 2 t, as a function of the message and so equal in every run.
fn delay(pass_s: f64, message: &MessageInfo) -> Duration {
    let MessageInfo { from, to, tag, sequence } = *message;
    let stream = RandomStream::new(SEED, "message delay").substream(from as u64).substream(to as u64);
    let word = stream.substream(u64::from(tag)).word(sequence);
    Duration::from_secs_f64(2.0 * pass_s * f64::from(word) / 2f64.powi(32))
}

#[cfg(test)]
mod tests {
    use super::*;

    const P: usize = 4;
    const M: usize = 8;

    fn simulated(scenario: Scenario, schedule: Schedule, chunks: usize) -> f64 {
        let paces = Paces { scenario, pass_s: 1.0, stages: P };
        simulate(&program(schedule, [P, chunks, M]).unwrap(), &paces).unwrap().step_seconds
    }

    /// m (F + B) and the published bubbles, of Megatron-LM (PTD-P, section 2.2) and of ZB-H1.
    #[test]
    fn simulated_steps_of_equal_stages_have_their_closed_forms() {
        for (schedule, chunks) in SCHEDULES {
            let bubble = match schedule {
                Schedule::ZeroBubble => 1.0,
                _ => 3.0 / chunks as f64,
            };
            let step = simulated(SCENARIOS[0], schedule, chunks);
            let expected = 3.0 * M as f64 + (P - 1) as f64 * bubble;
            assert!((step - expected).abs() < 1e-9, "{schedule}: {step}, expected {expected}");
        }
    }

    /// Passes last as long as the machine charges for them.
    #[test]
    fn passes_are_as_long_measured_as_simulated() {
        for (schedule, chunks) in SCHEDULES {
            let program = program(schedule, [P, chunks, M]).unwrap();
            let paces = Paces { scenario: SCENARIOS[1], pass_s: 0.25, stages: P };
            for span in simulate(&program, &paces).unwrap().passes {
                let Some(action) = span.action else { continue };
                let length = paces.length(&program.stages[span.stage], action).as_secs_f64();
                assert!((span.end_s - span.start_s - length).abs() < 1e-9, "{schedule}, {action}");
            }
        }
    }

    #[test]
    fn delays_are_even_between_nothing_and_two_passes() {
        let delays: Vec<f64> = (1..=4000)
            .map(|sequence| delay(0.5, &MessageInfo { from: 0, to: 1, tag: 2, sequence }).as_secs_f64())
            .collect();
        let mean = delays.iter().sum::<f64>() / delays.len() as f64;
        assert!(delays.iter().all(|delay| (0.0..1.0).contains(delay)));
        assert!((mean - 0.5).abs() < 0.02, "{mean}");
    }
}
