//! ATP's model of column- and row-first tensor parallelism on two-dimensional meshes (Cheng et al., "ATP: Adaptive
//! Tensor Parallelism for Foundation Models", 2023): the hierarchical communication matrix of an interconnect, the
//! bandwidths that the two dimensions of a mesh get from it (equations 3 and 4), the time of communication (equation 2),
//! and the mesh for which it is least.
//!
//! In this repository's axes dimension 1 is `x` and dimension 2 is `y`, with replicated activations; dimension 2 varies
//! fastest over the devices. Nothing is overlapped and latencies are left out.
//!
//! Letters: `d1`, `d2` sizes of the mesh, `B1'`, `B2'` bandwidths that links give its dimensions, `B1`, `B2` those of
//! an all-reduce over them; `L` layers, `b` sequences, `s` tokens each, `h` hidden. All bandwidths in bytes per second.

mod interconnect;

use std::fmt;
use std::str::FromStr;

use quadrille_spec::{Activation, Classic, Model, SpecError};

pub use interconnect::{Interconnect, KnownBandwidths};

/// Most ranks of a layer of a matrix.
const MAX_RANKS: usize = 512;
/// Most devices of a matrix.
const MAX_DEVICES: usize = 1 << 14;
const MAX_BANDWIDTH: f64 = 1e18;

/// A layer of a hierarchical communication matrix (section 3.4): how its ranks, devices or groups of devices, reach each
/// other. The same inside every rank of the layer outside it.
#[derive(Debug, Clone, PartialEq)]
pub struct MatrixLayer {
    p2p: Vec<Vec<f64>>,
    group: Vec<f64>,
}

impl MatrixLayer {
    /// `p2p[i][j]` is the bandwidth of the links between ranks `i` and `j`, 0 where there is none; `group[i]` what rank
    /// `i` can send to all others at once.
    ///
    /// # Errors
    /// Fewer than 2 or more than 512 ranks; a matrix that is not square, symmetric, of zero diagonal and of bandwidths;
    /// ranks that no chain of links joins; a group bandwidth below one of the rank's links or above all of them.
    pub fn new(p2p: Vec<Vec<f64>>, group: Vec<f64>) -> Result<Self, SpecError> {
        let ranks = group.len();
        if !(2..=MAX_RANKS).contains(&ranks) {
            let rule = format!("a layer of a communication matrix has 2..={MAX_RANKS} ranks");
            return Err(SpecError::invalid(
                "group",
                format!("{ranks} ranks"),
                rule,
                "give each rank's group bandwidth",
            ));
        }
        let layer = Self { p2p, group };
        layer.check_matrix()?;
        layer.check_groups()?;
        Ok(layer)
    }

    /// Every rank is linked to every other with `link`, and sends `group` in all.
    ///
    /// # Errors
    /// Those of [`MatrixLayer::new`].
    pub fn fully_connected(ranks: usize, link: f64, group: f64) -> Result<Self, SpecError> {
        Self::of(ranks, group, |i, j| if i == j { 0.0 } else { link })
    }

    /// Ranks in a ring: each is linked to the one before and the one after it with `link`, and sends over both links.
    ///
    /// # Errors
    /// Those of [`MatrixLayer::new`]; a ring of two, whose ranks would be linked twice.
    pub fn ring(ranks: usize, link: f64) -> Result<Self, SpecError> {
        if ranks < 3 {
            return Err(SpecError::invalid(
                "ring",
                ranks,
                "a ring has at least 3 ranks",
                "describe two as fully connected",
            ));
        }
        let neighbours = |i: usize, j: usize| (i + 1) % ranks == j || (j + 1) % ranks == i;
        Self::of(ranks, 2.0 * link, |i, j| if neighbours(i, j) { link } else { 0.0 })
    }

    fn of(ranks: usize, group: f64, link: impl Fn(usize, usize) -> f64) -> Result<Self, SpecError> {
        // No more than is refused anyway, whatever number is asked for.
        let ranks = ranks.min(MAX_RANKS + 1);
        let p2p = (0..ranks).map(|i| (0..ranks).map(|j| link(i, j)).collect()).collect();
        Self::new(p2p, vec![group; ranks])
    }

    /// Number of ranks.
    pub fn ranks(&self) -> usize {
        self.group.len()
    }

    /// Bandwidth of the links between two ranks; `None` for a rank that the layer does not have.
    pub fn link(&self, from: usize, to: usize) -> Option<f64> {
        self.p2p.get(from)?.get(to).copied()
    }

    /// What a rank can send to all others at once; `None` for a rank that the layer does not have.
    pub fn group(&self, rank: usize) -> Option<f64> {
        self.group.get(rank).copied()
    }

    fn check_matrix(&self) -> Result<(), SpecError> {
        let ranks = self.ranks();
        let square = self.p2p.len() == ranks && self.p2p.iter().all(|row| row.len() == ranks);
        if !square {
            let lengths: Vec<String> = self.p2p.iter().map(|row| row.len().to_string()).collect();
            let rule = format!("it has a row and a column for each of the {ranks} ranks that have a group bandwidth");
            let rows = format!("rows of {}", lengths.join(", "));
            return Err(SpecError::invalid("p2p", rows, rule, "give 0 for ranks without a link"));
        }
        for (i, row) in self.p2p.iter().enumerate() {
            for (j, link) in row.iter().enumerate() {
                let invalid =
                    |rule: &str, remedy: &str| Err(SpecError::invalid(format!("p2p[{i}][{j}]"), link, rule, remedy));
                if !(0.0..=MAX_BANDWIDTH).contains(link) {
                    return invalid(
                        "a bandwidth lies in 0..=1e18 bytes per second",
                        "give bytes per second, e.g. 25e9",
                    );
                }
                if i == j && *link != 0.0 {
                    return invalid("a rank has no link to itself", "give 0");
                }
                if *link != self.p2p[j][i] {
                    return invalid("links are as fast in both directions", "make the matrix symmetric");
                }
            }
        }
        match self.widest_paths(0).iter().position(|path| *path == 0.0) {
            None => Ok(()),
            Some(rank) => Err(SpecError::invalid(
                "p2p",
                format!("ranks 0 and {rank} apart"),
                "every rank reaches every other over links",
                "describe parts that are not joined by a layer outside them",
            )),
        }
    }

    fn check_groups(&self) -> Result<(), SpecError> {
        for (rank, (group, links)) in self.group.iter().zip(&self.p2p).enumerate() {
            let (fastest, all) = (links.iter().copied().fold(0.0, f64::max), links.iter().sum::<f64>());
            // The sum is rounded.
            if !(fastest..=all * (1.0 + 1e-12)).contains(group) {
                let rule = format!("it lies between the rank's fastest link, {fastest:e}, and all of them, {all:e}");
                let remedy = "correct it, or the rank's row of p2p";
                return Err(SpecError::invalid(format!("group[{rank}]"), format!("{group:e}"), rule, remedy));
            }
        }
        Ok(())
    }

    /// From `rank` to each other one, the slowest link of the best chain of links; infinite to itself, 0 without a chain.
    fn widest_paths(&self, rank: usize) -> Vec<f64> {
        let mut widest = vec![0.0; self.ranks()];
        widest[rank] = f64::INFINITY;
        let mut open: Vec<usize> = (0..self.ranks()).collect();
        while let Some(at) = (0..open.len()).max_by(|a, b| f64::total_cmp(&widest[open[*a]], &widest[open[*b]])) {
            let through = open.swap_remove(at);
            for rank in &open {
                widest[*rank] = widest[*rank].max(widest[through].min(self.p2p[through][*rank]));
            }
        }
        widest
    }

    /// What `rank` can use of its group bandwidth to reach the others of `subset`: no more than its links to them. Without
    /// a link to any of them it goes through ranks outside the subset, over the widest path; what else those send is not
    /// looked at.
    fn usable(&self, rank: usize, subset: &[usize]) -> f64 {
        let links: f64 = subset.iter().map(|other| self.p2p[rank][*other]).sum();
        if links > 0.0 {
            return links.min(self.group[rank]);
        }
        let paths = self.widest_paths(rank);
        subset.iter().filter(|other| **other != rank).map(|other| paths[*other]).fold(0.0, f64::max)
    }
}

/// `DeviceMesh(d1, d2)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Mesh {
    /// Size of dimension 1, which the columns of column-first weights are split over: neighbours in it are `d2` devices
    /// apart.
    pub d1: usize,
    /// Size of dimension 2, which their rows are split over: consecutive devices. The paper calls the mesh `ATP-d2`.
    pub d2: usize,
}

impl Mesh {
    /// All meshes of `devices` devices, `d2` rising: ATP's search space.
    pub fn all(devices: usize) -> Vec<Self> {
        (1..=devices).filter(|d2| devices.is_multiple_of(*d2)).map(|d2| Self { d1: devices / d2, d2 }).collect()
    }

    /// Refuses models that cannot be cut so: dimension 1 splits heads and the columns of the perceptron, dimension 2 the
    /// rows.
    ///
    /// # Errors
    /// Sizes that do not divide.
    pub fn check(&self, model: &Model) -> Result<(), SpecError> {
        let Classic { heads, ffn, .. } = model.classic();
        SpecError::check_divides_all("d1", self.d1, &[("heads", heads), ("ffn", ffn)])?;
        SpecError::check_divides("d2", self.d2, "hidden", model.hidden)
    }
}

impl fmt::Display for Mesh {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        write!(formatter, "DeviceMesh({},{})", self.d1, self.d2)
    }
}

/// Hierarchical communication matrix: layers from the outermost to that whose ranks are devices.
#[derive(Debug, Clone, PartialEq)]
pub struct HierarchicalMatrix {
    layers: Vec<MatrixLayer>,
}

impl HierarchicalMatrix {
    /// A matrix of these layers, outermost first.
    ///
    /// # Errors
    /// No layer, or more than 2^14 devices.
    pub fn new(layers: Vec<MatrixLayer>) -> Result<Self, SpecError> {
        let devices = layers.iter().try_fold(1_usize, |devices, layer| devices.checked_mul(layer.ranks()));
        if layers.is_empty() || devices.is_none_or(|devices| devices > MAX_DEVICES) {
            let ranks: Vec<String> = layers.iter().map(|layer| layer.ranks().to_string()).collect();
            let rule = format!("a communication matrix has 1 layer or more, and at most {MAX_DEVICES} devices");
            return Err(SpecError::invalid("layers", format!("[{}]", ranks.join(", ")), rule, "give it other layers"));
        }
        Ok(Self { layers })
    }

    /// A switch that joins all devices with the same bandwidth.
    ///
    /// # Errors
    /// Those of [`MatrixLayer::new`].
    pub fn flat(devices: usize, bandwidth: f64) -> Result<Self, SpecError> {
        Self::new(vec![MatrixLayer::fully_connected(devices, bandwidth, bandwidth)?])
    }

    /// A two-dimensional torus: a ring of `rings` rings of `devices` devices, by links of bandwidth `link` (figure 7b).
    ///
    /// # Errors
    /// Those of [`MatrixLayer::ring`].
    pub fn torus(rings: usize, devices: usize, link: f64) -> Result<Self, SpecError> {
        Self::new(vec![MatrixLayer::ring(rings, devices as f64 * link)?, MatrixLayer::ring(devices, link)?])
    }

    /// The layers, outermost first.
    pub fn layers(&self) -> &[MatrixLayer] {
        &self.layers
    }

    /// Number of devices.
    pub fn devices(&self) -> usize {
        self.layers.iter().map(MatrixLayer::ranks).product()
    }

    /// `[B1', B2']`, equation 3: the slowest of what the layers give the groups of either dimension. A dimension of one
    /// device sends nothing: infinite.
    ///
    /// A layer's group bandwidth counts as far as a group of the mesh has links to use it (the correction by the P2P
    /// matrix), divided by the groups that share a rank. Equation 3 divides by `d2`, which is that number where a rank of
    /// the layer holds at least `d2` devices; a single device belongs to one group of dimension 1 only, as section 5.4
    /// has it (`B1' = GroupBW`).
    ///
    /// # Errors
    /// A mesh of another number of devices.
    pub fn link_bandwidths(&self, mesh: Mesh) -> Result<[f64; 2], SpecError> {
        let devices = self.devices();
        if mesh.d1.checked_mul(mesh.d2) != Some(devices) {
            let meshes: Vec<String> = Mesh::all(devices).iter().map(Mesh::to_string).collect();
            let rule = format!("the communication matrix has {devices} devices");
            return Err(SpecError::invalid("mesh", mesh, rule, format!("use one of {}", meshes.join(", "))));
        }
        Ok(self.bottlenecks(mesh))
    }

    /// [`HierarchicalMatrix::link_bandwidths`] of a mesh of all devices.
    fn bottlenecks(&self, Mesh { d1, d2 }: Mesh) -> [f64; 2] {
        let first: Vec<Vec<usize>> = (0..d2).map(|j| (0..d1).map(|i| i * d2 + j).collect()).collect();
        let second: Vec<Vec<usize>> = (0..d1).map(|i| (0..d2).map(|j| i * d2 + j).collect()).collect();
        [self.bottleneck(&first), self.bottleneck(&second)]
    }

    /// The least bandwidth of a rank that any of `groups` communicates through, all of them at once; devices ascend.
    fn bottleneck(&self, groups: &[Vec<usize>]) -> f64 {
        let mut least = f64::INFINITY;
        let mut per_rank = self.devices();
        for layer in &self.layers {
            let ranks = layer.ranks();
            per_rank /= ranks;
            let mut sharing = vec![0_usize; self.devices() / per_rank];
            let mut subsets = Vec::new();
            for group in groups {
                let mut touched: Vec<usize> = group.iter().map(|device| device / per_rank).collect();
                touched.dedup();
                // Ranks of this layer communicate in it only inside the same rank of the layer outside.
                for subset in touched.chunk_by(|a, b| a / ranks == b / ranks).filter(|subset| subset.len() > 1) {
                    subset.iter().for_each(|rank| sharing[*rank] += 1);
                    subsets.push(subset.to_vec());
                }
            }
            for subset in subsets {
                let local: Vec<usize> = subset.iter().map(|rank| rank % ranks).collect();
                for rank in subset {
                    least = least.min(layer.usable(rank % ranks, &local) / sharing[rank] as f64);
                }
            }
        }
        least
    }
}

/// What an all-reduce makes of the links' bandwidth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AllReduce {
    /// Equation 4, Rabenseifner's algorithm: `B = d/(2(d-1)) B'`.
    Rabenseifner,
    /// `B = B'`: how section 5.3 compares meshes on IC2, by equation 3 alone.
    Links,
}

impl AllReduce {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Rabenseifner, Self::Links];

    /// `rabenseifner` or `links`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rabenseifner => "rabenseifner",
            Self::Links => "links",
        }
    }

    /// `[B1, B2]` of [`HierarchicalMatrix::link_bandwidths`].
    pub fn bandwidths(self, mesh: Mesh, links: [f64; 2]) -> [f64; 2] {
        let factor = |size: usize| match self {
            Self::Rabenseifner => size as f64 / (2.0 * (size as f64 - 1.0)),
            Self::Links => 1.0,
        };
        [factor(mesh.d1) * links[0], factor(mesh.d2) * links[1]]
    }
}

impl FromStr for AllReduce {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        named("all-reduce", text, Self::ALL, Self::name)
    }
}

/// The value of that name.
fn named<T: Copy, const N: usize>(
    what: &'static str,
    text: &str,
    all: [T; N],
    name: fn(T) -> &'static str,
) -> Result<T, SpecError> {
    all.into_iter().find(|value| name(*value) == text).ok_or_else(|| SpecError::Unknown {
        what,
        name: text.to_owned(),
        known: all.map(|value| name(value).to_owned()).to_vec(),
    })
}

/// How many elements the all-reduces of a layer are counted to have, forward and backward.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counts {
    /// Equation 2 takes the forward pass twice: `14 h/d1` over dimension 2, `4 h/d2` over dimension 1.
    Paper,
    /// The backward pass reduces the gradients of inputs over the other dimension: `12 h/d1` and `4 h/d2`, which is what
    /// equations 3 and 4 of AxoNN sum to.
    Exact,
}

/// Refuses models whose elements equation 2 does not count. Widths of perceptrons may differ from `4 h`; embedding, head
/// and norms do not matter.
///
/// # Errors
/// SwiGLU and grouped keys.
pub fn check_described(model: &Model) -> Result<(), SpecError> {
    let refusal = |field, value: String, rule, usual: String| {
        let remedy = format!("use {field} = {usual}, or another cost model");
        Err(SpecError::invalid(field, value, format!("equation 2 of Cheng et al. {rule}"), remedy))
    };
    model.check_classic("equation 2 of Cheng et al.")?;
    match &model.classic() {
        Classic { activation, .. } if *activation != Activation::Gelu => refusal(
            "activation",
            activation.to_string(),
            "counts perceptrons of two products",
            Activation::Gelu.to_string(),
        ),
        Classic { heads, kv_heads, .. } if heads != kv_heads => {
            refusal("kv_heads", kv_heads.to_string(), "counts a key and a value for every head", heads.to_string())
        }
        _ => Ok(()),
    }
}

impl FromStr for Counts {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        named("counts", text, Self::ALL, Self::name)
    }
}

impl Counts {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Paper, Self::Exact];

    /// `paper` or `exact`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Paper => "paper",
            Self::Exact => "exact",
        }
    }

    /// Elements per token over dimensions 1 and 2, before division by the sizes of the mesh; `f` is `4 h` in the paper.
    fn elements(self, model: &Model) -> [f64; 2] {
        let (h, f) = (model.hidden as f64, model.classic().ffn as f64);
        match self {
            Self::Paper => [4.0 * h, 2.0 * (3.0 * h + f)],
            Self::Exact => [4.0 * h, 4.0 * h + 2.0 * f],
        }
    }
}

/// What is computed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Workload<'a> {
    /// Its layers count, and their widths.
    pub model: &'a Model,
    /// `b`.
    pub batch: usize,
    /// `s`.
    pub seq_len: usize,
    /// Bytes of an element; the paper: 2, half precision.
    pub element_bytes: u64,
    /// How elements are counted.
    pub counts: Counts,
}

impl Workload<'_> {
    /// Seconds of communication of a step, equation 2: `T_comm = 2 L b s (7 h/(d1 B2) + 2 h/(d2 B1))`, with
    /// [`Counts::Exact`] 6 in place of 7; `bandwidths` are `[B1, B2]`.
    pub fn seconds(&self, mesh: Mesh, bandwidths: [f64; 2]) -> f64 {
        let tokens = self.batch as f64 * self.seq_len as f64;
        let [first, second] = self.counts.elements(self.model);
        let per_token = second / (mesh.d1 as f64 * bandwidths[1]) + first / (mesh.d2 as f64 * bandwidths[0]);
        self.element_bytes as f64 * self.model.layers() as f64 * tokens * per_token
    }

    /// Every mesh of the matrix's devices with its bandwidths and seconds, the fastest first; of equally fast ones the one
    /// of smaller `d2`. The first is what ATP selects (section 3.5).
    pub fn rank(&self, matrix: &HierarchicalMatrix, all_reduce: AllReduce) -> Vec<Candidate> {
        let meshes = Mesh::all(matrix.devices()).into_iter();
        self.rank_known(meshes.map(|mesh| (mesh, all_reduce.bandwidths(mesh, matrix.bottlenecks(mesh)))))
    }

    /// The same of meshes whose `[B1, B2]` are known.
    fn rank_known(&self, known: impl Iterator<Item = (Mesh, [f64; 2])>) -> Vec<Candidate> {
        let candidate = |(mesh, bandwidths)| Candidate { mesh, bandwidths, seconds: self.seconds(mesh, bandwidths) };
        let mut ranked: Vec<Candidate> = known.map(candidate).collect();
        // Single precision: times that differ by rounding only are equal, and stay in order.
        ranked.sort_by(|a, b| (a.seconds as f32).total_cmp(&(b.seconds as f32)));
        ranked
    }

    /// Section 5.4's closed form of equations 2 and 4 where every device has the bandwidth `GroupBW` for itself:
    /// `2 L b s h/GroupBW * (14 d2 + 4 d1 - 18)/(d1 d2)`, with [`Counts::Exact`] `12 d2 + 4 d1 - 16`.
    pub fn flat_seconds(&self, mesh: Mesh, group_bandwidth: f64) -> f64 {
        let [first, second] = self.counts.elements(self.model);
        let (d1, d2) = (mesh.d1 as f64, mesh.d2 as f64);
        let per_token = 2.0 * (second * (d2 - 1.0) + first * (d1 - 1.0)) / (d1 * d2);
        let tokens = self.batch as f64 * self.seq_len as f64;
        self.element_bytes as f64 * self.model.layers() as f64 * tokens * per_token / group_bandwidth
    }
}

/// A mesh and what it costs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Candidate {
    /// The mesh.
    pub mesh: Mesh,
    /// `[B1, B2]` in bytes per second.
    pub bandwidths: [f64; 2],
    /// Seconds of communication of a step.
    pub seconds: f64,
}
