//! What the environment says of emulated devices.

use super::{Emulator, fault};
use crate::driver::Fault;

/// The variable that seeds the emulated device of ranks.
const SEED: &str = "QUADRILLE_EMULATOR_SEED";
/// The variable that says how many emulated devices the ranks of a process have.
const DEVICES: &str = "QUADRILLE_EMULATED_DEVICES";

/// A number that the environment may tell.
fn told(variable: &str, what: &str) -> Result<Option<u64>, Fault> {
    let Ok(text) = std::env::var(variable) else { return Ok(None) };
    let wrong = |_| fault(format!("{variable} is '{text}', which is no {what}: give a whole number"));
    text.parse().map(Some).map_err(wrong)
}

impl Emulator {
    /// The device of a number that draws from the seed in [`SEED`], or else from 1.
    pub fn seeded(number: usize) -> Result<Self, Fault> {
        Ok(Self::in_machine(told(SEED, "seed")?.unwrap_or(1), number))
    }

    /// How many devices there are, by the variable [`DEVICES`], or else one.
    pub fn count() -> Result<usize, Fault> {
        match told(DEVICES, "number of devices")? {
            Some(0) => Err(fault(format!("{DEVICES} is 0: give at least 1"))),
            count => Ok(count.unwrap_or(1) as usize),
        }
    }
}
