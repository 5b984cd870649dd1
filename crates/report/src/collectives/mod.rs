//! Collectives that were measured by several algorithms, as a table.

mod table;

pub use table::{rows, text};
