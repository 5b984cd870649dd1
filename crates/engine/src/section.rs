//! The walk through a section of the program: storages, operations, what they took.

use std::time::Instant;

use quadrille_step::schedule::Action;
use quadrille_step::{Layer, Op, Operation, Section, StorageId};

use crate::fusion::{bias_of, run_at};
use crate::rank::label;
use crate::{Backend, EngineError, RankEngine};

/// The name of [`Operation::SumSquares`], by which sums that have waited are timed too.
const SUM_SQUARES: &str = "sum-squares";

/// When an operation was executed.
#[derive(Debug, Clone)]
pub(crate) struct OperationSpan {
    pub(crate) name: &'static str,
    pub(crate) layer: Layer,
    /// The pass over a microbatch that it was part of; `None`: the update.
    pub(crate) action: Option<Action>,
    pub(crate) start: Instant,
    pub(crate) end: Instant,
}

impl<B: Backend> RankEngine<'_, B> {
    /// Executes a section, taking storages before their first use and giving them back after their last. Runs of operations that
    /// the backend does at once are counted one by one, and timed as their first.
    pub(crate) fn run(&mut self, section: &Section, action: Option<Action>) -> Result<(), EngineError> {
        let mut next = 0;
        while let Some(op) = section.ops.get(next) {
            let run = if B::FUSES { run_at(self.program, section, next) } else { None };
            let at_once = next..next + run.map_or(1, |run| run.len);
            next = at_once.end;
            let executes = op.when.includes(self.microbatch, self.program.layout.microbatches(), self.verdict);
            // Memory follows the list of operations, whatever the verdict.
            if !executes && !op.when.is_decided() {
                continue;
            }
            self.context.enter(label(op.layer), op.operation.name())?;
            self.layer = op.layer;
            for storage in section.lifetimes.births[at_once.clone()].iter().flatten() {
                self.slots.begin(*storage)?;
            }
            if executes {
                let bias = if B::FUSES { bias_of(self.program, section, at_once.start) } else { None };
                self.sum_before(op, action)?;
                self.timed(op.operation.name(), op.layer, action, |rank| match (run, bias, &op.operation) {
                    (Some(run), ..) => rank.execute_run(run.pattern, &section.ops[at_once.clone()]),
                    (None, Some(bias), Operation::Gemm(gemm)) => rank.biased_gemm(gemm, bias),
                    _ => rank.execute(&op.operation),
                })?;
            }
            if self.scan.is_some() {
                at_once.clone().try_for_each(|index| self.look(&section.ops[index], index, action))?;
            }
            for storage in section.lifetimes.deaths[at_once].iter().flatten() {
                self.sum_if(action, |rank| rank.squares_read(*storage))?;
                self.slots.end(*storage)?;
            }
        }
        assert!(self.biased.is_empty(), "a bias that a product has added belongs to an operation of its section");
        self.sum_if(action, |_| true)?;
        self.backend.start()
    }

    /// Sums the squares that wait, unless the operation leaves them as they are: it sums others, or moves what is none of them.
    fn sum_before(&mut self, op: &Op, action: Option<Action>) -> Result<(), EngineError> {
        let operation = &op.operation;
        let program = self.program;
        let written = operation.operands();
        let writes = |rank: &Self| written.writes().iter().any(|id| rank.squares_read(program.value(*id).storage));
        let moves = matches!(operation, Operation::Issue(_) | Operation::Wait(_));
        self.sum_if(action, |rank| !matches!(operation, Operation::SumSquares(_)) && !moves || writes(rank))
    }

    fn squares_read(&self, storage: StorageId) -> bool {
        self.squares.iter().any(|(gradient, _)| self.program.value(*gradient).storage == storage)
    }

    /// Sums the squares that wait, if some do and the `condition` holds; timed by their own name in the pass, or the update, that asked.
    fn sum_if(&mut self, action: Option<Action>, condition: impl FnOnce(&Self) -> bool) -> Result<(), EngineError> {
        if self.squares.is_empty() || !condition(self) {
            return Ok(());
        }
        self.timed(SUM_SQUARES, Layer::Step, action, Self::sum_waiting)
    }

    /// Does `work`, and notes how long it took.
    pub(crate) fn timed<R>(
        &mut self,
        name: &'static str,
        layer: Layer,
        action: Option<Action>,
        work: impl FnOnce(&mut Self) -> Result<R, EngineError>,
    ) -> Result<R, EngineError> {
        let start = Instant::now();
        let result = work(self)?;
        if self.spans.is_some() {
            self.backend.start()?; // each operation by itself
        }
        let end = Instant::now();
        *self.breakdown.entry(name).or_default() += (end - start).as_secs_f64();
        if let Some(spans) = &mut self.spans {
            spans.push(OperationSpan { name, layer, action, start, end });
        }
        Ok(result)
    }
}
