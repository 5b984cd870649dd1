//! Small models and layouts for proofs that need particular ones.

use quadrille_spec::{
    Activation, Activations, ElementType, Layout, LayoutRequest, Model, Norm, Overlap, Positions, Recompute,
};
use quadrille_step::StepProgram;

/// A model with biases and a tied head, without dropout: hidden 8 in 4 heads, perceptron 12, vocabulary 13 (no axis
/// divides it), 4 positions.
pub fn model(layers: usize) -> Model {
    Model::gpt(layers, 8, 4, 13, 4).reshaped(|m| {
        m.name = "small".to_owned();
        m.ffn = 12;
    })
}

/// A Llama of these sizes: two groups of two heads, RMS norms, rotary positions, SwiGLU, no biases, a head of its own.
pub fn llama(layers: usize) -> Model {
    model(layers).reshaped(|m| {
        m.hidden = 16;
        m.kv_heads = 2;
        m.tied_head = false;
        m.biases = false;
        m.norm = Norm::Rms;
        m.positions = Positions::Rotary;
        m.activation = Activation::Swiglu;
    })
}

/// A Llama of these sizes with latent attention: keys of six columns, of which all heads share two, values of four.
///
/// # Panics
/// Never: its sizes fit each other.
pub fn latent(layers: usize) -> Model {
    let text = format!(
        "name = 'latent'\nlayers = {layers}\nhidden = 16\nheads = 4\nffn = 12\nvocab = 13\nseq_len = 8\nhead_dim = 6\n\
         value_dim = 4\nquery_latent = 12\nkey_value_latent = 8\nshared_key = 2\npositions = 'rotary'\nrotary_dim = 2\n\
         biases = false\nnorm = 'rms'\nactivation = 'swiglu'\ntied_head = false\n"
    );
    Model::from_toml(&text, &[]).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// A GPT of these sizes whose blocks have eight experts, of which tokens choose two, beside a shared perceptron: routers with
/// both losses, and places for half more than equal loads need, in groups of two tokens.
///
/// # Panics
/// Never: its sizes fit each other.
pub fn mixture_of(layers: usize) -> Model {
    mixture_of_width(layers, 8)
}

/// [`mixture_of`] of another width. In narrow models most tokens choose the same experts.
///
/// # Panics
/// If four heads do not divide the width.
pub fn mixture_of_width(layers: usize, hidden: usize) -> Model {
    let text = format!(
        "name = 'mixture'\nlayers = {layers}\nhidden = {hidden}\nheads = 4\nffn = 12\nvocab = 13\nseq_len = 8\nexperts = 8\n\
         shared_ffn = 4\nrouter_z_loss = 0.01\nbalance_loss = 0.05\ncapacity = 1.5\ncapacity_group = 2\n"
    );
    Model::from_toml(&text, &[]).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// A vision transformer of these sizes, of patches of 7 numbers.
pub fn vit(layers: usize) -> Model {
    model(layers).reshaped(|m| {
        m.vocab = 0;
        m.patch_values = Some(7);
        m.tied_head = false;
        m.causal = false;
    })
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
    layout_with(model, grid, global_batch, |request| {
        (request.activations, request.overlap, request.microbatch) = (activations, overlap, Some(microbatch));
    })
}

/// A layout of whole sequences in f64 with the choices that `choose` makes.
///
/// # Panics
/// If the model cannot be trained with it.
pub fn layout_with(model: &Model, grid: &str, global_batch: usize, choose: impl FnOnce(&mut LayoutRequest)) -> Layout {
    let plain = LayoutRequest::new(grid.parse().expect("a grid"), global_batch);
    let mut request = LayoutRequest { dtype: ElementType::F64, ..plain };
    choose(&mut request);
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
    built(model, &layout(model, grid, activations, overlap, global_batch, microbatch))
}

/// The program of [`layout_with`].
///
/// # Panics
/// If the model cannot be trained with it.
pub fn program_with(
    model: &Model,
    grid: &str,
    global_batch: usize,
    choose: impl FnOnce(&mut LayoutRequest),
) -> StepProgram {
    built(model, &layout_with(model, grid, global_batch, choose))
}

/// The program of a layout.
///
/// # Panics
/// If it cannot be built.
pub fn built(model: &Model, layout: &Layout) -> StepProgram {
    StepProgram::new(model, layout).unwrap_or_else(|error| panic!("{}: {error}", layout.grid))
}

/// `program` with other choices of its layout, which must be possible.
///
/// # Panics
/// If it cannot be built.
pub fn rebuilt(program: &StepProgram, choose: impl FnOnce(&mut Layout)) -> StepProgram {
    let mut layout = program.layout.clone();
    choose(&mut layout);
    built(&program.model, &layout)
}

/// `program` with other recomputation; `keep_communicated`: communication-aware.
///
/// # Panics
/// If it cannot be built.
pub fn recomputed(program: &StepProgram, recompute: Recompute, keep_communicated: bool) -> StepProgram {
    rebuilt(program, |layout| (layout.recompute, layout.keep_communicated) = (recompute, keep_communicated))
}
