//! Steps whose optimizer states come from below the device, in so many buckets, beside what can at best be expected: the longer
//! of the step with its states on the device and of the moves alone, which are held against plain copies of as many bytes.

use quadrille_engine::{EngineError, StateTimes, TrainOptions, random_full_batch, time_states_on_cpu};
use quadrille_files::{Scratch, ScratchError};
use quadrille_spec::{HOST, Layout, Offload, RankLedger};
use quadrille_step::{StageProgram, StepProgram, predict};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::timing::{median, seconds};
use crate::{MeasureError, OnProgress, Progress};

/// Numbers of buckets that are measured.
pub const BUCKETS: [usize; 4] = [1, 2, 4, 8];
/// How much longer than the bound a step may take that hides its moves.
pub const SLACK: f64 = 0.15;
/// Bytes of a piece of a plain copy.
const PIECE: usize = 1 << 20;

/// What is measured.
#[derive(Debug, Clone)]
pub struct OptimizerBench {
    /// With states on the device.
    pub program: StepProgram,
    /// Steps, of which the first warms up, threads, and where states lie.
    pub options: TrainOptions,
}

/// What steps take.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct MeasuredOptimizer {
    /// Of each rank.
    pub threads: usize,
    /// Measured ones of each row.
    pub steps: u64,
    /// Milliseconds of a step with states on the device, the median: nothing moves. Before and after all others, of which the
    /// smaller counts.
    pub compute_ms: f64,
    /// The two.
    pub compute_ms_each: [f64; 2],
    /// By number of buckets, without and with updates that are begun under the reductions.
    pub rows: Vec<OptimizerRow>,
}

/// A number of buckets.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct OptimizerRow {
    /// How many the fullest rank has.
    pub buckets: usize,
    /// Elements of each.
    pub bucket: usize,
    /// Whether updates are begun under the reductions.
    pub optimizer_overlap: bool,
    /// Bytes that the fullest rank moves, both ways together, where no update is repeated.
    pub moved_bytes: u64,
    /// Milliseconds of a plain copy of as many bytes of each rank, one rank after the other.
    pub copy_ms: f64,
    /// Milliseconds of the moves of a step alone, the median.
    pub transfer_ms: f64,
    /// Milliseconds of a step, the median.
    pub step_ms: f64,
    /// The longer of `compute_ms` and `transfer_ms`, and [`SLACK`].
    pub bound_ms: f64,
    /// Measured steps of which the update was done again.
    pub repeated: usize,
}

impl OptimizerBench {
    /// The programs of all rows, of which those with two versions of the states take the most memory.
    ///
    /// # Errors
    /// A layout that cannot be.
    pub fn programs(&self) -> Result<Vec<StepProgram>, MeasureError> {
        let updated = self.program.stages.iter().map(updated).max().unwrap_or(1).max(1);
        let layouts = BUCKETS.into_iter().flat_map(|buckets| [false, true].map(|overlap| (buckets, overlap)));
        let program = |(buckets, optimizer_overlap): (usize, bool)| {
            let offload = Offload::Host;
            let bucket = updated.div_ceil(buckets);
            let layout = Layout { offload, bucket, optimizer_overlap, ..self.program.layout.clone() };
            Ok(StepProgram::new(&self.program.model, &layout)?)
        };
        layouts.map(program).collect()
    }

    /// Measures all rows; tells before each part which comes next.
    ///
    /// # Errors
    /// A rank's failure; states that have no place.
    pub fn measure(&self, told: OnProgress) -> Result<MeasuredOptimizer, MeasureError> {
        let programs = self.programs()?;
        let of = programs.len() + 2;
        told(Progress { done: 0, of, next: Some("computing") });
        let before = self.run(&self.program)?.step_ms;
        let row = |(program, done): (&StepProgram, usize)| {
            let next = format!("buckets of {}", program.layout.bucket);
            told(Progress { done, of, next: Some(&next) });
            self.row(program)
        };
        let mut rows = programs.iter().zip(1..).map(row).collect::<Result<Vec<_>, _>>()?;
        told(Progress { done: of - 1, of, next: Some("computing") });
        let compute_ms_each = [before, self.run(&self.program)?.step_ms];
        let compute_ms = compute_ms_each[0].min(compute_ms_each[1]);
        for row in &mut rows {
            row.bound_ms = (1.0 + SLACK) * compute_ms.max(row.transfer_ms);
        }
        Ok(MeasuredOptimizer {
            threads: self.options.threads,
            steps: self.options.steps - 1,
            compute_ms,
            compute_ms_each,
            rows,
        })
    }

    fn row(&self, program: &StepProgram) -> Result<OptimizerRow, MeasureError> {
        let moved = |rank: &RankLedger| -> u64 {
            rank.axes.get(HOST).into_iter().flatten().map(|(_, transfer)| transfer.payload_bytes).sum()
        };
        let moved: Vec<u64> = predict(program).ranks.iter().map(moved).collect();
        let Times { step_ms, transfer_ms, repeated } = self.run(program)?;
        let mut copy_ms = 0.0;
        for bytes in &moved {
            copy_ms += 1e3 * self.copy(bytes / 2).map_err(EngineError::from)?;
        }
        let Layout { bucket, optimizer_overlap, .. } = program.layout;
        let buckets = program.stages.iter().map(|stage| stage.buckets.len()).max().unwrap_or(0);
        let moved_bytes = moved.into_iter().max().unwrap_or(0);
        Ok(OptimizerRow {
            buckets,
            bucket,
            optimizer_overlap,
            moved_bytes,
            copy_ms,
            transfer_ms,
            step_ms,
            bound_ms: 0.0,
            repeated,
        })
    }

    /// Medians over the steps but the first, which warms up, on the rank that takes longest.
    fn run(&self, program: &StepProgram) -> Result<Times, EngineError> {
        let batch = random_full_batch(&program.model, self.options.seed, program.layout.seq_len);
        let by_rank = time_states_on_cpu(program, &self.options, &batch)?;
        let steps = 1..self.options.steps as usize;
        let slowest = |of: fn(&StateTimes) -> f64| {
            let of_step = |step: usize| by_rank.iter().map(|times| of(&times[step])).fold(0.0, f64::max);
            1e3 * median(steps.clone().map(of_step).collect())
        };
        let repeated = steps.clone().filter(|step| by_rank[0][*step].repeated).count();
        Ok(Times { step_ms: slowest(|times| times.step), transfer_ms: slowest(|times| times.moves), repeated })
    }

    /// Seconds in which so many bytes come from where states lie, and go there.
    fn copy(&self, bytes: u64) -> Result<f64, ScratchError> {
        let pieces = (0..bytes).step_by(PIECE).map(|start| (start, (bytes - start).min(PIECE as u64) as usize));
        let mut piece = vec![1; PIECE];
        let Some(folder) = &self.options.states else {
            let mut below = vec![1; bytes as usize];
            return Ok(seconds(|| {
                for (start, len) in pieces {
                    let below = &mut below[start as usize..start as usize + len];
                    piece[..len].copy_from_slice(below);
                    below.copy_from_slice(&piece[..len]);
                }
            }));
        };
        let file = Scratch::create(folder, &format!("quadrille-bench-process-{}", std::process::id()), bytes)?;
        let mut done = Ok(());
        let taken = seconds(|| {
            done = pieces.clone().try_for_each(|(start, len)| {
                file.read(start, &mut piece[..len])?;
                file.write(start, &piece[..len])
            });
        });
        done.map(|()| taken)
    }
}

/// What steps of a program take.
struct Times {
    step_ms: f64,
    transfer_ms: f64,
    repeated: usize,
}

/// Elements that a rank of a stage updates.
fn updated(stage: &StageProgram) -> usize {
    let trained = stage.parameters.iter().filter(|parameter| parameter.is_trained());
    trained.map(|parameter| stage.value(parameter.updated).local_elements).sum()
}

#[cfg(test)]
mod tests {
    use quadrille_engine::Hyper;
    use quadrille_spec::{LayoutRequest, Model};

    use super::*;

    #[test]
    fn rows_have_as_many_buckets_as_they_say() {
        let model = Model::preset("gpt-tiny").unwrap();
        let layout = Layout::new(&model, &LayoutRequest::new("data=2".parse().unwrap(), 4)).unwrap();
        let program = StepProgram::new(&model, &layout).unwrap();
        let bench = OptimizerBench { program, options: TrainOptions::new(2, Hyper::default(), 1) };
        let programs = bench.programs().unwrap();
        let shape = |program: &StepProgram| (program.stages[0].buckets.len(), program.layout.optimizer_overlap);
        let expected = BUCKETS.into_iter().flat_map(|buckets| [(buckets, false), (buckets, true)]);
        assert!(programs.iter().map(shape).eq(expected));
    }
}
