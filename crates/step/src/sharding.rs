//! Which part of a value a rank holds: the shards of its rows and columns, and the axes it is a partial sum over.

use std::fmt;

use quadrille_spec::{Axis, AxisSet, Coordinate, Grid};

use crate::StepError;

/// The sharding of a value. Axes that appear nowhere replicate it. It is ATP's and DTensor's
/// Shard/Replicate/Partial, bound to the axes of the grid.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Sharding {
    /// Axes that cut the rows, outermost first.
    pub rows: Vec<Axis>,
    /// Axes that cut the columns, outermost first.
    pub cols: Vec<Axis>,
    /// Axes that cut the row-major tile of a stored weight once more, outermost first. z has to divide it; the shards
    /// of data and context (ZeRO) are padded to equal lengths.
    pub flat: Vec<Axis>,
    /// Axes over which the held values are addends of the true ones.
    pub partial: AxisSet,
}

impl Sharding {
    /// A value whose rows and columns are cut.
    pub fn new(rows: &[Axis], cols: &[Axis]) -> Self {
        Self { rows: rows.to_vec(), cols: cols.to_vec(), flat: Vec::new(), partial: AxisSet::EMPTY }
    }

    /// The same cut, as a partial sum over `axes`.
    #[must_use]
    pub fn partial(self, axes: AxisSet) -> Self {
        Self { partial: axes, ..self }
    }

    /// The same cut, with the tile cut flat over `axes`.
    #[must_use]
    pub fn flat(self, axes: &[Axis]) -> Self {
        Self { flat: axes.to_vec(), ..self }
    }

    /// The axes that cut something.
    pub fn sharded(&self) -> AxisSet {
        self.rows.iter().chain(&self.cols).chain(&self.flat).copied().collect()
    }

    /// The sharding in which this value's gradient is complete: cut alike, no partial sum.
    #[must_use]
    pub fn of_gradient(&self) -> Self {
        Self { partial: AxisSet::EMPTY, ..self.clone() }
    }

    /// Whether the rank at `place` owns its shard, that is, counts it in the gradient norm: its coordinate is 0 on
    /// every axis that does not cut the value. Stages hold different values, so pipe does not count.
    pub fn is_owner(&self, place: Coordinate) -> bool {
        AxisSet::WORLD.without(Axis::Pipe.only()).without(self.sharded()).iter().all(|axis| place.on(axis) == 0)
    }

    /// Rows and columns of the tile that a rank holds of a `[rows, cols]` value (before the flat cut, which z divides unless
    /// it `pads`).
    ///
    /// # Errors
    /// An axis that cuts twice, or that does not divide.
    pub fn tile(
        &self,
        name: &str,
        rows: usize,
        cols: usize,
        grid: &Grid,
        pads: bool,
    ) -> Result<(usize, usize), StepError> {
        let cuts = self.rows.len() + self.cols.len() + self.flat.len();
        if self.sharded().iter().count() != cuts || self.sharded().iter().any(|axis| self.partial.contains(axis)) {
            return Err(StepError::AxisUsedTwice { value: name.to_owned(), sharding: self.to_string() });
        }
        let divide = |dim: &'static str, size: usize, axes: &[Axis]| {
            let parts: usize = axes.iter().map(|axis| grid.size(*axis)).product();
            if size.is_multiple_of(parts) {
                return Ok(size / parts);
            }
            let axes = axes.iter().map(|axis| axis.name()).collect::<Vec<_>>().join("*");
            Err(StepError::Indivisible { value: name.to_owned(), dim, size, axes, parts })
        };
        let tile = (divide("rows", rows, &self.rows)?, divide("columns", cols, &self.cols)?);
        let elements = tile.0.checked_mul(tile.1).ok_or(StepError::TooLarge {
            what: "hold",
            amount: tile.0 as f64 * tile.1 as f64,
            unit: "elements",
        })?;
        if !pads {
            let exact: Vec<Axis> = self.flat.iter().copied().filter(|axis| *axis == Axis::Z).collect();
            divide("elements of the tile", elements, &exact)?;
        }
        Ok(tile)
    }

    /// Elements that a rank holds of a tile of `elements`.
    pub fn flat_share(&self, elements: usize, grid: &Grid) -> usize {
        self.flat.iter().fold(elements, |elements, axis| elements.div_ceil(grid.size(*axis)))
    }
}

impl fmt::Display for Sharding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = |axes: &[Axis]| axes.iter().map(|axis| axis.name()).collect::<Vec<_>>().join(",");
        let mut parts = Vec::new();
        for (what, axes) in [("rows", &self.rows), ("cols", &self.cols), ("flat", &self.flat)] {
            if !axes.is_empty() {
                parts.push(format!("{what} {}", names(axes)));
            }
        }
        if !self.partial.is_empty() {
            parts.push(format!("partial {}", self.partial.key()));
        }
        f.write_str(&if parts.is_empty() { "replicated".to_owned() } else { parts.join(" · ") })
    }
}
