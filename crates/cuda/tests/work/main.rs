//! Work that is measured, and a calibration, on the emulated device.

#![cfg(emulated)]

mod calibration;
mod pieces;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use quadrille_cuda::{Driver, Emulator, emulate_by};

/// An emulated device that ranks of this process compute on, for one test at a time.
fn device() -> (Arc<Emulator>, MutexGuard<'static, ()>) {
    static ALONE: Mutex<()> = Mutex::new(());
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let device = Arc::new(Emulator::new(1));
    let driver: Arc<dyn Driver> = device.clone();
    emulate_by(0, &driver);
    (device, alone)
}
