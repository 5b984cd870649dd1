//! Engines that run other programs on the weights of a training or generating engine, without a second copy of them.

use quadrille_step::{StepProgram, StorageId};

use crate::interpreter::{Interpreter, RunConstants};
use crate::{Backend, EngineError, Hyper, RankEngine};

/// An engine that has no parameters (and caches) of its own: while it runs, it has those of another engine.
pub(crate) struct Borrower<'a, B: Backend> {
    pub engine: RankEngine<'a, B>,
    /// Numbers of storages in the owner's program and in this engine's.
    common: Vec<(StorageId, StorageId)>,
}

impl<'a, B: Backend> Borrower<'a, B> {
    /// Allocates what `program` needs beside the storages that it has in common with the owner's program.
    pub fn new(owner: &RankEngine<'a, B>, program: &'a StepProgram) -> Result<Self, EngineError> {
        let Interpreter { rank, backend, communicators, step, .. } = &owner.interpreter;
        let context = communicators.context;
        let common = rank.program.common_storages(program.of_rank(context.rank()));
        let lent: Vec<StorageId> = common.iter().map(|(_, here)| *here).collect();
        let constants = RunConstants { hyper: Hyper::DEFAULT, seed: step.seed, states: None };
        let engine = RankEngine::allocate(program, context, backend.clone(), &constants, &lent)?;
        Ok(Self { engine, common })
    }

    /// Runs `work` on the owner's storages, and gives them back. What it communicates is not counted as the
    /// owner's.
    pub fn with<R>(
        &mut self,
        owner: &mut RankEngine<'a, B>,
        work: impl FnOnce(&mut RankEngine<'a, B>) -> Result<R, EngineError>,
    ) -> Result<R, EngineError> {
        let owner = &mut owner.interpreter;
        let context = owner.communicators.context;
        owner.settle()?;
        owner.observers.ledger.set_aside(context.take_ledger());
        owner.observers.pause_spans(context, true);
        let borrower = &mut self.engine.interpreter;
        for (owned, here) in &self.common {
            borrower.storages.put(*here, owner.storages.take(*owned)?);
        }
        borrower.products.clone_from(&owner.products);
        let result = work(&mut self.engine)?;
        let borrower = &mut self.engine.interpreter;
        for (owned, here) in &self.common {
            owner.storages.put(*owned, borrower.storages.take(*here)?);
        }
        context.take_ledger();
        owner.observers.pause_spans(context, false);
        Ok(result)
    }
}
