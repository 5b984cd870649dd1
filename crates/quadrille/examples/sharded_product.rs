//! One linear layer by hand on a mesh of 2x2x2 ranks: what every program of a layout is made of.
//!
//! `C = A B`, with A cut over z (rows) and y (columns), B over y and z (rows) and x (columns). Each rank gathers B over z,
//! multiplies what it has, and adds up over y. C lies over z (rows) and x (columns).
//!
//! `cargo run --release -p quadrille --example sharded_product`

use std::error::Error;

use quadrille::comm::{JobOptions, RankContext, Reduction, run_ranks};
use quadrille::prelude::*;

const ROWS: usize = 8;
const INNER: usize = 8;
const COLUMNS: usize = 4;

/// An element of A, and of B.
fn a(row: usize, column: usize) -> f64 {
    (row * INNER + column) as f64 % 7.0 - 3.0
}

fn b(row: usize, column: usize) -> f64 {
    (row * COLUMNS + column) as f64 % 5.0 - 2.0
}

/// What one rank does; its part of C, which begins at row `z ROWS/2` and column `x COLUMNS/2`.
fn product(context: &RankContext, grid: Grid) -> Result<Vec<f64>, Box<dyn Error + Send + Sync>> {
    let place = grid.coordinate(context.rank());
    let [x, y, z] = [Axis::X, Axis::Y, Axis::Z].map(|axis| place.on(axis));
    let group = |name: &str, axis| context.group(name, &grid.group(context.rank(), [axis].into_iter().collect()));
    let over_y = group("y", Axis::Y)?;
    let over_z = group("z", Axis::Z)?;
    let rows = ROWS / 2;
    let inner = INNER / 2;
    let columns = COLUMNS / 2;

    // A quarter of B: of the rows of this y, the half of this z.
    let shard: Vec<f64> = (0..inner / 2 * columns)
        .map(|at| b(y * inner + z * inner / 2 + at / columns, x * columns + at % columns))
        .collect();
    let (_, b_block) = context.all_gather(&over_z, shard, vec![0.0; inner * columns]).wait()?;

    let partial: Vec<f64> = (0..rows * columns)
        .map(|at| {
            let row = at / columns;
            let column = at % columns;
            (0..inner).map(|k| a(z * rows + row, y * inner + k) * b_block[k * columns + column]).sum()
        })
        .collect();
    Ok(context.all_reduce(&over_y, Reduction::Sum, partial).wait()?)
}

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let grid: Grid = "x=2,y=2,z=2".parse()?;
    let parts = run_ranks(&JobOptions::new(grid.ranks()), |context| product(context, grid))?;
    for (rank, part) in parts.iter().enumerate() {
        let place = grid.coordinate(rank);
        let first_row = place.on(Axis::Z) * ROWS / 2;
        let first_column = place.on(Axis::X) * COLUMNS / 2;
        for (at, element) in part.iter().enumerate() {
            let row = first_row + at / (COLUMNS / 2);
            let column = first_column + at % (COLUMNS / 2);
            let serial: f64 = (0..INNER).map(|k| a(row, k) * b(k, column)).sum();
            assert_eq!(*element, serial, "rank {rank}, row {row}, column {column}");
        }
        println!("rank {rank} has rows {first_row}.. and columns {first_column}.. of C, as the serial product");
    }
    Ok(())
}
