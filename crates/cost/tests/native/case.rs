//! Random models, legal layouts of them, and clusters.

use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use quadrille_cost::native::{Candidate, Framework, Moments, NarrowFormat, Numbers, Problem};
use quadrille_draws::{descriptions, mixtures};
use quadrille_spec::{
    Activation, Activations, Axis, AxisSet, Cluster, Device, Dispatch, Efficiency, ElementType, Grid, Imbalance,
    KeepWeights, Layout, LayoutRequest, Linear, Model, Norm, Origins, Overlap, Peaks, Positions, Recompute, Schedule,
    Tier, Zero,
};
use quadrille_step::StepProgram;

/// Ranks of the largest grid.
const MAX_RANKS: usize = 96;

/// A model, a layout that it can be trained with, and a cluster.
#[derive(Debug, Clone)]
pub struct Case {
    pub model: Model,
    pub layout: Layout,
    pub cluster: Cluster,
    /// How many times the mean the fullest rank has of the rows of experts.
    pub imbalance: f64,
}

/// All frameworks, this program's engine in 16 bits, of a whole model and of a pruned one, and narrow numbers.
pub fn frameworks() -> impl Iterator<Item = Framework> {
    let narrow = Framework::own(ElementType::Bf16, ElementType::F32);
    let pruned = Framework { sparsity: "0.9".parse().ok(), ..narrow };
    let formats = Numbers {
        products: Some(NarrowFormat::Nvfp4),
        gradients: Some(ElementType::Bf16),
        moments: Some(Moments::Fp8),
    };
    Framework::ALL.into_iter().chain([narrow, pruned, Framework::MEGATRON.in_formats(formats)])
}

/// What only programs do of which runs were published.
pub const PUBLISHED: Framework = Framework { gates_apart: true, product_rate: 0.9, ..Framework::MEGATRON_STORED };

impl Case {
    pub fn problem(&self, framework: Framework) -> Problem {
        self.problem_on(&self.cluster, framework)
    }

    pub fn problem_on(&self, cluster: &Cluster, framework: Framework) -> Problem {
        let Layout { global_batch, seq_len, .. } = self.layout;
        let problem = Problem::new(&self.model, cluster, framework, global_batch, seq_len).unwrap();
        problem.with_imbalance(&Imbalance::Times(self.imbalance)).unwrap()
    }

    pub fn candidate(&self) -> Candidate {
        Candidate::of(&self.layout, &self.cluster)
    }

    /// The case with loads that are so unequal, if some of its experts drop nothing.
    pub fn unequal(&self, imbalance: f64) -> Option<Self> {
        let experts = self.model.blocks.kinds().iter().filter_map(|block| block.feed_forward.experts());
        let dropless = experts.into_iter().any(|experts| experts.capacity.is_none());
        dropless.then(|| Self { imbalance, ..self.clone() })
    }

    /// The numbers of expert ranks that divide the shares of the batch.
    pub fn expert_shares(&self) -> Vec<usize> {
        let shares = self.layout.grid.batch_shares();
        (1..=shares).filter(|expert| shares.is_multiple_of(*expert)).collect()
    }

    /// The case with so many of the shares of the batch as expert ranks, which lie just inside the data ranks.
    pub fn shared_out(&self, expert: usize) -> Self {
        let grid = self.layout.grid;
        let axes = grid.order().axes().into_iter().filter(|axis| *axis != Axis::Expert);
        let named = axes.flat_map(|axis| if axis == Axis::Data { vec![Axis::Expert, axis] } else { vec![axis] });
        let order = named.map(Axis::name).collect::<Vec<_>>().join(",").parse().unwrap();
        let data = grid.batch_shares() / expert;
        let sizes = grid.with(Axis::Expert, expert).and_then(|grid| grid.with(Axis::Data, data));
        let grid = sizes.unwrap().with_order(order);
        Self { layout: Layout { grid, ..self.layout.clone() }, ..self.clone() }
    }

    pub fn program(&self) -> StepProgram {
        StepProgram::new(&self.model, &self.layout).unwrap_or_else(|error| panic!("{self:?}: {error}"))
    }
}

/// The cluster with networks that take next to no time beside its memory.
pub fn fast_networks(cluster: &Cluster) -> Cluster {
    let faster = |tier: &Tier| Tier { bandwidth: 1e3 * tier.bandwidth, latency: 0.0, half_bytes: 0.0, ..tier.clone() };
    Cluster { tiers: cluster.tiers.iter().map(faster).collect(), ..cluster.clone() }
}

/// Cases of one schedule, the same in every run.
pub fn fixed(schedule: Schedule, count: usize) -> Vec<Case> {
    let mut runner = TestRunner::deterministic();
    let strategy = cases(schedule);
    (0..count).map(|_| strategy.new_tree(&mut runner).unwrap().current()).collect()
}

/// Cases of every schedule, some of whose data ranks may be expert ranks.
pub fn any_case() -> impl Strategy<Value = Case> {
    let cases = select(Schedule::ALL.map(|(_, schedule)| schedule).to_vec()).prop_flat_map(cases);
    let cases = (cases, any::<Index>()).prop_map(|(case, pick)| {
        let shares = case.expert_shares();
        case.shared_out(*pick.get(&shares))
    });
    (cases, select(vec![1, 1, 7])).prop_filter_map("a legal layout", |(case, vocab_multiple)| {
        let padded = if case.model.patch_values.is_some() { 1 } else { vocab_multiple };
        changed(&case, |request| request.vocab_multiple = padded)
    })
}

/// Cases of described blocks of one schedule, the same in every run.
pub fn fixed_described(schedule: Schedule, count: usize) -> Vec<Case> {
    let mut runner = TestRunner::deterministic();
    let strategy = described(cases(schedule));
    (0..count).map(|_| strategy.new_tree(&mut runner).unwrap().current()).collect()
}

/// The same cases with blocks as [`descriptions`] say, which may differ.
pub fn described(cases: impl Strategy<Value = Case>) -> impl Strategy<Value = Case> {
    (cases, descriptions()).prop_filter_map("a legal layout", |(case, description)| {
        let model = description.of(&case.model, case.layout.grid.size(Axis::X));
        changed(&Case { model, ..case }, |_| {})
    })
}

/// Cases of blocks with experts of one schedule, the same in every run.
pub fn fixed_mixed(schedule: Schedule, count: usize) -> Vec<Case> {
    let mut runner = TestRunner::deterministic();
    let strategy = mixed(cases(schedule));
    (0..count).map(|_| strategy.new_tree(&mut runner).unwrap().current()).collect()
}

/// The same cases with experts as [`mixtures`] says, spread over any axes that may spread them.
pub fn mixed(cases: impl Strategy<Value = Case>) -> impl Strategy<Value = Case> {
    let spreading = prop::collection::vec(any::<bool>(), Axis::SPREADING.iter().count());
    let drawn = (cases, mixtures(), spreading, select(Dispatch::ALL.map(|(_, dispatch)| dispatch).to_vec()));
    drawn.prop_filter_map("a legal layout", |(case, mixture, spreading, dispatch)| {
        let grid = case.layout.grid;
        let over: AxisSet = Axis::SPREADING.iter().zip(spreading).filter(|(_, on)| *on).map(|(axis, _)| axis).collect();
        let pieces = 2 * grid.size(Axis::Context) * grid.size(Axis::X);
        let model = mixture.of(&case.model, case.layout.seq_len / pieces, grid.size_of(over));
        changed(&Case { model, ..case }, |request| {
            request.experts_over = Some(over);
            request.dispatch =
                if request.activations == Activations::Replicated { dispatch } else { Dispatch::Dropped };
        })
    })
}

/// Models of GPT's, Llama's and vision transformers' layers of hidden 96 to 3,072 on grids of up to 96 ranks over all
/// axes, with every switch; one to eight microbatches or so.
pub fn cases(schedule: Schedule) -> impl Strategy<Value = Case> {
    // Expert, whose ranks come of data's, follows data.
    let drawn = [Axis::X, Axis::Y, Axis::Z, Axis::Context, Axis::Data, Axis::Pipe].map(Axis::name);
    let grid = (grids(), Just(drawn).prop_shuffle());
    let switches = (any::<[bool; 7]>(), select(vec![0, 1, 2]), select(vec![0, 1, 2, 3, 4]), 1..=3_usize);
    let counts = (1..=2_usize, 1..=3_usize, 1..=8_usize, 0..=6_usize);
    (grid, models(), switches, counts, clusters()).prop_filter_map(
        "a legal layout",
        move |((grid, order), model, switches, (overlap_chunks, sequences, microbatches, layers), cluster)| {
            let ([scattered, summa, all_reduce, reduce_scatter, all_gather, step, cac], zero, recompute, chunks) =
                switches;
            let size = |axis| grid.size(axis);
            let grid = grid.with_order(order.join(",").parse().ok()?);
            let interleaves = schedule == Schedule::Interleaved && size(Axis::Pipe) > 1;
            let chunks = if interleaves { chunks } else { 1 };
            let model = model.reshaped(|m| m.layers = (size(Axis::Pipe) * chunks + layers).saturating_sub(2).max(1));
            // A third of the layouts with both axes multiply by panels.
            let linear = if summa && scattered && size(Axis::Y) > 1 { Linear::Summa } else { Linear::Pmm };
            let scatters = scattered || linear == Linear::Summa;
            let cut = size(Axis::Z) * overlap_chunks * if scatters { size(Axis::Y) } else { 1 };
            let microbatch = cut * sequences;
            let microbatches = if interleaves { microbatches.max(size(Axis::Pipe)) } else { microbatches };
            let recompute = match recompute {
                0 | 1 => Recompute::None,
                2 => Recompute::Selective,
                every => Recompute::Full { every: every - 2 },
            };
            let request = LayoutRequest {
                activations: if scatters { Activations::Scattered } else { Activations::Replicated },
                linear,
                overlap: Overlap { all_reduce, reduce_scatter, all_gather, all_to_all: all_gather },
                overlap_chunks,
                schedule,
                chunks,
                recompute,
                keep_communicated: cac && recompute != Recompute::None,
                zero: [Zero::Off, Zero::Optimizer, Zero::Gradients][zero],
                keep_weights: if step { KeepWeights::Step } else { KeepWeights::Use },
                microbatch: Some(microbatch),
                per_node: cluster.tiers[0].devices,
                dtype: ElementType::F32,
                ..LayoutRequest::new(grid, grid.batch_shares() * microbatch * microbatches)
            };
            let request = match request.per_node {
                Some(devices) if !grid.ranks().is_multiple_of(devices) => LayoutRequest { per_node: None, ..request },
                _ => request,
            };
            Some(Case { layout: Layout::if_legal(&model, &request)?, model, cluster, imbalance: 1.0 })
        },
    )
}

/// The case without switches: no overlap, recomputation, ZeRO, kept weights or SUMMA; if that is legal.
pub fn switched_off(case: &Case) -> Option<Case> {
    changed(case, |request| {
        (request.overlap, request.overlap_chunks) = (Overlap::NONE, 1);
        (request.recompute, request.keep_communicated) = (Recompute::None, false);
        (request.zero, request.keep_weights) = (Zero::Off, KeepWeights::Use);
        (request.linear, request.summa_panels) = (Linear::Pmm, None);
    })
}

/// The case with something else in its layout, if that is legal.
pub fn changed(case: &Case, change: impl FnOnce(&mut LayoutRequest)) -> Option<Case> {
    let from = &case.layout;
    let mut request = LayoutRequest {
        per_node: Some(from.per_node),
        activations: from.activations,
        linear: from.linear,
        summa_panels: (from.linear == Linear::Summa).then_some(from.summa_panels),
        overlap: from.overlap,
        overlap_chunks: from.overlap_chunks,
        schedule: from.schedule,
        chunks: from.chunks,
        recompute: from.recompute,
        keep_communicated: from.keep_communicated,
        zero: from.zero,
        keep_weights: from.keep_weights,
        experts_over: Some(from.experts_over),
        dispatch: from.dispatch,
        microbatch: Some(from.microbatch),
        dtype: from.dtype,
        ..LayoutRequest::new(from.grid, from.global_batch)
    };
    change(&mut request);
    let layout = Layout::if_legal(&case.model, &request)?;
    Some(Case { layout, ..case.clone() })
}

fn grids() -> impl Strategy<Value = Grid> {
    let size = || select(vec![1, 1, 1, 2, 2, 3, 4]);
    (size(), size(), size(), size(), size(), select(vec![1, 2, 3, 4, 6])).prop_filter_map(
        "grids that are small enough",
        |(x, y, z, context, data, pipe)| {
            let grid = Grid::of_sizes([x, y, z, context, 1, data, pipe]).ok()?;
            (grid.ranks() <= MAX_RANKS).then_some(grid)
        },
    )
}

fn models() -> impl Strategy<Value = Model> {
    let sizes =
        (select(vec![8, 32, 64]), select(vec![12, 24, 48]), select(vec![1, 2, 4, 12]), select(vec![48, 384, 1536]));
    let layers = (0..3_u8, any::<[bool; 2]>(), select(vec![0.0, 0.1]), select(vec![1009, 32_000]));
    (sizes, layers).prop_map(|((head_dim, heads, grouped, seq_len), (family, [tied_head, biases], dropout, vocab))| {
        let hidden = heads * head_dim;
        let gpt = Model::gpt(1, hidden, heads, vocab, seq_len).reshaped(|m| {
            m.tied_head = tied_head;
            m.biases = biases;
            m.dropout = dropout;
        });
        match family {
            0 => gpt,
            1 => gpt.reshaped(|m| {
                m.norm = Norm::Rms;
                m.positions = Positions::Rotary;
                m.activation = Activation::Swiglu;
                m.kv_heads = heads / grouped;
                m.ffn = 3 * hidden;
            }),
            _ => gpt.reshaped(|m| {
                m.patch_values = Some(768);
                m.vocab = 0;
                m.tied_head = false;
                m.causal = false;
            }),
        }
    })
}

/// Clusters of one to three tiers, whose networks are faster inside.
pub fn clusters() -> impl Strategy<Value = Cluster> {
    let rates = (10.0..14.5_f64, 0.02..1.0_f64, 0.0..2e-5_f64);
    let curve = (any::<bool>(), 0.0..500.0_f64, 0.3..1.0_f64);
    let tier = || (1.0..100.0_f64, 0.0..2e-5_f64, select(vec![0.0, 1e5]), 1..=4_usize);
    let tiers = (tier(), tier(), tier(), select(vec![1, 2, 4, 8]), select(vec![2, 4]), 1..=3_usize);
    (rates, curve, tiers).prop_map(|((peak, balance, launch_seconds), (curved, half, ceiling), tiers)| {
        let peak = 10_f64.powf(peak);
        let efficiency = if curved {
            Efficiency::Curve { ceiling, half_m: half, half_n: half / 2.0, half_k: half / 4.0 }
        } else {
            Efficiency::Constant { fraction: ceiling }
        };
        let device = Device {
            name: "random".to_owned(),
            source: "a test".to_owned(),
            memory: 1 << 36,
            memory_bandwidth: peak / 100.0,
            memory_efficiency: 0.8,
            host_bandwidth: Some(peak / 1000.0),
            host_memory: None,
            peak: Peaks { fp4: Some(8.0 * peak), ..Peaks::wide(2.0 * peak, peak, peak / 2.0) },
            vector_rate: peak * balance,
            launch_seconds,
            products: efficiency.clone(),
            half_products: curved.then(|| efficiency.scaled(0.7)),
            narrow_products: curved.then(|| efficiency.scaled(0.5)),
            half_attention: curved.then(|| efficiency.scaled(0.6)),
            attention: efficiency,
            origins: Origins::default(),
        };
        let (inner, middle, outer, node, rack, count) = tiers;
        let domains = [Some(node), Some(node * rack), None];
        let of = |(per_flop, latency, half_bytes, links): (f64, f64, f64, usize), slower: f64| Tier {
            name: "network".to_owned(),
            devices: None,
            links,
            bandwidth: peak / 1000.0 / slower / per_flop,
            efficiency: 0.9,
            latency: slower * latency,
            half_bytes,
            origins: Origins::default(),
        };
        let all = [of(inner, 1.0), of(middle, 3.0), of(outer, 10.0)];
        let tiers = all
            .into_iter()
            .take(count)
            .enumerate()
            .map(|(at, tier)| Tier { devices: if at + 1 == count { None } else { domains[at] }, ..tier });
        Cluster {
            name: "random".to_owned(),
            source: "a test".to_owned(),
            device: Some(device),
            tiers: tiers.collect(),
            device_memory: None,
            devices_per_node: None,
            network: None,
            intra_node_bandwidth: 1e9,
            group_bandwidths: Vec::new(),
            calibration: None,
            origins: Origins::default(),
        }
    })
}
