//! Predicted ledgers of random layouts are the published closed forms: what every layer sends over every axis, FLOPs,
//! and memory of weights.
//!
//! Letters: `x`, `y`, `z`, `d` sizes of the axes, `r(G) = (G-1)/G`, `m` token rows of a (data, z) rank in a pass, `h`
//! hidden, `f` perceptron, `s` tokens of a sequence, `V` padded vocabulary. Volumes are elements put on the wire in a
//! ring, summed over all ranks, so that they are whole numbers; the closed forms are per rank.

use std::collections::BTreeMap;

use proptest::prelude::*;
use quadrille_papers::axonn::{Equation, linears};
use quadrille_proofs::{Case, gpt_cases, model, program};
use quadrille_spec::{Activations, Axis, Classic, ElementType, Ledger, MemoryClass, Overlap};
use quadrille_step::{StepProgram, predict};

/// Sizes as the closed forms use them.
#[derive(Clone, Copy)]
struct Sizes {
    x: usize,
    y: usize,
    z: usize,
    d: usize,
    m: usize,
    h: usize,
    f: usize,
    vocab: usize,
    scattered: bool,
}

impl Sizes {
    fn of(program: &StepProgram) -> Self {
        let StepProgram { model, layout, .. } = program;
        let [x, y, z, d] = Axis::AXONN.map(|axis| layout.grid.size(axis));
        let scattered = layout.activations == Activations::Scattered;
        Self {
            x,
            y,
            z,
            d,
            m: layout.rows(),
            h: model.hidden,
            f: model.classic().ffn,
            vocab: layout.padded_vocab(model),
            scattered,
        }
    }

    /// Elements of the tiles of qkv, projection, up and down.
    fn tiles(&self) -> [usize; 4] {
        let Self { x, y, h, f, .. } = *self;
        [h / y * (3 * h / x), h / x * (h / y), h / y * (f / x), f / x * (h / y)]
    }

    /// Elements of the table's tile.
    fn table(&self) -> usize {
        self.vocab / (self.x * self.y) * self.h
    }

    /// Token rows of a rank in the residual stream.
    fn residual_rows(&self) -> usize {
        if self.scattered { self.m / self.x } else { self.m }
    }
}

/// Elements sent by all ranks together, by layer and key of axes; nothing that is zero.
type Volumes = BTreeMap<(String, &'static str), usize>;

/// The closed forms of a program.
struct Closed {
    sizes: Sizes,
    ranks: usize,
    microbatches: usize,
    volumes: Volumes,
}

impl Closed {
    /// `times r(group) elements` of every rank: 1 for an all-gather or reduce-scatter, 2 for an all-reduce.
    fn add(&mut self, layer: &str, key: &'static str, times: usize, elements: usize) {
        let Sizes { x, y, z, d, .. } = self.sizes;
        let group = match key {
            "x" => x,
            "y" => y,
            "z" => z,
            "data" => d,
            "x+y" => x * y,
            "z+data" => z * d,
            "x+z+data" => x * z * d,
            "y+z+data" => y * z * d,
            _ => x * y * z * d,
        };
        let sent = self.ranks / group * (group - 1) * elements * times;
        if sent > 0 {
            *self.volumes.entry((layer.to_owned(), key)).or_default() += sent;
        }
    }

    /// The same in every pass over a microbatch.
    fn add_pass(&mut self, layer: &str, key: &'static str, times: usize, elements: usize) {
        self.add(layer, key, times * self.microbatches, elements);
    }

    /// Statistics of a layer norm, one scalar a row twice forward and two once backward, and its two gradients.
    fn norm(&mut self, layer: &str) {
        let sizes = self.sizes;
        self.add_pass(layer, "y", 2, 4 * sizes.residual_rows());
        self.add(layer, self.residual_vectors(), 2, 2 * sizes.h / sizes.y);
    }

    /// Over which axes the gradients of vectors of the residual stream are summed.
    fn residual_vectors(&self) -> &'static str {
        if self.sizes.scattered { "x+z+data" } else { "z+data" }
    }

    /// A block: the dataflow note's section 6.4, with norms and biases.
    fn block(&mut self, layer: &str, biases: bool) {
        let Sizes { x, y, z, m, h, f, scattered, .. } = self.sizes;
        let weights: usize = self.sizes.tiles().iter().sum();
        self.add_pass(layer, "y", 2, m * (3 * h / x + h / x + f / x + f / x));
        self.add_pass(layer, "x", 2, m * 4 * (h / y));
        self.add_pass(layer, "z", 3, weights);
        self.add(layer, "data", 2, weights / z);
        self.norm(layer);
        self.norm(layer);
        if biases {
            self.add(layer, if scattered { "y+z+data" } else { "z+data" }, 2, 3 * h / x);
            self.add(layer, if scattered { "y+z+data" } else { "z+data" }, 2, f / x);
            self.add(layer, self.residual_vectors(), 2, 2 * h / y);
        }
    }

    /// Rows 1 to 4 of the dataflow table: the table gathered and its gradient scattered, the looked-up rows and back.
    fn embedding(&mut self, positions: usize) {
        let Sizes { y, z, m, h, .. } = self.sizes;
        self.add_pass("embedding", "z", 2, self.sizes.table());
        self.add_pass("embedding", "y", 2, m * h);
        self.add_pass("embedding", "x", 2, m * h / y);
        self.add("embedding", "data", 2, self.sizes.table() / z);
        self.add("embedding", self.residual_vectors(), 2, positions * h / y);
    }

    /// Rows 15 to 18: the table gathered twice, the hidden rows and back, three scalars a row for the loss.
    fn head(&mut self, tied: bool) {
        let Sizes { y, z, m, h, .. } = self.sizes;
        self.add_pass("head", "z", 2, self.sizes.table());
        self.add_pass("head", "y", 2, m * h);
        self.add_pass("head", "x", 2, m * h / y);
        self.add_pass("head", "x+y", 2, 3 * m);
        self.norm("head");
        if !tied {
            self.add_pass("head", "z", 1, self.sizes.table());
            self.add("head", "data", 2, self.sizes.table() / z);
        }
    }

    fn of(program: &StepProgram) -> Volumes {
        let StepProgram { model, layout, .. } = program;
        let ranks = layout.grid.ranks();
        let microbatches = layout.microbatches();
        let mut closed = Self { sizes: Sizes::of(program), ranks, microbatches, volumes: Volumes::new() };
        closed.embedding(model.seq_len);
        for index in 0..model.layers() {
            closed.block(&format!("block {index}"), model.classic().biases);
        }
        closed.head(model.tied_head);
        // The loss and its count.
        closed.add("step", "z+data", 2, 2);
        closed.add("step", "world", 2, 1);
        closed.volumes
    }
}

const KEYS: [&str; 9] = ["x", "y", "z", "data", "x+y", "z+data", "x+z+data", "y+z+data", "world"];

/// The same from a ledger; scalars of the whole step are f64 in every program.
fn predicted(ledger: &Ledger, element_bytes: usize) -> Volumes {
    let mut volumes = Volumes::new();
    for layer in ledger.ranks.iter().flat_map(|rank| &rank.layers) {
        let element_bytes = if layer.layer == "step" { 8 } else { element_bytes };
        for (key, transfers) in &layer.axes {
            let key = KEYS.into_iter().find(|known| known == key).unwrap();
            let bytes: u64 = transfers.values().map(|transfer| transfer.wire_bytes).sum();
            *volumes.entry((layer.layer.clone(), key)).or_default() += bytes as usize;
        }
        for key in KEYS {
            if let Some(bytes) = volumes.get(&(layer.layer.clone(), key)) {
                assert_eq!(bytes % element_bytes, 0, "{key} of {}", layer.layer);
            }
        }
    }
    volumes.retain(|_, bytes| *bytes > 0);
    for ((layer, _), bytes) in &mut volumes {
        *bytes /= if layer == "step" { 8 } else { element_bytes };
    }
    volumes
}

fn check_flops(program: &StepProgram) -> Result<(), TestCaseError> {
    let Sizes { x, y, m, h, .. } = Sizes::of(program);
    let StepProgram { model, layout, .. } = program;
    let layers = model.layers() * layout.microbatches();
    let blocks = 2 * m * Sizes::of(program).tiles().iter().sum::<usize>() * layers;
    let head = 2 * m * Sizes::of(program).table() * layout.microbatches();
    let cut = if Sizes::of(program).scattered { x * y } else { x };
    let attention = 4 * m * layout.seq_len * h / cut * layers;
    for rank in predict(program).ranks {
        let products = [rank.flops.gemm_forward, rank.flops.gemm_input_gradient, rank.flops.gemm_weight_gradient];
        prop_assert_eq!(products, [(blocks + head) as u64; 3]);
        prop_assert_eq!(rank.flops.attention_forward, attention as u64);
        prop_assert_eq!(rank.flops.attention_backward, 2 * attention as u64);
    }
    Ok(())
}

/// A rank's share of the model, in elements: cut over x, y, z; vectors over x or y only.
fn weights(program: &StepProgram) -> usize {
    let sizes = Sizes::of(program);
    let Sizes { x, y, z, h, f, .. } = sizes;
    let Classic { layers, seq_len, tied_head, biases, .. } = program.model.classic();
    let vectors = 4 * h / y + if biases { 3 * h / x + f / x + 2 * h / y } else { 0 };
    let block = sizes.tiles().iter().map(|tile| tile / z).sum::<usize>() + vectors;
    let tables = if tied_head { 1 } else { 2 } * sizes.table() / z;
    layers * block + tables + seq_len * h / y + 2 * h / y
}

/// The largest gathered weight; with prefetching, the largest two that follow each other.
fn gathered(program: &StepProgram) -> usize {
    let sizes = Sizes::of(program);
    if sizes.z == 1 {
        return 0;
    }
    let blocks = [sizes.tiles()].repeat(program.model.layers()).concat();
    let uses = [vec![sizes.table()], blocks, vec![sizes.table()]].concat();
    let at_once = if program.layout.overlap.all_gather { 2 } else { 1 };
    uses.windows(at_once).map(|tiles| tiles.iter().sum()).max().unwrap()
}

fn check_memory(program: &StepProgram) -> Result<(), TestCaseError> {
    let bytes = |elements: usize| elements as u64 * program.layout.dtype.bytes();
    for rank in predict(program).ranks {
        let peak = |class| rank.memory.peak_of[&class];
        prop_assert_eq!(peak(MemoryClass::Parameters), bytes(weights(program)));
        prop_assert_eq!(peak(MemoryClass::Gradients), bytes(weights(program)));
        prop_assert_eq!(peak(MemoryClass::Optimizer), bytes(2 * weights(program)));
        prop_assert_eq!(peak(MemoryClass::GatheredWeights), bytes(gathered(program)));
    }
    Ok(())
}

/// AxoNN's equations 1 to 5 for the four linear layers of block 0, against the ledger without the norms' statistics.
/// The engine gathers weights again for the backward pass: equation 1 counts twice.
fn check_axonn(case: &Case, program: &StepProgram) -> Result<(), TestCaseError> {
    let sizes = Sizes::of(program);
    let layout = &program.layout;
    let ranks = layout.grid.ranks() as f64;
    let passes = layout.microbatches() as f64;
    let volumes = predicted(&predict(program), layout.dtype.bytes() as usize);
    for (axis, key) in Axis::AXONN.into_iter().zip(KEYS) {
        let mut paper = 0.0;
        for linear in linears(&case.model) {
            for equation in Equation::ALL.into_iter().filter(|equation| equation.axis(&linear) == axis) {
                let times = match equation {
                    Equation::WeightGather => 2.0 * passes,
                    Equation::DataReduce => 1.0,
                    _ => passes,
                };
                paper += times * equation.elements(&linear, &layout.grid, layout.microbatch * layout.seq_len);
            }
        }
        let mut sent = volumes.get(&("block 0".to_owned(), key)).copied().unwrap_or(0) as f64 / ranks;
        if axis == Axis::Y {
            let r = (sizes.y - 1) as f64 / sizes.y as f64;
            sent -= passes * 2.0 * r * (2 * 4 * sizes.residual_rows()) as f64;
        }
        prop_assert!((sent - paper).abs() <= 1e-12 * paper, "{}: {} sent, {} in the paper", key, sent, paper);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_layer_sends_what_the_closed_forms_say(case in gpt_cases(), single in any::<bool>()) {
        let program = case.program(if single { ElementType::F32 } else { ElementType::F64 });
        let volumes = predicted(&predict(&program), program.layout.dtype.bytes() as usize);
        prop_assert_eq!(volumes, Closed::of(&program));
    }

    #[test]
    fn work_and_weights_are_what_the_closed_forms_say(case in gpt_cases(), single in any::<bool>()) {
        let program = case.program(if single { ElementType::F32 } else { ElementType::F64 });
        check_flops(&program)?;
        check_memory(&program)?;
    }

    #[test]
    fn blocks_send_what_axonns_equations_say(case in gpt_cases()) {
        check_axonn(&case, &case.program(ElementType::F64))?;
    }
}

/// The numbers of the simulation behind the dataflow note, section 6.4, per rank: x = y = z = 2, `h` = 24, `m` = 48.
#[test]
fn the_published_example_comes_out() {
    let model = model(1).reshaped(|m| {
        m.hidden = 24;
        m.ffn = 96;
        m.seq_len = 6;
    });
    for activations in [Activations::Replicated, Activations::Scattered] {
        let program = program(&model, "x=2,y=2,z=2", activations, Overlap::NONE, 16, 16);
        let volumes = predicted(&predict(&program), 8);
        let sent = |key| volumes[&("block 0".to_owned(), key)] / 8;
        let statistics = 2 * 4 * Sizes::of(&program).residual_rows();
        assert_eq!((sent("y") - statistics, sent("x")), (6912, 2304));
        // Of the up weight 288 elements go over z in each of two gathers and a reduce-scatter; all four are three of it.
        assert_eq!(sent("z"), 3 * 3 * 288);
    }
}
