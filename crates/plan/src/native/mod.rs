//! The search over every layout, priced by [`quadrille_cost::native`].
//!
//! All sizes of six axes, all placements of ranks on nodes that an order of the axes can express, schedules and chunks,
//! microbatches, recomputation, ZeRO, activations, linear algorithms, overlap chunks and how long gathered weights are
//! kept. Layouts are those that `Layout::new` accepts; those that cannot differ in price are tried once. Bounds leave
//! out what cannot be among the wanted, without losing any of it.
//!
//! A [`PlanRequest`] is the question as plain data; it is validated once, into a [`Question`]. An [`Answer`] holds the layouts found on
//! one number of devices or on several, and the reasons; a [`Search`] is one look at all layouts of a number of devices.

mod answer;
mod bounds;
mod budget;
mod by_bounds;
mod changes;
mod constraint;
mod count;
mod cuts;
mod derived;
pub mod explain;
mod explanation;
mod feasible;
mod front;
pub mod hardware;
mod in_time;
mod legal;
mod memory_remedies;
mod nothing;
mod placement;
mod pool;
mod question;
mod ranking;
mod refusal;
mod request;
mod search;
mod setting;
mod simplicity;
mod space;
mod survivors;
pub mod sweep;
mod visit;

pub use answer::{Answer, RefusedBy, Wanted};
pub use budget::{Budget, Currency, Deadline};
pub use changes::Change;
pub use constraint::{Bound, Range};
pub use count::{Counts, Refused};
pub use derived::Derived;
pub use explanation::Explanation;
pub use feasible::Feasible;
pub use in_time::{InDays, said_days};
pub use legal::Rules;
pub use memory_remedies::{LeastStates, MemoryRemedy};
pub use nothing::Nothing;
pub use placement::{check_node, devices_of_nodes};
pub use question::{Cancel, Question, Reserve};
pub use ranking::Ranked;
pub use request::{Assignments, ClusterSource, ModelSource, PlanRequest, Resolved, framework, part_of};
pub use search::{Found, Search};
pub use setting::Setting;
pub use simplicity::{Complexity, TOLERANCE};
pub use space::{Runner, Space};
pub use sweep::Sweep;
