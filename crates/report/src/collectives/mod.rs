//! Collectives that were measured by several algorithms, as a table and as heat maps.

mod heatmap;
mod table;

pub use heatmap::heatmap;
pub use table::{rows, text};
