//! Measurements of others.

use super::arguments::CalibrateArguments;
use crate::failure::Failure;

/// Reads them.
pub fn run(_: &CalibrateArguments) -> Result<(), Failure> {
    Err(Failure::usage("not yet"))
}
