//! Random models on random layouts: everything that a user may choose, in sizes that the serial model can follow.

use proptest::prelude::*;
use proptest::sample::{Index, select};
use quadrille_spec::{Activations, Axis, ElementType, Grid, Layout, LayoutRequest, Model, Overlap};
use quadrille_step::StepProgram;

/// Ranks of the largest grid.
const MAX_RANKS: usize = 16;
/// Sequences of the largest step: the serial model has plain loops.
const MAX_BATCH: usize = 36;

/// A model, a layout that it can be trained with, and how the run is done.
#[derive(Debug, Clone)]
pub struct Case {
    /// The model.
    pub model: Model,
    /// Its layout, in f64.
    pub layout: Layout,
    /// Threads of each rank.
    pub threads: usize,
    /// Keys weights, tokens and dropout.
    pub seed: u64,
    /// Largest gradient norm.
    pub clip: Option<f64>,
}

impl Case {
    /// Its step program, with values of type `dtype`.
    ///
    /// # Panics
    /// If it cannot be built: [`Layout::new`] has accepted it.
    pub fn program(&self, dtype: ElementType) -> StepProgram {
        let layout = Layout { dtype, ..self.layout.clone() };
        StepProgram::new(&self.model, &layout).unwrap_or_else(|error| panic!("{self:?}: {error}"))
    }
}

/// The sizes of a case before they are made to fit each other.
#[derive(Debug, Clone)]
struct Sizes {
    grid: Grid,
    layers: usize,
    heads_per_x: usize,
    hidden: Index,
    ffn: Index,
    vocab: usize,
    seq_len: usize,
    seq_len_cut: usize,
    /// Sequences per (z, and y if scattered) rank in a pass.
    sequences: usize,
    microbatches: usize,
}

/// What a user switches on and off.
#[derive(Debug, Clone)]
struct Switches {
    scattered: bool,
    overlap: Overlap,
    tied_head: bool,
    biases: bool,
    dropout: f64,
}

/// Grids of up to 16 ranks, four in five with several axes above 1, in any order of axes; hidden 12 to 48 and not always
/// a power of two, perceptron not always four times as wide, prime vocabularies (also smaller than the ranks that share
/// them), sequences shorter than the model takes, one to three microbatches, every switch.
pub fn cases() -> impl Strategy<Value = Case> {
    let run = (1..=2_usize, any::<u64>(), select(vec![None, Some(0.05), Some(100.0)]));
    (sizes(), switches(), run).prop_filter_map(
        "sizes that fit each other",
        |(sizes, switches, (threads, seed, clip))| {
            let model = model(&sizes, &switches)?;
            let layout = layout(&sizes, &switches, &model)?;
            let probabilities = layout.global_batch * layout.seq_len * model.heads;
            // Where dropout may hit every attention probability, whole gradients are zero: nothing to compare with.
            (model.dropout == 0.0 || probabilities > 32).then_some(Case { model, layout, threads, seed, clip })
        },
    )
}

fn sizes() -> impl Strategy<Value = Sizes> {
    let in_model = (1..=2_usize, 1..=4_usize, any::<Index>(), any::<Index>());
    let vocab = select(vec![7, 11, 13, 17, 29, 37, 53]);
    let in_step = (2..=7_usize, 0..=2_usize, 1..=2_usize, 1..=3_usize);
    (grids(), in_model, vocab, in_step).prop_map(
        |(grid, (layers, heads_per_x, hidden, ffn), vocab, (seq_len, seq_len_cut, sequences, microbatches))| Sizes {
            grid,
            layers,
            heads_per_x,
            hidden,
            ffn,
            vocab,
            seq_len,
            seq_len_cut,
            sequences,
            microbatches,
        },
    )
}

fn switches() -> impl Strategy<Value = Switches> {
    (any::<bool>(), any::<[bool; 3]>(), any::<bool>(), any::<bool>(), select(vec![0.0, 0.1, 0.4])).prop_map(
        |(scattered, [all_reduce, reduce_scatter, all_gather], tied_head, biases, dropout)| Switches {
            scattered,
            overlap: Overlap { all_reduce, reduce_scatter, all_gather },
            tied_head,
            biases,
            dropout,
        },
    )
}

fn grids() -> impl Strategy<Value = Grid> {
    let (several, few): (Vec<Grid>, Vec<Grid>) = (1..=MAX_RANKS)
        .flat_map(Grid::all)
        .filter(|grid| Axis::ALL.iter().all(|axis| grid.size(*axis) <= 5))
        .partition(|grid| Axis::ALL.iter().filter(|axis| grid.size(**axis) > 1).count() > 1);
    let order = Just(Axis::ALL.map(Axis::name)).prop_shuffle();
    (prop_oneof![4 => select(several), 1 => select(few)], order)
        .prop_map(|(grid, order)| grid.with_order(order.join(",").parse().expect("every axis once")))
}

/// A multiple of `unit` in `from..=to`.
fn multiple(index: &Index, unit: usize, from: usize, to: usize) -> Option<usize> {
    let multiples: Vec<usize> = (1..=to / unit).map(|n| n * unit).filter(|size| *size >= from).collect();
    (!multiples.is_empty()).then(|| *index.get(&multiples))
}

fn model(sizes: &Sizes, switches: &Switches) -> Option<Model> {
    let (x, y) = (sizes.grid.size(Axis::X), sizes.grid.size(Axis::Y));
    let heads = x * sizes.heads_per_x;
    let unit = (1..=y).map(|n| n * heads).find(|size| size.is_multiple_of(y))?;
    Some(Model {
        name: "random".to_owned(),
        layers: sizes.layers,
        hidden: multiple(&sizes.hidden, unit, 12, 48)?,
        heads,
        ffn: multiple(&sizes.ffn, x, 9, 80)?,
        vocab: sizes.vocab,
        seq_len: sizes.seq_len,
        tied_head: switches.tied_head,
        biases: switches.biases,
        dropout: switches.dropout,
        norm_epsilon: 1e-5,
    })
}

fn layout(sizes: &Sizes, switches: &Switches, model: &Model) -> Option<Layout> {
    let size = |axis| sizes.grid.size(axis);
    let whole = if switches.scattered { size(Axis::Y) } else { 1 };
    let microbatch = size(Axis::Z) * whole * sizes.sequences;
    let request = LayoutRequest {
        grid: sizes.grid,
        per_node: None,
        activations: if switches.scattered { Activations::Scattered } else { Activations::Replicated },
        overlap: switches.overlap,
        global_batch: size(Axis::Data) * microbatch * sizes.microbatches,
        microbatch: Some(microbatch),
        seq_len: Some(sizes.seq_len.saturating_sub(sizes.seq_len_cut).max(1)),
        dtype: ElementType::F64,
    };
    Layout::new(model, &request).ok().filter(|layout| layout.global_batch <= MAX_BATCH)
}
