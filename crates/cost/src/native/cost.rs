//! Seconds of a rank by cause, as passes and blocks add them up.

use std::ops::{AddAssign, Sub, SubAssign};

use super::rates::Taken;

/// Seconds on the compute stream of a rank: what it computes, and how long it waits for collectives that nothing hides.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Cost {
    /// Arithmetic, memory traffic beyond it, launches.
    pub taken: Taken,
    /// Waiting, by axis in the order of [`quadrille_spec::Axis::ALL`].
    pub exposed: [f64; 6],
}

impl Cost {
    pub fn seconds(&self) -> f64 {
        self.taken.seconds() + self.exposed.iter().sum::<f64>()
    }

    /// So many of it.
    pub fn times(self, count: f64) -> Self {
        Self { taken: self.taken.times(count), exposed: self.exposed.map(|seconds| count * seconds) }
    }

    /// With more waiting along an axis.
    pub fn exposing(mut self, axis: quadrille_spec::Axis, seconds: f64) -> Self {
        self.exposed[axis as usize] += seconds;
        self
    }
}

/// A cost with its seconds, which are asked for often.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Timed {
    pub cost: Cost,
    pub seconds: f64,
}

impl From<Cost> for Timed {
    fn from(cost: Cost) -> Self {
        Self { cost, seconds: cost.seconds() }
    }
}

impl AddAssign<Taken> for Taken {
    fn add_assign(&mut self, other: Taken) {
        self.compute += other.compute;
        self.memory += other.memory;
        self.launch += other.launch;
    }
}

impl AddAssign for Cost {
    fn add_assign(&mut self, other: Self) {
        self.taken += other.taken;
        for (sum, more) in self.exposed.iter_mut().zip(other.exposed) {
            *sum += more;
        }
    }
}

impl SubAssign for Cost {
    fn sub_assign(&mut self, other: Self) {
        *self += other.times(-1.0);
    }
}

impl Sub for Cost {
    type Output = Self;

    fn sub(mut self, other: Self) -> Self {
        self -= other;
        self
    }
}
