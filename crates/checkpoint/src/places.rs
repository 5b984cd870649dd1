//! Finds the tiles that hold a part of a row.

use std::ops::Range;

use crate::tile::Place;

/// Tiles of a leaf.
const LEAF: usize = 4;

/// A tree of rectangles that hold each other: neighbouring tiles are in the same branch. It takes memory in proportion to
/// the tiles, however they lie, and a look-up visits few of them when they do not overlap.
#[derive(Debug, Default)]
pub(crate) struct Places {
    /// A node is followed by its first branch.
    nodes: Vec<Node>,
    /// Tiles, in the order of the leaves.
    tiles: Vec<u32>,
}

#[derive(Debug)]
struct Node {
    rows: Range<usize>,
    cols: Range<usize>,
    /// Of a leaf, where its tiles are; empty otherwise.
    tiles: Range<usize>,
    /// The node after all of its branches.
    after: usize,
}

impl Places {
    /// A tree of the tiles `ids`, which lie at `place`.
    pub fn new(mut ids: Vec<u32>, place: &impl Fn(u32) -> Place) -> Self {
        let mut tree = Self { nodes: Vec::new(), tiles: Vec::with_capacity(ids.len()) };
        if !ids.is_empty() {
            tree.add(&mut ids, place);
        }
        tree
    }

    pub fn is_empty(&self) -> bool {
        self.tiles.is_empty()
    }

    /// Ids are not empty.
    fn add(&mut self, ids: &mut [u32], place: &impl Fn(u32) -> Place) {
        let span = |from: &dyn Fn(&Place) -> usize, count: &dyn Fn(&Place) -> usize| {
            let places = || ids.iter().map(|id| place(*id));
            let first = places().map(|place| from(&place)).min().unwrap_or(0);
            let last = places().map(|place| from(&place)).max().unwrap_or(0);
            (first..places().map(|place| from(&place) + count(&place)).max().unwrap_or(0), last - first)
        };
        let (rows, row_spread) = span(&|place| place.row, &|place| place.rows);
        let (cols, col_spread) = span(&|place| place.col, &|place| place.cols);
        let at = self.nodes.len();
        self.nodes.push(Node { rows, cols, tiles: 0..0, after: 0 });
        if ids.len() <= LEAF {
            let start = self.tiles.len();
            self.tiles.extend_from_slice(ids);
            self.nodes[at].tiles = start..self.tiles.len();
        } else {
            let middle = ids.len() / 2;
            let by_row = row_spread >= col_spread;
            ids.select_nth_unstable_by_key(middle, |id| if by_row { place(*id).row } else { place(*id).col });
            let (first, second) = ids.split_at_mut(middle);
            self.add(first, place);
            self.add(second, place);
        }
        self.nodes[at].after = self.nodes.len();
    }

    /// The tiles that may hold some of `cols` of `row`; among them are all that do.
    pub fn near(&self, row: usize, cols: Range<usize>) -> impl Iterator<Item = u32> {
        let mut at = 0;
        std::iter::from_fn(move || {
            while let Some(node) = self.nodes.get(at) {
                let hit = node.rows.contains(&row) && node.cols.start < cols.end && cols.start < node.cols.end;
                at = if hit && node.tiles.is_empty() { at + 1 } else { node.after };
                if hit && !node.tiles.is_empty() {
                    return Some(self.tiles[node.tiles.clone()].iter().copied());
                }
            }
            None
        })
        .flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A matrix of `rows x cols` tiles of 2 x 3 numbers, and its tree.
    fn grid(rows: usize, cols: usize) -> (Vec<Place>, Places) {
        let place = |at: usize| Place { row: at / cols * 2, col: at % cols * 3, rows: 2, cols: 3 };
        let places: Vec<Place> = (0..rows * cols).map(place).collect();
        let tree = Places::new((0..places.len() as u32).collect(), &|id| places[id as usize]);
        (places, tree)
    }

    #[test]
    fn all_tiles_of_a_part_of_a_row_are_found_and_few_others() {
        for (rows, cols) in [(1, 1), (1, 9), (9, 1), (5, 7), (300, 300)] {
            let (places, tree) = grid(rows, cols);
            for (row, part) in
                [(0, 0..1), (rows, 1..4), (2 * rows - 1, 3 * cols - 1..3 * cols), (rows / 2, 0..3 * cols)]
            {
                let found: Vec<u32> = tree.near(row, part.clone()).collect();
                let holds = |place: &Place| {
                    (place.row..place.row + 2).contains(&row) && place.col < part.end && part.start < place.col + 3
                };
                let held: Vec<u32> = (0..).zip(&places).filter(|(_, place)| holds(place)).map(|(id, _)| id).collect();
                assert!(held.iter().all(|id| found.contains(id)), "{rows} x {cols}: {row}, {part:?}");
                assert!(found.len() <= 4 * held.len() + 12, "{} for {}", found.len(), held.len());
            }
        }
    }

    #[test]
    fn nothing_is_found_outside() {
        let (_, tree) = grid(4, 4);
        assert_eq!(tree.near(8, 0..12).count() + tree.near(0, 12..20).count(), 0);
        assert!(Places::default().is_empty() && Places::default().near(0, 0..1).next().is_none());
    }
}
