//! Which algorithm of its library a device computes each product with.
//!
//! The library names candidates, the device times them ([`time`]), a rule takes one ([`fastest`]), and a record keeps it
//! ([`Record`]): by it all ranks of a process, and later runs on the same device, driver and library, compute the same bits.

mod choice;
mod record;
mod time;

pub use choice::{Measured, fastest};
pub use record::{Record, Wanted};
pub use time::{kind_of, time};
