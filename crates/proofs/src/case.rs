//! Random models on random layouts: everything that a user may choose, in sizes that the serial model can follow.

use proptest::prelude::*;
use proptest::sample::{Index, select};
use quadrille_spec::{
    Activations, Algorithm, Axis, Choice, Classic, ElementType, Grid, KeepWeights, Layout, LayoutRequest, Linear,
    Model, Offload, Origins, Overlap, Recompute, Schedule, Sparsity, Tier, Zero,
};
use quadrille_step::{Practice, StepProgram};
use quadrille_verify::VerifyOptions;

use crate::family::{Family, families};

/// Ranks of the largest grid.
const MAX_RANKS: usize = 16;
/// Sequences of the largest step: the serial model has plain loops.
const MAX_BATCH: usize = 48;

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
    /// By which algorithms collectives run; the layout says on which nodes.
    pub collectives: Choice,
    /// How much of the matrices of blocks is pruned, if it is.
    pub sparsity: Option<Sparsity>,
}

impl Case {
    /// Its step program, with values of type `dtype`.
    ///
    /// # Panics
    /// If it cannot be built: [`Layout::new`] has accepted it.
    pub fn program(&self, dtype: ElementType) -> StepProgram {
        let layout = self.layout_in(dtype);
        self.pruned(self.program_of(&layout, Practice::of(&layout)))
    }

    /// The program of a whole model, pruned as the case says.
    ///
    /// # Panics
    /// As [`Case::program`].
    pub fn pruned(&self, whole: StepProgram) -> StepProgram {
        let options = VerifyOptions { sparsity: self.sparsity, ..VerifyOptions::new(1, self.seed) };
        options.pruned(whole).unwrap_or_else(|error| panic!("{self:?}: {error}"))
    }

    /// Its layout, with values of this type and the usual type of gradients.
    pub fn layout_in(&self, dtype: ElementType) -> Layout {
        self.layout.clone().stored_in(dtype)
    }

    /// The same by another practice.
    ///
    /// # Panics
    /// As [`Case::program`].
    pub fn program_by(&self, practice: Practice, dtype: ElementType) -> StepProgram {
        self.program_of(&self.layout_in(dtype), practice)
    }

    fn program_of(&self, layout: &Layout, practice: Practice) -> StepProgram {
        StepProgram::with_practice(&self.model, layout, practice).unwrap_or_else(|error| panic!("{self:?}: {error}"))
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
    family: Family,
    /// Sequences per rank that cuts them, in an overlap chunk.
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
    more: MoreSwitches,
}

/// What the other axes and memory switches add.
#[derive(Debug, Clone)]
struct MoreSwitches {
    linear: Linear,
    panels: usize,
    overlap_chunks: usize,
    schedule: Schedule,
    chunks: usize,
    /// Microbatches in a group beyond the fewest; and what the rows of the vocabulary are a multiple of.
    group: Index,
    /// Blocks that the pieces in the middle give to the first, or take from it.
    uneven: bool,
    recompute: Recompute,
    keep_communicated: bool,
    zero: Zero,
    keep_weights: KeepWeights,
    /// Elements of a bucket of states in the host's memory; `None`: they are on the device.
    bucket: Option<usize>,
    /// Whether they are updated while gradients are reduced.
    optimizer_overlap: bool,
}

impl MoreSwitches {
    fn plain(group: Index) -> Self {
        Self {
            linear: Linear::Pmm,
            panels: 1,
            overlap_chunks: 1,
            schedule: Schedule::OneForwardOneBackward,
            chunks: 1,
            group,
            uneven: false,
            recompute: Recompute::None,
            keep_communicated: false,
            zero: Zero::Off,
            keep_weights: KeepWeights::Use,
            bucket: None,
            optimizer_overlap: false,
        }
    }
}

/// Models of every family and mixes of them on grids over x, y, z and data of up to 16 ranks, four in five with several
/// axes above 1, in any order of axes; hidden 12 to 48 and not always a power of two, perceptron not always four times
/// as wide, prime vocabularies (also smaller than the ranks that share them), padded to some multiple, sequences shorter than the model takes,
/// more and fewer keys than ranks along x, one to three microbatches, every switch of the plain layouts.
pub fn cases() -> impl Strategy<Value = Case> {
    build(grids(), families(), any::<Index>().prop_map(MoreSwitches::plain).boxed(), 3)
}

/// [`cases`] of GPT alone, for closed forms that say nothing of other layers.
pub fn gpt_cases() -> impl Strategy<Value = Case> {
    build(grids(), Just(Family::GPT), any::<Index>().prop_map(MoreSwitches::plain).boxed(), 3)
}

/// Models of every family on grids of up to 16 ranks with at least three axes above 1, among x, y, z, context, data (with or
/// without expert as a factor of it) and pipe, with every schedule, linear algorithm, recomputation, ZeRO stage and overlap; uneven stages; up to six
/// microbatches.
pub fn combined_cases() -> impl Strategy<Value = Case> {
    build(combined_grids(), families(), more_switches().boxed(), 6)
}

fn build(
    grids: impl Strategy<Value = Grid>,
    families: impl Strategy<Value = Family>,
    more: BoxedStrategy<MoreSwitches>,
    microbatches: usize,
) -> impl Strategy<Value = Case> {
    let run = (1..=2_usize, any::<u64>(), select(vec![None, Some(0.05), Some(100.0)]), collectives(), any::<Index>());
    (sizes(grids, families, microbatches), switches(more), run).prop_filter_map(
        "sizes that fit each other",
        |(sizes, switches, (threads, seed, clip, collectives, node))| {
            let model = model(&sizes, &switches)?;
            let plain = layout(&sizes, &switches, &model)?;
            let layout = Layout { per_node: divisor(&node, plain.grid.ranks()), ..plain };
            let probabilities = layout.global_batch * layout.seq_len * model.blocks.first().attention.heads;
            // Where dropout may hit every attention probability, whole gradients are zero: nothing to compare with.
            (model.dropout == 0.0 || probabilities > 32).then_some(Case {
                model,
                layout,
                threads,
                seed,
                clip,
                collectives,
                sparsity: None,
            })
        },
    )
}

/// Two in five in shared memory, as most users run; the rest by messages.
fn collectives() -> impl Strategy<Value = Choice> {
    let tier = |name: &str, devices, bandwidth, latency| Tier {
        name: name.to_owned(),
        devices,
        links: 1,
        bandwidth,
        efficiency: 1.0,
        latency,
        half_bytes: 0.0,
        origins: Origins::default(),
    };
    // At these rates the buffers of small models lie on both sides of where algorithms overtake each other.
    let tiers = vec![tier("node", Some(1), 1e9, 1e-6), tier("network", None, 1e8, 3e-6)];
    prop_oneof![
        2 => Just(Choice::Always(Algorithm::Native)),
        1 => select(vec![Algorithm::Ring, Algorithm::Recursive]).prop_map(Choice::Always),
        1 => Just(Choice::Always(Algorithm::Hierarchical)),
        1 => Just(Choice::Fastest(tiers)),
    ]
}

/// A number that divides `ranks`.
fn divisor(index: &Index, ranks: usize) -> usize {
    let divisors: Vec<usize> = (1..=ranks).filter(|size| ranks.is_multiple_of(*size)).collect();
    *index.get(&divisors)
}

fn sizes(
    grids: impl Strategy<Value = Grid>,
    families: impl Strategy<Value = Family>,
    microbatches: usize,
) -> impl Strategy<Value = Sizes> {
    let in_model = (1..=2_usize, 1..=4_usize, any::<Index>(), any::<Index>());
    let vocab = select(vec![7, 11, 13, 17, 29, 37, 53]);
    let in_step = (2..=7_usize, 0..=2_usize, 1..=2_usize, 1..=microbatches);
    (grids, in_model, vocab, families, in_step).prop_map(
        |(grid, (layers, heads_per_x, hidden, ffn), vocab, family, (seq_len, seq_len_cut, sequences, microbatches))| {
            Sizes {
                grid,
                layers,
                heads_per_x,
                hidden,
                ffn,
                vocab,
                seq_len,
                seq_len_cut,
                family,
                sequences,
                microbatches,
            }
        },
    )
}

fn switches(more: BoxedStrategy<MoreSwitches>) -> impl Strategy<Value = Switches> {
    (any::<bool>(), any::<[bool; 4]>(), any::<bool>(), any::<bool>(), select(vec![0.0, 0.1, 0.4]), more).prop_map(
        |(scattered, [all_reduce, reduce_scatter, all_gather, all_to_all], tied_head, biases, dropout, more)| {
            Switches {
                scattered: scattered || more.linear == Linear::Summa,
                overlap: Overlap { all_reduce, reduce_scatter, all_gather, all_to_all },
                tied_head,
                biases,
                dropout,
                more,
            }
        },
    )
}

fn more_switches() -> impl Strategy<Value = MoreSwitches> {
    let linear = (prop_oneof![2 => Just(Linear::Pmm), 1 => Just(Linear::Summa)], 1..=2_usize);
    let schedule = (select(Schedule::ALL.map(|(_, schedule)| schedule).to_vec()), 1..=3_usize, any::<Index>());
    let full = |every| Recompute::Full { every };
    let recompute = (select(vec![Recompute::None, Recompute::Selective, full(1), full(2)]), any::<bool>());
    let zero = select(vec![Zero::Off, Zero::Optimizer, Zero::Gradients]);
    let keep = select(vec![KeepWeights::Use, KeepWeights::Step]);
    let states = prop_oneof![2 => Just(None), 1 => select(vec![7, 64, 1000, Layout::BUCKET]).prop_map(Some)];
    let chunks = prop_oneof![2 => Just(1_usize), 1 => Just(2)];
    (linear, schedule, recompute, zero, (keep, states, any::<bool>()), chunks, any::<bool>()).prop_map(
        |(
            (linear, panels),
            (schedule, chunks, group),
            (recompute, cac),
            zero,
            (keep_weights, bucket, optimizer_overlap),
            overlap_chunks,
            uneven,
        )| {
            MoreSwitches {
                linear,
                panels,
                overlap_chunks,
                schedule,
                chunks,
                group,
                uneven,
                recompute,
                keep_communicated: cac && recompute != Recompute::None,
                zero,
                keep_weights,
                bucket,
                optimizer_overlap: optimizer_overlap && bucket.is_some(),
            }
        },
    )
}

fn above_one(grid: &Grid) -> usize {
    Axis::ALL.iter().filter(|axis| grid.size(**axis) > 1).count()
}

fn grids() -> impl Strategy<Value = Grid> {
    let (several, few): (Vec<Grid>, Vec<Grid>) = (1..=MAX_RANKS)
        .flat_map(Grid::all)
        .filter(|grid| Axis::ALL.iter().all(|axis| grid.size(*axis) <= 5))
        .partition(|grid| above_one(grid) > 1);
    let order = Just(Axis::AXONN.map(Axis::name)).prop_shuffle();
    (prop_oneof![4 => select(several), 1 => select(few)], order)
        .prop_map(|(grid, order)| grid.with_order(order.join(",").parse().expect("every axis once")))
}

fn combined_grids() -> impl Strategy<Value = Grid> {
    let mut grids = Vec::new();
    for grid in (1..=MAX_RANKS).flat_map(Grid::all) {
        for (context, pipe) in [(1, 1), (1, 2), (1, 3), (1, 4), (2, 1), (2, 2), (2, 3), (3, 1), (3, 2), (4, 1), (2, 4)]
        {
            let wider = grid.with(Axis::Context, context).and_then(|grid| grid.with(Axis::Pipe, pipe));
            grids.extend(wider.ok().filter(|grid| grid.ranks() <= MAX_RANKS && above_one(grid) >= 3));
        }
    }
    // Pipelines are half of what is new.
    let (pipelines, others): (Vec<Grid>, Vec<Grid>) = grids.into_iter().partition(|grid| grid.size(Axis::Pipe) > 1);
    let order = Just(Axis::ALL.map(Axis::name)).prop_shuffle();
    (prop_oneof![2 => select(pipelines), 1 => select(others)], any::<Index>(), order).prop_map(
        |(grid, factor, order)| {
            with_expert(grid, divisor(&factor, grid.size(Axis::Data)))
                .with_order(order.join(",").parse().expect("every axis once"))
        },
    )
}

/// The grid with so many of its data ranks as expert ranks.
fn with_expert(grid: Grid, expert: usize) -> Grid {
    let data = grid.size(Axis::Data) / expert;
    let sizes = grid.with(Axis::Expert, expert).and_then(|grid| grid.with(Axis::Data, data));
    sizes.expect("the same number of ranks")
}

/// A multiple of `unit` in `from..=to`.
fn multiple(index: &Index, unit: usize, from: usize, to: usize) -> Option<usize> {
    let multiples: Vec<usize> = (1..=to / unit).map(|n| n * unit).filter(|size| *size >= from).collect();
    (!multiples.is_empty()).then(|| *index.get(&multiples))
}

/// The smallest number that both divide.
fn common_multiple(a: usize, b: usize) -> usize {
    (1..=b).map(|n| n * a).find(|multiple| multiple.is_multiple_of(b)).unwrap_or(a * b)
}

/// Pieces that the layers are split into.
fn pieces(sizes: &Sizes, switches: &Switches) -> usize {
    sizes.grid.size(Axis::Pipe) * chunks(sizes, switches)
}

fn chunks(sizes: &Sizes, switches: &Switches) -> usize {
    match switches.more.schedule {
        Schedule::Interleaved if sizes.grid.size(Axis::Pipe) > 1 => switches.more.chunks,
        _ => 1,
    }
}

/// Panels of a SUMMA product.
fn panels(sizes: &Sizes, switches: &Switches) -> usize {
    let fewest = common_multiple(sizes.grid.size(Axis::X), sizes.grid.size(Axis::Y));
    match switches.more.linear {
        Linear::Summa => fewest * switches.more.panels,
        Linear::Pmm => 1,
    }
}

fn model(sizes: &Sizes, switches: &Switches) -> Option<Model> {
    let x = sizes.grid.size(Axis::X);
    let y = sizes.grid.size(Axis::Y);
    let heads = x * sizes.heads_per_x;
    let mesh = common_multiple(y, panels(sizes, switches));
    let seq_len = match sizes.grid.size(Axis::Context) {
        1 => sizes.seq_len,
        context => 2 * context * (1 + sizes.seq_len % 2),
    };
    let hidden = multiple(&sizes.hidden, common_multiple(sizes.family.head_unit() * heads, mesh), 12, 48)?;
    let layers = sizes.layers + pieces(sizes, switches).saturating_sub(2);
    let gpt = Classic {
        name: "random".to_owned(),
        ffn: multiple(&sizes.ffn, common_multiple(x, panels(sizes, switches)), 9, 80)?,
        tied_head: switches.tied_head,
        biases: switches.biases,
        dropout: switches.dropout,
        ..Classic::gpt(layers, hidden, heads, sizes.vocab, seq_len)
    };
    Some(sizes.family.of(gpt, x, y))
}

/// As even as possible, or with the first piece as empty as it may be.
fn stage_blocks(layers: usize, pieces: usize, uneven: bool) -> Option<Vec<usize>> {
    if !uneven || pieces == 1 {
        return None;
    }
    let mut blocks = vec![1; pieces];
    blocks[0] = 0;
    blocks[pieces - 1] = layers.checked_sub(pieces - 2)?;
    Some(blocks)
}

fn layout(sizes: &Sizes, switches: &Switches, model: &Model) -> Option<Layout> {
    let size = |axis| sizes.grid.size(axis);
    let more = &switches.more;
    let whole = if switches.scattered { size(Axis::Y) } else { 1 };
    let microbatch = size(Axis::Z) * whole * more.overlap_chunks * sizes.sequences;
    let chunks = chunks(sizes, switches);
    let groups = size(Axis::Pipe)..=sizes.microbatches.max(size(Axis::Pipe));
    let seq_len = match size(Axis::Context) {
        1 => sizes.seq_len.saturating_sub(sizes.seq_len_cut).max(1),
        _ => model.seq_len,
    };
    let request = LayoutRequest {
        activations: if switches.scattered { Activations::Scattered } else { Activations::Replicated },
        linear: more.linear,
        summa_panels: (more.linear == Linear::Summa).then(|| panels(sizes, switches)),
        overlap: switches.overlap,
        overlap_chunks: more.overlap_chunks,
        schedule: more.schedule,
        chunks,
        microbatch_group: (more.schedule == Schedule::Interleaved)
            .then(|| *more.group.get(&groups.collect::<Vec<_>>())),
        stage_blocks: stage_blocks(model.layers(), size(Axis::Pipe) * chunks, more.uneven),
        recompute: more.recompute,
        keep_communicated: more.keep_communicated,
        zero: more.zero,
        keep_weights: more.keep_weights,
        vocab_multiple: if model.patch_values.is_some() { 1 } else { *more.group.get(&[1, 1, 1, 2, 5]) },
        offload: if more.bucket.is_some() { Offload::Host } else { Offload::None },
        bucket: more.bucket,
        optimizer_overlap: more.optimizer_overlap,
        microbatch: Some(microbatch),
        seq_len: Some(seq_len),
        dtype: ElementType::F64,
        ..LayoutRequest::new(sizes.grid, sizes.grid.batch_shares() * microbatch * sizes.microbatches)
    };
    Layout::if_legal(model, &request).filter(|layout| layout.global_batch <= MAX_BATCH)
}
