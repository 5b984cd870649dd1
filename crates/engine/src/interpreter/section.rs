//! The walk through a section of the program: storages, operations, what they took.

use std::rc::Rc;
use std::time::Instant;

use quadrille_step::schedule::Action;
use quadrille_step::{Layer, Op, Operation, Section, StorageId};

use super::Interpreter;
use super::fusion::{bias_of, run_at};
use crate::observe::non_finite;
use crate::observe::operation_times::OperationSpan;
use crate::{Backend, EngineError};

/// The name of [`Operation::SumSquares`], by which sums that have waited are timed too.
const SUM_SQUARES: &str = "sum-squares";

impl<B: Backend> Interpreter<'_, B> {
    /// Executes a section, taking storages before their first use and giving them back after their last. Runs of
    /// operations that the backend does at once are counted one by one, and timed as their first.
    pub fn run(&mut self, section: &Section, action: Option<Action>) -> Result<(), EngineError> {
        let program = self.rank.program;
        let backend = Rc::clone(&self.backend);
        let fused = backend.fused();
        let mut next = 0;
        while let Some(op) = section.ops.get(next) {
            let run = fused.and_then(|fused| Some((fused, run_at(program, section, next)?)));
            let at_once = next..next + run.map_or(1, |(_, run)| run.len);
            next = at_once.end;
            let microbatches = program.layout.microbatches();
            let executes = op.when.includes(self.step.microbatch, microbatches, self.step.verdict);
            // Memory follows the list of operations, whatever the verdict.
            if !executes && !op.when.is_decided() {
                continue;
            }
            self.communicators.enter(op.layer, op.operation.name())?;
            self.step.layer = op.layer;
            for storage in section.lifetimes.births[at_once.clone()].iter().flatten() {
                self.storages.begin(*storage)?;
            }
            if executes {
                let bias = fused.and_then(|fused| Some((fused, bias_of(program, section, at_once.start)?)));
                self.sum_before(op, action)?;
                self.timed(op.operation.name(), op.layer, action, |this| match (run, bias, &op.operation) {
                    (Some((fused, run)), ..) => this.execute_run(fused, run.pattern, &section.ops[at_once.clone()]),
                    (None, Some((fused, bias)), Operation::Gemm(gemm)) => this.biased_gemm(fused, gemm, bias),
                    _ => this.execute(&op.operation),
                })?;
            }
            if self.observers.scan.is_some() {
                at_once.clone().try_for_each(|index| non_finite::look(self, &section.ops[index], index, action))?;
            }
            for storage in section.lifetimes.deaths[at_once].iter().flatten() {
                self.sum_if(action, |this| this.squares_read(*storage))?;
                self.storages.end(*storage)?;
            }
        }
        assert!(
            self.fusion.biased.is_empty(),
            "a bias that a product has added belongs to an operation of its section"
        );
        self.sum_if(action, |_| true)?;
        self.backend.start()
    }

    /// Sums the squares that wait, unless the operation leaves them as they are: it sums others, or moves what is none
    /// of them.
    fn sum_before(&mut self, op: &Op, action: Option<Action>) -> Result<(), EngineError> {
        let operation = &op.operation;
        let written = operation.operands();
        let writes = |this: &Self| written.writes().iter().any(|id| this.squares_read(this.rank.storage(*id)));
        let moves = matches!(operation, Operation::Issue(_) | Operation::Wait(_));
        self.sum_if(action, |this| !matches!(operation, Operation::SumSquares(_)) && !moves || writes(this))
    }

    fn squares_read(&self, storage: StorageId) -> bool {
        self.fusion.squares.iter().any(|(gradient, _)| self.rank.storage(*gradient) == storage)
    }

    /// Sums the squares that wait, if some do and the `condition` holds; timed by their own name in the pass, or the
    /// update, that asked.
    fn sum_if(&mut self, action: Option<Action>, condition: impl FnOnce(&Self) -> bool) -> Result<(), EngineError> {
        if self.fusion.squares.is_empty() || !condition(self) {
            return Ok(());
        }
        self.timed(SUM_SQUARES, Layer::Step, action, Self::sum_waiting)
    }

    /// Does `work`, and records its time.
    pub fn timed<R>(
        &mut self,
        name: &'static str,
        layer: Layer,
        action: Option<Action>,
        work: impl FnOnce(&mut Self) -> Result<R, EngineError>,
    ) -> Result<R, EngineError> {
        let start = Instant::now();
        let result = work(self)?;
        if self.observers.times.spans.is_some() {
            self.backend.start()?; // each operation by itself
        }
        let end = Instant::now();
        self.observers.times.add(OperationSpan { name, layer, action, start, end });
        Ok(result)
    }
}
