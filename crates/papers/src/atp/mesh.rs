//! Two-dimensional meshes of devices.

use std::fmt;

use quadrille_spec::{Classic, Model, SpecError};

/// `DeviceMesh(d1, d2)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Mesh {
    /// Size of dimension 1, which the columns of column-first weights are split over: neighbours in it are `d2` devices
    /// apart.
    pub d1: usize,
    /// Size of dimension 2, which their rows are split over: consecutive devices. The paper calls the mesh `ATP-d2`.
    pub d2: usize,
}

impl Mesh {
    /// All meshes of `devices` devices, `d2` rising: ATP's search space.
    pub fn all(devices: usize) -> Vec<Self> {
        (1..=devices).filter(|d2| devices.is_multiple_of(*d2)).map(|d2| Self { d1: devices / d2, d2 }).collect()
    }

    /// Refuses models that cannot be cut so: dimension 1 splits heads and the columns of the perceptron, dimension 2 the
    /// rows.
    ///
    /// # Errors
    /// Sizes that do not divide.
    pub fn check(&self, model: &Model) -> Result<(), SpecError> {
        let Classic { heads, ffn, .. } = model.classic();
        SpecError::check_divides_all("d1", self.d1, &[("heads", heads), ("ffn", ffn)])?;
        SpecError::check_divides("d2", self.d2, "hidden", model.hidden)
    }
}

impl fmt::Display for Mesh {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        write!(formatter, "DeviceMesh({},{})", self.d1, self.d2)
    }
}
