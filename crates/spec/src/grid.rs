//! The grid of ranks: a size per axis, and the arithmetic between ranks, coordinates and groups.

use std::fmt;
use std::str::FromStr;

use crate::{Axis, AxisOrder, AxisSet, SpecError};

/// More ranks than any machine has; keeps products far from overflow.
const MAX_RANKS: usize = 1 << 24;

/// The size of every axis and the order of the axes in the numbering of ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Grid {
    sizes: [usize; Axis::COUNT],
    order: AxisOrder,
}

/// The place of a rank on every axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Coordinate([usize; Axis::COUNT]);

impl Coordinate {
    /// The place on one axis.
    pub fn on(self, axis: Axis) -> usize {
        self.0[axis as usize]
    }

    /// The same place but for one axis.
    pub fn with(mut self, axis: Axis, place: usize) -> Self {
        self.0[axis as usize] = place;
        self
    }
}

impl Grid {
    /// A grid of x, y, z, data in the default order; context, expert and pipe are 1.
    ///
    /// # Errors
    /// A size of 0, or more than 2^24 ranks.
    pub fn new(x: usize, y: usize, z: usize, data: usize) -> Result<Self, SpecError> {
        Self::of_sizes([x, y, z, 1, 1, data, 1])
    }

    /// A grid with the sizes of [`Axis::ALL`], in the default order.
    ///
    /// # Errors
    /// A size of 0, or more than 2^24 ranks.
    pub fn of_sizes(sizes: [usize; Axis::COUNT]) -> Result<Self, SpecError> {
        for axis in Axis::ALL {
            if sizes[axis as usize] == 0 {
                return Err(SpecError::invalid(
                    axis.name(),
                    0,
                    "an axis has at least one rank",
                    "leave it out or use 1",
                ));
            }
        }
        let grid = Self { sizes, order: AxisOrder::default() };
        let ranks = sizes.iter().try_fold(1_usize, |product, size| product.checked_mul(*size));
        if ranks.is_none_or(|ranks| ranks > MAX_RANKS) {
            let rule = format!("a grid has at most {MAX_RANKS} ranks");
            return Err(SpecError::invalid("grid", grid, rule, "use smaller sizes"));
        }
        Ok(grid)
    }

    /// The same grid with another size of one axis.
    ///
    /// # Errors
    /// As [`Grid::of_sizes`].
    pub fn with(self, axis: Axis, size: usize) -> Result<Self, SpecError> {
        let mut sizes = self.sizes;
        sizes[axis as usize] = size;
        Ok(Self { order: self.order, ..Self::of_sizes(sizes)? })
    }

    /// The same sizes with ranks numbered in another order.
    #[must_use]
    pub fn with_order(self, order: AxisOrder) -> Self {
        Self { order, ..self }
    }

    /// The size of one axis.
    pub fn size(&self, axis: Axis) -> usize {
        self.sizes[axis as usize]
    }

    /// The product of the sizes of several axes.
    pub fn size_of(&self, axes: AxisSet) -> usize {
        axes.iter().map(|axis| self.size(axis)).product()
    }

    /// How many shares the batch is cut into: the (data, expert) ranks.
    pub fn batch_shares(&self) -> usize {
        self.size_of(Axis::BATCH.into_iter().collect())
    }

    /// Those of some axes that have several ranks.
    #[must_use]
    pub fn several(&self, axes: AxisSet) -> AxisSet {
        axes.iter().filter(|axis| self.size(*axis) > 1).collect()
    }

    /// The key of some axes without those of one rank: `x+data`; `world` for all.
    pub fn key(&self, axes: AxisSet) -> String {
        if axes == AxisSet::WORLD { axes.key() } else { self.several(axes).key() }
    }

    /// The sizes above 1, as a grid is written: `x=2,data=4`; of one rank `x=1`.
    pub fn short(&self) -> String {
        let several = self.several(AxisSet::WORLD);
        let named = if several.is_empty() { Axis::X.only() } else { several };
        named.iter().map(|axis| format!("{axis}={}", self.size(axis))).collect::<Vec<_>>().join(",")
    }

    /// The number of ranks.
    pub fn ranks(&self) -> usize {
        self.size_of(AxisSet::WORLD)
    }

    /// The order of the axes in the numbering of ranks.
    pub fn order(&self) -> AxisOrder {
        self.order
    }

    /// Where `rank` stands.
    pub fn coordinate(&self, mut rank: usize) -> Coordinate {
        let mut place = [0; Axis::COUNT];
        for axis in self.order.axes() {
            place[axis as usize] = rank % self.size(axis);
            rank /= self.size(axis);
        }
        Coordinate(place)
    }

    /// The rank at a coordinate.
    pub fn rank(&self, coordinate: Coordinate) -> usize {
        self.order.axes().into_iter().rev().fold(0, |rank, axis| rank * self.size(axis) + coordinate.on(axis))
    }

    /// The ranks that differ from `rank` on `axes` only, itself included; x varies fastest, then y, z, context,
    /// expert, data, pipe.
    pub fn group(&self, rank: usize, axes: AxisSet) -> Vec<usize> {
        self.members(rank, axes).collect()
    }

    /// The same one by one, for who looks at the first of many.
    pub fn members(&self, rank: usize, axes: AxisSet) -> impl Iterator<Item = usize> {
        let grid = *self;
        let place = self.coordinate(rank);
        (0..grid.size_of(axes)).map(move |index| {
            let at = |(place, index): (Coordinate, usize), axis: Axis| {
                (place.with(axis, index % grid.size(axis)), index / grid.size(axis))
            };
            grid.rank(axes.iter().fold((place, index), at).0)
        })
    }

    /// The position of `coordinate` in its group over `axes`, in the order of [`Grid::group`].
    pub fn group_index(&self, coordinate: Coordinate, axes: AxisSet) -> usize {
        axes.iter().rev().fold(0, |index, axis| index * self.size(axis) + coordinate.on(axis))
    }

    /// The number of `coordinate` along `axes`, which are given outermost first: which shard of a value cut over
    /// these axes the rank holds.
    pub fn shard_index(&self, coordinate: Coordinate, axes: &[Axis]) -> usize {
        axes.iter().fold(0, |index, axis| index * self.size(*axis) + coordinate.on(*axis))
    }

    /// Every grid of exactly `ranks` ranks over x, y, z and data, in ascending order of (data, z, y, x).
    pub fn all(ranks: usize) -> Vec<Self> {
        Self::all_over(ranks, Axis::AXONN.into_iter().collect())
    }

    /// Every grid of exactly `ranks` ranks whose other axes than `axes` have size 1, in ascending order of (pipe, data,
    /// expert, context, z, y, x).
    pub fn all_over(ranks: usize, axes: AxisSet) -> Vec<Self> {
        let divisors: Vec<usize> = (1..=ranks).filter(|size| ranks.is_multiple_of(*size)).collect();
        // The sizes that are chosen, and the ranks that are left for the axes further inside.
        let mut chosen = vec![([1; Axis::COUNT], ranks)];
        for axis in axes.iter().rev() {
            let choices = chosen.into_iter().flat_map(|(sizes, left)| {
                let possible = divisors.iter().filter(move |size| left.is_multiple_of(**size));
                possible.map(move |size| {
                    let mut sizes = sizes;
                    sizes[axis as usize] = *size;
                    (sizes, left / size)
                })
            });
            chosen = choices.collect();
        }
        chosen.into_iter().filter(|(_, left)| *left == 1).flat_map(|(sizes, _)| Self::of_sizes(sizes)).collect()
    }
}

impl fmt::Display for Grid {
    /// Context, expert and pipe appear where they are more than 1.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let always = Axis::AXONN;
        let named = Axis::ALL.into_iter().filter(|axis| always.contains(axis) || self.size(*axis) > 1);
        f.write_str(&named.map(|axis| format!("{axis}={}", self.size(axis))).collect::<Vec<_>>().join(","))
    }
}

impl FromStr for Grid {
    type Err = SpecError;

    /// Reads `x=2,y=2,data=2`; axes left out have size 1.
    fn from_str(text: &str) -> Result<Self, SpecError> {
        let syntax = |reason: String| SpecError::Syntax { what: "a grid", text: text.to_owned(), reason };
        let mut sizes = [None; Axis::COUNT];
        for part in text.split(',').map(str::trim) {
            let (name, size) = part
                .split_once('=')
                .ok_or_else(|| syntax(format!("'{part}' is not axis=size; an example is 'x=2,y=2,z=1,data=2'")))?;
            let axis: Axis = name.trim().parse()?;
            let size = size.trim().parse().map_err(|_| {
                syntax(format!("the size of {axis}, '{}', is not a whole number; write e.g. {axis}=2", size.trim()))
            })?;
            if sizes[axis as usize].replace(size).is_some() {
                return Err(syntax(format!("axis {axis} is given twice")));
            }
        }
        Self::of_sizes(sizes.map(|size| size.unwrap_or(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups(grid: &Grid, axis: Axis) -> Vec<Vec<usize>> {
        let mut all: Vec<_> = (0..grid.ranks()).map(|rank| grid.group(rank, axis.only())).collect();
        all.sort();
        all.dedup();
        all
    }

    #[test]
    fn groups_are_those_of_the_axonn_paper() {
        // SC24, section V-B: x pairs (0,1),(2,3).. and y pairs (0,2),(1,3).. on 8 ranks; repeated from rank 8 on 16.
        let grid = Grid::new(2, 2, 2, 1).unwrap();
        assert_eq!(groups(&grid, Axis::X), [[0, 1], [2, 3], [4, 5], [6, 7]]);
        assert_eq!(groups(&grid, Axis::Y), [[0, 2], [1, 3], [4, 6], [5, 7]]);
        assert_eq!(groups(&grid, Axis::Z), [[0, 4], [1, 5], [2, 6], [3, 7]]);
        let grid = Grid::new(2, 2, 2, 2).unwrap();
        assert_eq!(groups(&grid, Axis::X)[4..], [[8, 9], [10, 11], [12, 13], [14, 15]]);
        assert_eq!(groups(&grid, Axis::Y)[4..], [[8, 10], [9, 11], [12, 14], [13, 15]]);
        assert_eq!(groups(&grid, Axis::Data)[0], [0, 8]);
    }

    #[test]
    fn groups_of_expert_and_data_are_those_of_deepspeed() {
        // Tensor pairs side by side; experts over the next ranks, and one replica of each expert in either half.
        let grid: Grid = "x=2,expert=4,data=2".parse().unwrap();
        assert_eq!(groups(&grid, Axis::Expert), [[0, 2, 4, 6], [1, 3, 5, 7], [8, 10, 12, 14], [9, 11, 13, 15]]);
        assert_eq!(groups(&grid, Axis::Data)[..3], [[0, 8], [1, 9], [2, 10]]);
        assert_eq!(grid.group(0, Axis::BATCH.into_iter().collect()), [0, 2, 4, 6, 8, 10, 12, 14]);
        assert_eq!(grid.batch_shares(), 8);
        let shares = (0..16).step_by(2).map(|rank| grid.shard_index(grid.coordinate(rank), &Axis::BATCH));
        assert_eq!(shares.collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5, 6, 7]);
    }

    #[test]
    fn ranks_and_coordinates_are_inverse_in_every_order() {
        for order in ["x,y,z,data", "data,z,y,x", "y,data,x,z"] {
            let grid = Grid::new(2, 3, 2, 2).unwrap().with_order(order.parse().unwrap());
            for rank in 0..grid.ranks() {
                assert_eq!(grid.rank(grid.coordinate(rank)), rank);
            }
        }
        let inner_data = Grid::new(2, 1, 1, 2).unwrap().with_order("data,x,y,z".parse().unwrap());
        assert_eq!(inner_data.group(0, Axis::Data.only()), [0, 1]);
    }

    #[test]
    fn groups_over_several_axes_hold_their_product() {
        let grid = Grid::new(2, 3, 2, 2).unwrap();
        let members = grid.group(5, Axis::X.only().union(Axis::Z.only()));
        assert_eq!(members.len(), 4);
        assert!(members.contains(&5));
        for rank in 0..24 {
            let axes = Axis::X.only().union(Axis::Data.only());
            assert_eq!(grid.group(rank, axes)[grid.group_index(grid.coordinate(rank), axes)], rank);
        }
        assert_eq!(grid.group(5, AxisSet::WORLD), (0..24).collect::<Vec<_>>());
    }

    #[test]
    fn texts_are_read_or_refused() {
        assert_eq!("x=2, data=3".parse::<Grid>().unwrap(), Grid::new(2, 1, 1, 3).unwrap());
        let grid: Grid = "pipe=2,x=2,context=3".parse().unwrap();
        assert_eq!((grid.ranks(), grid.size(Axis::Pipe), grid.size(Axis::Context)), (12, 2, 3));
        assert_eq!(grid.to_string(), "x=2,y=1,z=1,context=3,data=1,pipe=2");
        let grid: Grid = "expert=4,data=2".parse().unwrap();
        assert_eq!(
            (grid, grid.to_string()),
            (grid.to_string().parse().unwrap(), "x=1,y=1,z=1,expert=4,data=2".to_owned())
        );
        for wrong in ["", "x", "x=", "x=a", "x=0", "x=2,x=2", "w=2", "x=-1", "x=16777217", "x=4294967296,y=4294967296"]
        {
            assert!(wrong.parse::<Grid>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn all_grids_of_eight_ranks_are_twenty() {
        assert_eq!(Grid::all(8).len(), 20);
        let four: Vec<String> = Grid::all(2).iter().map(Grid::to_string).collect();
        assert_eq!(four, ["x=2,y=1,z=1,data=1", "x=1,y=2,z=1,data=1", "x=1,y=1,z=2,data=1", "x=1,y=1,z=1,data=2"]);
    }

    #[test]
    fn all_grids_over_other_axes_leave_the_rest_alone() {
        let over = |ranks, axes: &[Axis]| Grid::all_over(ranks, axes.iter().copied().collect());
        // 2^3 over seven axes: 9 choose 6 grids.
        assert_eq!(over(8, &Axis::ALL).len(), 84);
        let pairs: Vec<String> = over(4, &[Axis::X, Axis::Pipe]).iter().map(Grid::to_string).collect();
        assert_eq!(pairs, ["x=4,y=1,z=1,data=1", "x=2,y=1,z=1,data=1,pipe=2", "x=1,y=1,z=1,data=1,pipe=4"]);
        assert_eq!((over(0, &Axis::ALL).len(), over(1, &[Axis::Y]).len()), (0, 1));
    }
}
