//! Rotary positions.

use quadrille_tensor::GroupShape;

use super::indices::Positions;
use crate::array::Array;
use crate::queue::{Done, Queue};
use crate::words::words;

impl Queue<'_> {
    /// See [`quadrille_tensor::rotate`]; `table` [_, 2 * pairs] has of each position the cosines of its angles, then their
    /// sines.
    pub fn rotate(&self, shape: GroupShape, pairs: usize, table: Array, at: Positions, x: Array, back: bool) -> Done {
        let GroupShape { rows, groups, heads, head_dim, .. } = shape;
        assert_eq!((x.len, table.element), (rows * groups * shape.group(), x.element.real()));
        assert!(2 * pairs <= head_dim, "{pairs} pairs of heads of {head_dim} columns");
        let turn = words![rows, groups, shape.group(), heads + 1, head_dim, pairs, back];
        let words = [turn, words![at, table, x]].concat();
        self.each("rotate", x.element.format(), rows * groups * (heads + 1) * pairs, &words)
    }
}
