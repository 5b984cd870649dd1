//! The serial model at the weights that a program's parameters are drawn with.

use std::collections::BTreeMap;

use quadrille_engine::{ForwardOptions, InitialValues, Weights, initial_tensor};
use quadrille_step::StepProgram;

/// Weights of proofs: biases and norms are drawn too.
pub fn drawn(seed: u64) -> Weights {
    Weights::Drawn { seed, initial: InitialValues::Perturbed }
}

/// The whole tensors of [`drawn`], by name.
pub fn tensors(program: &StepProgram, seed: u64) -> BTreeMap<String, Vec<f64>> {
    let parameters = program.parameters().map(|(_, parameter)| parameter);
    parameters.map(|each| (each.name.clone(), initial_tensor(each, seed, InitialValues::Perturbed))).collect()
}

/// A run with so many threads for each rank.
pub fn forward_options(threads: usize) -> ForwardOptions {
    ForwardOptions { threads, ..ForwardOptions::default() }
}
