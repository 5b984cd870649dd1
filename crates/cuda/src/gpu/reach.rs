//! Whether a device's kernels may use the memory of others of the process.

use std::sync::PoisonError;

use cudarc::driver::result::DriverError;
use cudarc::driver::sys;

use super::{Asked, Gpu, fault};
use crate::driver::{Address, Fault};

impl Gpu {
    /// Its number, from 0 on.
    pub fn number(&self) -> usize {
        self.number
    }

    /// Whether the machine lets kernels here use another device's memory. That it is open is known from now on.
    pub(crate) fn can_reach(&self, other: &Self) -> bool {
        self.others.write().unwrap_or_else(PoisonError::into_inner).entry(other.number).or_insert(false);
        let mut can = 0;
        // SAFETY: both are devices of the driver; the number is written.
        let asked = unsafe { sys::cuDeviceCanAccessPeer(&mut can, self.device, other.device) };
        asked.result().is_ok() && can != 0
    }

    /// Lets kernels here use another device's memory.
    pub(crate) fn reach(&self, other: &Self) -> Result<(), Fault> {
        self.enter()?;
        // SAFETY: the context lives as long as the process keeps its device.
        match unsafe { sys::cuCtxEnablePeerAccess(other.context, 0) }.result() {
            Ok(()) | Err(DriverError(sys::CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED)) => {}
            // A machine has only so many such ways: what has none goes through memory of the rank's own.
            Err(DriverError(sys::CUresult::CUDA_ERROR_TOO_MANY_PEERS)) => return Ok(()),
            Err(error) => return Err(fault(error, &format!("reaching device {} from {}", other.number, self.number))),
        }
        self.others.write().unwrap_or_else(PoisonError::into_inner).insert(other.number, true);
        Ok(())
    }

    /// See [`Driver::reaches`](crate::Driver::reaches).
    pub(super) fn reaches_memory(&self, at: Address) -> Result<bool, Fault> {
        let others = self.others.read().unwrap_or_else(PoisonError::into_inner);
        if others.values().all(|is_reached| *is_reached) {
            return Ok(true);
        }
        self.enter()?;
        let mut owner = 0_i32;
        let attribute = sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL;
        // SAFETY: the number is written.
        let asked = unsafe { sys::cuPointerGetAttribute((&raw mut owner).cast(), attribute, at.0) };
        asked.result().asked(&format!("asking whose {:#x} is", at.0))?;
        Ok(others.get(&(owner as usize)).copied().unwrap_or(true))
    }
}
