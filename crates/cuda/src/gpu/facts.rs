//! What an NVIDIA device is and has.

use cudarc::driver::result::device;
use cudarc::driver::{result, sys};

use super::products::{Products, WORKSPACE};
use super::{Asked, Gpu};
use crate::driver::{Algorithm, Candidate, Facts, Fault, Memory, ProductKind};
use crate::nccl;

/// Bytes of a piece by which numbers come to the host: enough for the full speed of a bus.
const PIECE: usize = 4 << 20;

impl Facts for Gpu {
    fn name(&self) -> Result<String, Fault> {
        device::get_name(self.device).asked("asking for its name")
    }

    fn has_wgmma(&self) -> bool {
        self.architecture == "sm_90"
    }

    fn identity(&self) -> Result<[u64; 2], Fault> {
        let id = device::get_uuid(self.device).asked("asking for its identity")?;
        let bytes = id.bytes.map(|byte| byte.to_ne_bytes()[0]);
        Ok([0, 8].map(|start| u64::from_le_bytes(bytes[start..start + 8].try_into().expect("they are 8"))))
    }

    fn enter(&self) -> Result<(), Fault> {
        self.enter()
    }

    fn collectives(&self) -> Result<&'static nccl::Functions, Fault> {
        nccl::open()
    }

    fn library(&self) -> Result<String, Fault> {
        let mut driver = 0;
        // SAFETY: the number is written.
        unsafe { sys::cuDriverGetVersion(&mut driver) }.result().asked("asking for its version")?;
        Ok(format!("{}, CUDA {}.{}, cuBLASLt {}", self.name()?, driver / 1000, driver % 1000 / 10, Products::version()))
    }

    fn candidates(&self, of: ProductKind) -> Result<Vec<Candidate>, Fault> {
        self.enter()?;
        self.products.candidates(of)
    }

    fn workspace_of(&self, algorithm: Algorithm, of: ProductKind) -> Result<usize, Fault> {
        self.enter()?;
        self.products.workspace_of(algorithm, of)
    }

    fn adds_bias(&self, of: ProductKind) -> Result<bool, Fault> {
        self.enter()?;
        self.products.adds_bias(of)
    }

    fn memory(&self) -> Result<Memory, Fault> {
        self.enter()?;
        let (free, total) = result::mem_get_info().asked("asking for its memory")?;
        Ok(Memory { used: total - free, total })
    }

    fn piece(&self) -> usize {
        PIECE
    }

    fn workspace(&self) -> usize {
        WORKSPACE
    }
}
