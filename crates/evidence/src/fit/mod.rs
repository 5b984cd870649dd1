//! Fits of the numbers that a price depends on, on step times that others have published.
//!
//! Minimised is the mean over sources of the mean of |ln(predicted / measured)|, each source with the root of its samples' number as
//! its weight, by Gauss and Newton's steps with damping (Marquardt 1963) on squares that are weighted anew by the inverse of the last
//! differences, over the logarithms of the numbers. Nothing is random: the same rows give the same numbers.

mod cross;
mod parameter;
mod sample;
mod solve;

pub use cross::{Crossed, cross, fits, on_all};
pub use sample::{Sample, samples};
