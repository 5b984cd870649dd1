//! What is measured: the same list on every rank.

use quadrille_cost::native::{RankGroup, attention_flops, product_flops, sweep_flops};
use quadrille_engine::Sweep;
use quadrille_spec::{Algorithm, CollectiveKind, ElementType, RateUnit};
use quadrille_tensor::Transpose;

use super::Setup;
use super::sizes::{AttentionSizes, Sizes};

/// Kinds of collectives; messages, between the two members of a pair, and exchanges have one algorithm.
const KINDS: [CollectiveKind; 6] = [
    CollectiveKind::AllReduce,
    CollectiveKind::AllGather,
    CollectiveKind::ReduceScatter,
    CollectiveKind::Broadcast,
    CollectiveKind::AllToAll,
    CollectiveKind::Send,
];

/// One measurement.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Case {
    /// A product.
    Product {
        /// How the operands are stored.
        layout: Transpose,
        /// Type of the operands and the result.
        dtype: ElementType,
        /// `[m, n, k]`: `[m, n]` is given, contracted over k.
        shape: [usize; 3],
    },
    /// Causal attention.
    Attention {
        /// Type of the values.
        dtype: ElementType,
        /// The gradient.
        backward: bool,
        /// `[sequence, width of a head, heads]`.
        shape: [usize; 3],
    },
    /// Element-wise work.
    Sweep {
        /// Which.
        sweep: Sweep,
        /// Type of the values.
        dtype: ElementType,
        /// Of each operand.
        elements: usize,
        /// Whether operands lie in cache, so that arithmetic is the limit.
        in_cache: bool,
    },
    /// So many bytes to the memory of the rank's device, and back.
    HostCopy {
        /// One way.
        bytes: usize,
    },
    /// A collective of all groups at once, f32.
    Collective {
        /// Which.
        kind: CollectiveKind,
        /// How it is carried out.
        algorithm: Algorithm,
        /// The groups that run it at once.
        group: RankGroup,
        /// Of the whole buffer, or of the message.
        bytes: u64,
    },
}

impl Case {
    /// All cases in which collectives are carried out by `algorithm`; with `native` also the operations of a rank.
    pub(super) fn all(setup: &Setup, algorithm: Algorithm) -> Vec<Self> {
        let mut cases = Vec::new();
        if algorithm == Algorithm::Native {
            cases.extend(products(&setup.sizes.products));
            cases.extend(setup.sizes.attention.iter().flat_map(attention));
            cases.extend(sweeps(setup));
            cases.extend(setup.device.is_some().then_some(Self::HostCopy { bytes: setup.sizes.host_copy }));
        }
        cases.extend(collectives(setup, algorithm));
        cases
    }

    /// The name in reports and files, type and sizes left out.
    pub fn name(&self) -> String {
        match self {
            Self::Product { layout: Transpose::Nn, .. } => "product nn".to_owned(),
            Self::Product { layout: Transpose::Nt, .. } => "product nt".to_owned(),
            Self::Product { layout: Transpose::Tn, .. } => "product tn".to_owned(),
            Self::Attention { backward: false, .. } => "attention".to_owned(),
            Self::Attention { backward: true, .. } => "attention-backward".to_owned(),
            Self::Sweep { sweep, .. } => sweep.name().to_owned(),
            Self::HostCopy { .. } => "host-copy".to_owned(),
            Self::Collective { kind, .. } => kind.name().to_owned(),
        }
    }

    /// Type of the operands.
    pub fn dtype(&self) -> ElementType {
        match self {
            Self::Product { dtype, .. } | Self::Attention { dtype, .. } | Self::Sweep { dtype, .. } => *dtype,
            Self::HostCopy { .. } | Self::Collective { .. } => ElementType::F32,
        }
    }

    /// Sizes of an operation; of a collective its bytes.
    pub fn shape(&self) -> Vec<usize> {
        match self {
            Self::Product { shape, .. } | Self::Attention { shape, .. } => shape.to_vec(),
            Self::Sweep { elements, .. } => vec![*elements],
            Self::HostCopy { bytes } => vec![*bytes],
            Self::Collective { bytes, .. } => vec![*bytes as usize],
        }
    }

    /// How much is done, as the native model counts it: FLOPs, or bytes where memory or a network is the limit.
    pub fn work(&self) -> (f64, RateUnit) {
        match self {
            Self::Product { shape, .. } => (product_flops(shape.map(|size| size as f64)), RateUnit::Flops),
            Self::Attention { backward, shape, .. } => {
                let [seq_len, width, heads] = shape.map(|size| size as f64);
                (attention_flops(*backward, true, seq_len, seq_len * width * heads), RateUnit::Flops)
            }
            Self::Sweep { sweep, elements, in_cache: true, .. } => {
                let flops = sweep_flops(sweep.name()).unwrap_or(0.0);
                (flops * *elements as f64, RateUnit::Flops)
            }
            Self::Sweep { sweep, dtype, elements, .. } => {
                (sweep.bytes(*dtype) as f64 * *elements as f64, RateUnit::Bytes)
            }
            // Both ways.
            Self::HostCopy { bytes } => (2.0 * *bytes as f64, RateUnit::Bytes),
            Self::Collective { bytes, .. } => (*bytes as f64, RateUnit::Bytes),
        }
    }
}

fn products(sizes: &[usize]) -> Vec<Case> {
    let mut cases = Vec::new();
    for dtype in [ElementType::F32, ElementType::F64, ElementType::Bf16] {
        for shape in triples(sizes, sizes, sizes) {
            cases.extend(Transpose::ALL.map(|layout| Case::Product { layout, dtype, shape }));
        }
    }
    cases
}

fn attention(sizes: &AttentionSizes) -> Vec<Case> {
    let AttentionSizes { dtype, sequences, widths, heads } = sizes;
    let shapes = triples(sequences, widths, heads);
    let both = |shape| [false, true].map(|backward| Case::Attention { dtype: *dtype, backward, shape });
    shapes.into_iter().flat_map(both).collect()
}

fn sweeps(setup: &Setup) -> Vec<Case> {
    let Sizes { values: dtype, in_cache, .. } = setup.sizes;
    let streamed = [Sweep::Residual, Sweep::AdamW].map(|sweep| (sweep, setup.streamed, false));
    // An update has several times the bytes of the others: what of theirs fits a device's cache does not of its.
    let cached: &[Sweep] = match setup.device {
        None => &[Sweep::BiasGelu, Sweep::GeluBackward, Sweep::AdamW],
        Some(_) => &[Sweep::BiasGelu, Sweep::GeluBackward],
    };
    let cached = cached.iter().map(|sweep| (*sweep, in_cache, true));
    let case = |(sweep, elements, in_cache)| Case::Sweep { sweep, dtype, elements, in_cache };
    streamed.into_iter().chain(cached).map(case).collect()
}

fn triples(first: &[usize], second: &[usize], third: &[usize]) -> Vec<[usize; 3]> {
    let pairs = first.iter().flat_map(|a| second.iter().map(move |b| (*a, *b)));
    pairs.flat_map(|(a, b)| third.iter().map(move |c| [a, b, *c])).collect()
}

fn collectives(setup: &Setup, algorithm: Algorithm) -> Vec<Case> {
    let spec = &setup.spec;
    let has = |kind: CollectiveKind, group: RankGroup| match kind {
        CollectiveKind::Send => algorithm == Algorithm::Native && group.size == 2,
        CollectiveKind::AllToAll => algorithm == Algorithm::Native,
        // Inside a node, and with one member on each, it is one of the others.
        _ => algorithm != Algorithm::Hierarchical || group.inner == 1 && group.size > spec.per_node,
    };
    let mut cases = Vec::new();
    for group in groups(spec.ranks, spec.per_node) {
        for kind in KINDS.into_iter().filter(|kind| has(*kind, group)) {
            let of = |bytes: &u64| Case::Collective { kind, algorithm, group, bytes: *bytes };
            cases.extend(setup.sizes.collectives.iter().map(of));
        }
    }
    cases
}

/// The groups inside a node that fill it, then those over all nodes: the whole job, and for each rank of a node its
/// fellows on the other nodes; pairs that are half of the job apart, for messages.
fn groups(ranks: usize, per_node: usize) -> Vec<RankGroup> {
    let divisors = |of: usize| (1..=of).filter(move |divisor| of.is_multiple_of(*divisor));
    let inside = divisors(per_node)
        .flat_map(|inner| divisors(per_node / inner).filter(|size| *size > 1).map(move |size| (inner, size)));
    let over = [(1, ranks), (per_node, ranks / per_node), (ranks / 2, 2)];
    let over = over.into_iter().filter(|(inner, size)| *size > 1 && ranks.is_multiple_of(inner * size));
    let mut groups: Vec<RankGroup> = Vec::new();
    for (inner, size) in inside.chain(over) {
        let group = RankGroup { inner, size, ranks };
        if !groups.contains(&group) {
            groups.push(group);
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(ranks: usize, per_node: usize) -> Vec<(usize, usize)> {
        groups(ranks, per_node).iter().map(|group| (group.inner, group.size)).collect()
    }

    #[test]
    fn groups_are_those_of_axonns_first_case_and_those_between_nodes() {
        assert_eq!(pairs(2, 2), [(1, 2)]);
        assert_eq!(pairs(4, 4), [(1, 2), (1, 4), (2, 2)]);
        assert_eq!(pairs(8, 4), [(1, 2), (1, 4), (2, 2), (1, 8), (4, 2)]);
        assert_eq!(pairs(6, 6), [(1, 2), (1, 3), (1, 6), (2, 3), (3, 2)]);
        assert_eq!(pairs(4, 1), [(1, 4), (2, 2)]);
        assert_eq!(pairs(3, 3), [(1, 3)]);
    }
}
