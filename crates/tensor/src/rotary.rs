//! Rotary positions (Su et al. 2021), halves of a head paired as in Llama's released code.
//!
//! Letters: d = head dimension, p = pairs that turn; pair i of a head, its numbers i and i + p, turns by the angle
//! position * frequency i. Numbers from 2 p on stay.

use crate::dispatch::vectorised;
use crate::element::Element;
use crate::pool::Pool;
use crate::shape::GroupShape;
use crate::stored::Stored;

/// Cosines and sines of the angles of some positions.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Rotary<T> {
    /// d.
    head_dim: usize,
    /// p.
    pairs: usize,
    /// By row of the table, p cosines and then p sines.
    table: Vec<T>,
}

impl<T: Element> Rotary<T> {
    /// The table for heads of `head_dim` numbers whose first ones, two for each frequency, turn; a row per position.
    pub fn new(head_dim: usize, frequencies: &[f64], positions: impl Iterator<Item = usize>) -> Self {
        let pairs = frequencies.len();
        assert!(2 * pairs <= head_dim, "heads of {head_dim} numbers, {pairs} pairs");
        let mut table = Vec::new();
        for position in positions {
            let angles = || frequencies.iter().map(|frequency| position as f64 * frequency);
            table.extend(angles().map(|angle| T::from_f64(angle.cos())));
            table.extend(angles().map(|angle| T::from_f64(angle.sin())));
        }
        Rotary { head_dim, pairs, table }
    }

    /// The table `[rows, 2 p]`: of each position the cosines of its angles, then their sines.
    pub fn table(&self) -> &[T] {
        &self.table
    }

    fn row(&self, row: usize) -> (&[T], &[T]) {
        self.table[row * 2 * self.pairs..(row + 1) * 2 * self.pairs].split_at(self.pairs)
    }
}

/// Turns the queries and keys of x [rows, groups * ((heads + 1) * d + v)], of each group `heads` queries,
/// the key and the value, by the angles in row at(r) of the table, or `back` by their negatives;
/// returns how many elements queries and keys have. Values stay.
pub fn rotate<S: Stored>(
    pool: &Pool,
    shape: GroupShape,
    rotary: &Rotary<S::Real>,
    at: impl Fn(usize) -> usize + Sync,
    x: &mut [S],
    back: bool,
) -> usize {
    let GroupShape { rows, groups, heads, head_dim: d, .. } = shape;
    let turning = 2 * rotary.pairs;
    assert_eq!(d, rotary.head_dim, "angles of other heads");
    let cols = groups * shape.group();
    assert_eq!(x.len(), rows * cols);
    if cols == 0 {
        return 0;
    }
    let sign = if back { -S::Real::ONE } else { S::Real::ONE };
    let per_piece = pool.rows_per_piece(rows, cols);
    pool.each(x.chunks_mut(per_piece * cols).enumerate(), |(piece, x)| {
        for (i, x) in x.chunks_exact_mut(cols).enumerate() {
            let (cosines, sines) = rotary.row(at(piece * per_piece + i));
            vectorised(
                #[inline(always)]
                || {
                    for group in x.chunks_exact_mut(shape.group()) {
                        group[..(heads + 1) * d]
                            .chunks_exact_mut(d)
                            .for_each(|head| turn(&mut head[..turning], cosines, sines, sign));
                    }
                },
            );
        }
    });
    rows * groups * (heads + 1) * d
}

/// Turns one head.
#[inline(always)]
fn turn<S: Stored>(head: &mut [S], cosines: &[S::Real], sines: &[S::Real], sign: S::Real) {
    let (first, second) = head.split_at_mut(cosines.len());
    for (((a, b), cos), sin) in first.iter_mut().zip(second).zip(cosines).zip(sines) {
        let sin = *sin * sign;
        let x = a.widen();
        let y = b.widen();
        (*a, *b) = (S::rounded(x * *cos - y * sin), S::rounded(y * *cos + x * sin));
    }
}
