//! Which tokens are a sample: windows of files, each once in an epoch, in an order that nobody stores.

mod goldfish;
mod mixture;
mod permutation;
mod split;
mod uniform;
mod windows;

pub use goldfish::Goldfish;
pub use mixture::Mixture;
pub use permutation::Permutation;
pub use split::split;
pub use uniform::{SampleIndex, fill_batch};
pub use windows::{Documents, SampleShape, Windows};
