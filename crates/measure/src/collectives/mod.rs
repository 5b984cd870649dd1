//! Collectives by every algorithm, beside what the transport brings and a plain copy.
//!
//! A [`CollectivesSpec`] says what is measured, [`Cases`] are all of it, [`Cases::measure`] runs them on all ranks. Where ranks
//! are processes, all of them measure the same.

mod cases;
mod measure;
mod rates;
mod sizes;

pub use cases::{Case, Cases, CollectivesSpec, ELEMENT_BYTES};
pub use measure::{KINDS, Runs, kind};
pub(crate) use measure::{Run, time};
pub use rates::Measured;
pub use sizes::Sizes;
