//! What an emulated device is and has.

use super::{Emulator, LIBRARY, fault, memory, nccl, product};
use crate::driver::{Algorithm, Candidate, Facts, Fault, Memory, ProductKind};
use crate::nccl::Functions;

/// Bytes of a piece by which numbers come to the host: few, so that most arrays take several.
const PIECE: usize = 512;

impl Facts for Emulator {
    fn name(&self) -> Result<String, Fault> {
        Ok(LIBRARY.to_owned())
    }

    fn has_wgmma(&self) -> bool {
        true
    }

    fn identity(&self) -> Result<[u64; 2], Fault> {
        Ok([0, self.slot.number() as u64])
    }

    fn enter(&self) -> Result<(), Fault> {
        nccl::enter(self.state.clone());
        Ok(())
    }

    fn collectives(&self) -> Result<&'static Functions, Fault> {
        Ok(&nccl::FUNCTIONS)
    }

    fn library(&self) -> Result<String, Fault> {
        Ok(format!("{LIBRARY} {}", env!("CARGO_PKG_VERSION")))
    }

    fn candidates(&self, of: ProductKind) -> Result<Vec<Candidate>, Fault> {
        Ok(product::candidates(of.shape))
    }

    fn workspace_of(&self, algorithm: Algorithm, of: ProductKind) -> Result<usize, Fault> {
        let offered = product::candidates(of.shape).into_iter().find(|candidate| candidate.algorithm == algorithm);
        offered.map(|candidate| candidate.workspace).ok_or_else(|| fault("there is no such algorithm"))
    }

    fn adds_bias(&self, of: ProductKind) -> Result<bool, Fault> {
        Ok(product::adds_bias(of.shape))
    }

    fn memory(&self) -> Result<Memory, Fault> {
        Ok(Memory { used: self.state().memory.used(), total: memory::TOTAL })
    }

    fn piece(&self) -> usize {
        PIECE
    }
}
