//! Searches layouts of a model on a cluster, and explains and exports what it finds.
//!
//! [`native`] searches every layout that the rules of layouts allow and ranks them by the seconds of a step in the native
//! model ([`quadrille_cost::native`]), with memory, fronts, and why a layout is as fast as it is. [`best`] chooses the grid of
//! a run that leaves it open, by the same prices; [`Grids`] are all of a number of ranks. [`export`] writes layouts as other frameworks' flags and configurations, by
//! the table of [`frameworks`] of their options.
//! [`goodput`] says how much of a long training failures leave.
//! [`local`] holds prices against runs of this machine, by the [`statistics`] of predictions and measurements.
//!
//! ```
//! use quadrille_plan::best;
//! use quadrille_spec::{Cluster, LayoutRequest, Model};
//!
//! let model = Model::preset("gpt2-124m")?;
//! let cluster = Cluster::preset("dgx-a100")?;
//! // The grid of the request does not count but for the order of its axes.
//! let request = LayoutRequest::new("x=1".parse()?, 16);
//! let (layout, price) = best(&model, &cluster, 8, &request)?;
//! assert_eq!(layout.grid.ranks(), 8);
//! assert!(Some(price.memory.total()) <= cluster.device_memory);
//! # Ok::<(), quadrille_cost::native::PriceError>(())
//! ```

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic))]
#![cfg_attr(
    not(test),
    deny(clippy::disallowed_methods, clippy::disallowed_types, clippy::print_stdout, clippy::print_stderr)
)]

mod best;
pub mod export;
pub mod frameworks;
pub mod goodput;
mod grids;
pub mod local;
pub mod native;
pub mod statistics;

pub use best::best;
pub use grids::{Grids, NoGrid, Skipped};
