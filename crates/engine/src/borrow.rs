//! Engines that run other programs on the weights of a training or generating engine, without a second copy of them.

use quadrille_step::{StepProgram, StorageId};

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
        let common = owner.program.common_storages(program.of_rank(owner.context.rank()));
        let lent: Vec<StorageId> = common.iter().map(|(_, here)| *here).collect();
        let backend = owner.backend.clone();
        let engine = RankEngine::allocate(program, owner.context, backend, Hyper::DEFAULT, owner.seed, &lent, None)?;
        Ok(Self { engine, common })
    }

    /// Runs `work` on the owner's storages, and gives them back. What it communicates is not counted as the
    /// owner's.
    pub fn with<R>(
        &mut self,
        owner: &mut RankEngine<'a, B>,
        work: impl FnOnce(&mut RankEngine<'a, B>) -> Result<R, EngineError>,
    ) -> Result<R, EngineError> {
        owner.settle()?;
        for (key, transfer) in owner.context.take_ledger() {
            *owner.set_aside.entry(key).or_default() += transfer;
        }
        owner.pause_spans(true);
        for (owned, here) in &self.common {
            self.engine.slots.put(*here, owner.slots.take(*owned)?);
        }
        self.engine.matmuls.clone_from(&owner.matmuls);
        let result = work(&mut self.engine)?;
        for (owned, here) in &self.common {
            owner.slots.put(*owned, self.engine.slots.take(*here)?);
        }
        owner.context.take_ledger();
        owner.pause_spans(false);
        Ok(result)
    }
}
