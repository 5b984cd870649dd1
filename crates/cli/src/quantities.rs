//! Quantities of flags, by whose names messages call them.

use std::str::FromStr;

use quadrille_plan::native::Reserve;
use quadrille_spec::{SpecError, quantities};

use crate::flags::called;

/// What of a device's memory `--memory-reserve` keeps free.
///
/// # Errors
/// What is no [`Reserve`].
pub fn reserve(text: &str) -> Result<Reserve, SpecError> {
    text.parse().map_err(|error| called("--memory-reserve", error))
}

/// Numbers of devices, ascending; at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counts(Vec<usize>);

impl Counts {
    /// The numbers.
    pub fn values(&self) -> &[usize] {
        &self.0
    }
}

impl FromStr for Counts {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        quantities::whole_numbers("numbers of devices", text).map(Self)
    }
}
