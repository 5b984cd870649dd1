//! The time of communication and the meshes in its order.

use std::str::FromStr;

use quadrille_spec::{Activation, Classic, Model, SpecError};

use super::matrix::HierarchicalMatrix;
use super::mesh::Mesh;

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
        let h = model.hidden as f64;
        let f = model.classic().ffn as f64;
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
    pub(super) fn rank_known(&self, known: impl Iterator<Item = (Mesh, [f64; 2])>) -> Vec<Candidate> {
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
        let d1 = mesh.d1 as f64;
        let d2 = mesh.d2 as f64;
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
