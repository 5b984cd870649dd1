//! The serial model at the weights that a program's parameters are drawn with.

use quadrille_engine::{ForwardOptions, InitialValues, Weights};

/// Weights of proofs: biases and norms are drawn too.
pub fn drawn(seed: u64) -> Weights {
    Weights::Drawn { seed, initial: InitialValues::Perturbed }
}

/// A run with so many threads for each rank.
pub fn forward_options(threads: usize) -> ForwardOptions {
    ForwardOptions { threads, ..ForwardOptions::default() }
}
