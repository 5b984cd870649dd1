//! Prices of step programs.
//!
//! [`simulation`] runs a step program by discrete events on a machine that says how long each operation takes, and draws its
//! timeline; [`trace`] writes it for trace viewers. [`native`] is the machine of a described cluster under a framework, with
//! which a layout has a price: the seconds of its step and the bytes of its fullest rank. An [`Explanation`] has both.
//!
//! ```
//! use quadrille_cost::native::{Framework, Problem};
//! use quadrille_spec::{Cluster, Layout, LayoutRequest, Model};
//!
//! let model = Model::preset("gpt2-124m")?;
//! let cluster = Cluster::preset("dgx-a100")?;
//! let problem = Problem::new(&model, &cluster, Framework::QUADRILLE, 16, model.seq_len)?;
//! let price = |grid: &str| problem.price_layout(&Layout::new(&model, &LayoutRequest::new(grid.parse()?, 16))?);
//! let whole = price("data=8")?;
//! let cut = price("x=4,data=2")?;
//! assert!(whole.seconds < cut.seconds, "a small model needs no tensor parallelism");
//! assert!(whole.memory.total() > cut.memory.total());
//! # Ok::<(), quadrille_cost::native::PriceError>(())
//! ```

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic))]
#![cfg_attr(
    not(test),
    deny(clippy::disallowed_methods, clippy::disallowed_types, clippy::print_stdout, clippy::print_stderr)
)]

mod explained;
pub mod native;
pub mod simulation;
pub mod trace;

pub use explained::{Explanation, explain, simulate_step};
