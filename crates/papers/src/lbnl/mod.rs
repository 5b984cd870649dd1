//! The performance model of Subramanian et al., "Comprehensive Performance Modeling and System Design Insights for
//! Foundation Models" (arXiv 2410.00273): a training step as their public code prices it (revision `54278b0`), digit
//! for digit.
//!
//! A roofline for every layer of a block, ring collectives over a fast and a slow network, 1F1B pipelines, data
//! parallelism with sharded optimizer states. No embedding, head or loss. What is odd about it is kept: shares that
//! round down, links between fast domains that cost nothing as soon as two stages share one, a norm that divides the
//! sequence length where the embedding is meant. Nothing else builds on it.
//!
//! A [`Block`] depends on the [`Cut`] alone, so that a search prices it once for all sizes of data and pipeline.

mod configuration;
mod layers;
mod price;
mod search;
mod shape;
mod sizes;
mod system;
mod table;

pub use configuration::{Configuration, Cut, Strategy};
pub use layers::{Block, Layer, Pass, Time, Unit, layers};
pub use price::{Price, price};
pub use search::{Found, PUBLISHED_BATCH, Ranked, Search, training_steps};
pub use shape::Shape;
pub use system::{Collective, Group, Network, System};
pub use table::{INPUTS, PricedLine, TableError, price_table};
