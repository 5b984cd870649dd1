//! Small models and layouts for proofs that need particular ones.

use quadrille_spec::{Activations, ElementType, Layout, LayoutRequest, Model, Overlap};
use quadrille_step::StepProgram;

/// A model with biases and a tied head, without dropout: hidden 8 in 4 heads, perceptron 12, vocabulary 13 (no axis
/// divides it), 4 positions.
pub fn model(layers: usize) -> Model {
    Model {
        name: "small".to_owned(),
        layers,
        hidden: 8,
        heads: 4,
        ffn: 12,
        vocab: 13,
        seq_len: 4,
        tied_head: true,
        biases: true,
        dropout: 0.0,
        norm_epsilon: 1e-5,
    }
}

/// A layout of whole sequences in f64; `global_batch` sequences in passes of `microbatch`.
///
/// # Panics
/// If the model cannot be trained with it.
pub fn layout(
    model: &Model,
    grid: &str,
    activations: Activations,
    overlap: Overlap,
    global_batch: usize,
    microbatch: usize,
) -> Layout {
    let request = LayoutRequest {
        grid: grid.parse().expect("a grid"),
        per_node: None,
        activations,
        overlap,
        global_batch,
        microbatch: Some(microbatch),
        seq_len: None,
        dtype: ElementType::F64,
    };
    Layout::new(model, &request).unwrap_or_else(|error| panic!("{grid}: {error}"))
}

/// The program of [`layout`].
///
/// # Panics
/// If the model cannot be trained with it.
pub fn program(
    model: &Model,
    grid: &str,
    activations: Activations,
    overlap: Overlap,
    global_batch: usize,
    microbatch: usize,
) -> StepProgram {
    let layout = layout(model, grid, activations, overlap, global_batch, microbatch);
    StepProgram::new(model, &layout).unwrap_or_else(|error| panic!("{grid}: {error}"))
}
