//! Which part of a value a rank holds: the shards of its rows and columns, and the axes it is a partial sum over.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;

use quadrille_spec::{Axis, AxisSet, Coordinate, Grid, Layout};

use crate::{Kept, StepError};

/// Most axes of a list: each once, and one more that a sharding is refused for.
const MOST_AXES: usize = Axis::COUNT + 1;

/// Axes in an order, as a slice of them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct AxisList {
    /// Behind the end the same for all lists.
    axes: [Axis; MOST_AXES],
    len: usize,
}

impl AxisList {
    /// Adds an axis as the innermost.
    ///
    /// # Panics
    /// Beyond as many as there are, and one.
    pub fn push(&mut self, axis: Axis) {
        self.axes[self.len] = axis;
        self.len += 1;
    }

    /// Takes the innermost away.
    pub fn pop(&mut self) {
        if let Some(last) = self.len.checked_sub(1) {
            (self.axes[last], self.len) = (Self::default().axes[last], last);
        }
    }
}

impl Hash for AxisList {
    /// In one word: a digit for each axis.
    fn hash<H: Hasher>(&self, state: &mut H) {
        const { assert!(Axis::COUNT < 8, "every axis has an octal digit of its own, and 0 is none") };
        state.write_u64(self.iter().fold(0, |word, axis| 8 * word + 1 + *axis as u64));
    }
}

impl IntoIterator for AxisList {
    type Item = Axis;
    type IntoIter = std::iter::Take<std::array::IntoIter<Axis, MOST_AXES>>;

    fn into_iter(self) -> Self::IntoIter {
        self.axes.into_iter().take(self.len)
    }
}

impl<'a> IntoIterator for &'a AxisList {
    type Item = &'a Axis;
    type IntoIter = std::slice::Iter<'a, Axis>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl Default for AxisList {
    fn default() -> Self {
        Self { axes: [Axis::X; MOST_AXES], len: 0 }
    }
}

impl Deref for AxisList {
    type Target = [Axis];

    fn deref(&self) -> &[Axis] {
        &self.axes[..self.len]
    }
}

impl fmt::Debug for AxisList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl From<&[Axis]> for AxisList {
    fn from(axes: &[Axis]) -> Self {
        axes.iter().copied().collect()
    }
}

impl FromIterator<Axis> for AxisList {
    fn from_iter<I: IntoIterator<Item = Axis>>(axes: I) -> Self {
        let mut list = Self::default();
        axes.into_iter().for_each(|axis| list.push(axis));
        list
    }
}

/// The sharding of a value. Axes that appear nowhere replicate it. It is ATP's and DTensor's
/// Shard/Replicate/Partial, bound to the axes of the grid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Sharding {
    /// Axes that cut the blocks of rows, outermost first: experts.
    pub blocks: AxisList,
    /// Axes that cut the rows of each block, outermost first.
    pub rows: AxisList,
    /// Axes that cut the columns, outermost first.
    pub cols: AxisList,
    /// Axes that cut the row-major tile of a stored weight once more, outermost first. z has to divide it; the shards
    /// of data, expert and context (ZeRO) are padded to equal lengths.
    pub flat: AxisList,
    /// Axes over which the held values are addends of the true ones.
    pub partial: AxisSet,
}

impl Sharding {
    /// A value whose rows and columns are cut.
    pub fn new(rows: &[Axis], cols: &[Axis]) -> Self {
        Self { rows: rows.into(), cols: cols.into(), ..Self::default() }
    }

    /// The same cut, with whole blocks of rows cut over `axes`.
    #[must_use]
    pub fn blocks(self, axes: &[Axis]) -> Self {
        Self { blocks: axes.into(), ..self }
    }

    /// The same cut of a whole tile: no flat one.
    #[must_use]
    pub fn whole(self) -> Self {
        Self { flat: AxisList::default(), ..self }
    }

    /// The same cut, as a partial sum over `axes`.
    #[must_use]
    pub fn partial(self, axes: AxisSet) -> Self {
        Self { partial: axes, ..self }
    }

    /// The same cut, with the tile cut flat over `axes`.
    #[must_use]
    pub fn flat(self, axes: &[Axis]) -> Self {
        Self { flat: axes.into(), ..self }
    }

    /// The same without the axes of one rank, which cut nothing and sum nothing.
    #[must_use]
    pub fn seen_on(&self, grid: &Grid) -> Self {
        let several = |axes: &AxisList| axes.iter().copied().filter(|axis| grid.size(*axis) > 1).collect();
        Self {
            blocks: several(&self.blocks),
            rows: several(&self.rows),
            cols: several(&self.cols),
            flat: several(&self.flat),
            partial: grid.several(self.partial),
        }
    }

    /// The axes that replicate a weight that is cut so, over which ZeRO shards: those of the layout that cut no blocks of it.
    pub fn replicating(&self, layout: &Layout) -> AxisSet {
        layout.replicating(self.blocks.into_iter().collect())
    }

    /// Whether a parameter that is cut so is a weight of products or a table, whose gradients are made tile by tile: z cuts
    /// these tiles, or whole blocks of them. Vectors are small and summed in place.
    pub fn is_of_tiles(&self) -> bool {
        !self.flat.is_empty() || !self.blocks.is_empty()
    }

    /// The axes that cut something.
    pub fn sharded(&self) -> AxisSet {
        let lists = [&self.blocks, &self.rows, &self.cols, &self.flat];
        lists.into_iter().flat_map(|axes| axes.iter().copied()).collect()
    }

    /// The sharding in which this value's gradient is complete: cut alike, no partial sum.
    #[must_use]
    pub fn of_gradient(&self) -> Self {
        Self { partial: AxisSet::EMPTY, ..*self }
    }

    /// Whether the rank at `place` owns its shard, that is, counts it in the gradient norm: its coordinate is 0 on
    /// every axis that does not cut the value. Stages hold different values, so pipe does not count.
    pub fn is_owner(&self, place: Coordinate) -> bool {
        AxisSet::WORLD.without(Axis::Pipe.only()).without(self.sharded()).iter().all(|axis| place.on(axis) == 0)
    }

    /// Rows and columns of the tile that a rank holds of a `[rows, cols]` value, whose rows are so many blocks (before the flat
    /// cut, which z divides unless it `pads`).
    ///
    /// # Errors
    /// An axis that cuts twice, or that does not divide.
    pub fn tile(
        &self,
        name: &str,
        [blocks, rows, cols]: [usize; 3],
        grid: &Grid,
        pads: bool,
    ) -> Result<(usize, usize), StepError> {
        let cuts = self.blocks.len() + self.rows.len() + self.cols.len() + self.flat.len();
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
        let rows = divide("blocks", blocks, &self.blocks)? * divide("rows", rows / blocks, &self.rows)?;
        let tile = (rows, divide("columns", cols, &self.cols)?);
        let elements = tile.0.checked_mul(tile.1).ok_or(StepError::TooLarge {
            what: "hold",
            amount: tile.0 as f64 * tile.1 as f64,
            unit: "elements",
        })?;
        if !pads {
            let exact: AxisList = self.flat.iter().copied().filter(|axis| *axis == Axis::Z).collect();
            divide("elements of the tile", elements, &exact)?;
        }
        Ok(tile)
    }

    /// Rows and columns of a rank's part of `[rows, cols]` that are queues of so many experts, equally long.
    ///
    /// # Errors
    /// An axis that cuts twice, or that does not divide.
    pub(crate) fn queues_tile(
        &self,
        name: &str,
        [experts, rows, cols]: [usize; 3],
        grid: &Grid,
    ) -> Result<(usize, usize), StepError> {
        let whole = Self { rows: AxisList::default(), cols: AxisList::default(), ..*self };
        whole.tile(name, [experts, experts, 1], grid, false)?;
        let both = self.blocks.into_iter().chain(self.rows).collect();
        Self { blocks: AxisList::default(), rows: both, ..*self }.tile(name, [1, rows, cols], grid, false)
    }

    /// Elements that a rank holds of a tile of `elements`, of which z's part is pruned, if `kept` says so, before data,
    /// expert and context cut it.
    pub fn flat_share(&self, elements: usize, kept: Option<Kept>, grid: &Grid) -> usize {
        let whole = kept.map_or_else(|| self.z_share(elements, grid), |kept| kept.of(self.z_share(elements, grid)));
        let others = self.flat.iter().filter(|axis| **axis != Axis::Z);
        others.fold(whole, |elements, axis| elements.div_ceil(grid.size(*axis)))
    }

    /// Elements of z's part of a tile.
    pub fn z_share(&self, elements: usize, grid: &Grid) -> usize {
        if self.flat.contains(&Axis::Z) { elements.div_ceil(grid.size(Axis::Z)) } else { elements }
    }
}

impl fmt::Display for Sharding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = |axes: &[Axis]| axes.iter().map(|axis| axis.name()).collect::<Vec<_>>().join(",");
        let mut parts = Vec::new();
        let lists = [("blocks", &self.blocks), ("rows", &self.rows), ("cols", &self.cols), ("flat", &self.flat)];
        for (what, axes) in lists {
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
