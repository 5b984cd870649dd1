//! AxoNN's communication model of 4D parallelism (Singh et al., SC 2024, section V-B, equations 1 to 7).
//!
//! As published: ring algorithms, no start-up time, no computation, nothing overlapped, equal bandwidth between every
//! pair of nodes; the four linear layers of each block and nothing else; one gather of a weight per pass, although the
//! engine gathers again for the backward pass.
//!
//! Letters: `m` token rows of a data group in a pass, `k` inputs, `n` outputs of a linear layer, `G_x`, `G_y`, `G_z`,
//! `G_data` sizes of the axes.

use quadrille_spec::{Axis, Cluster, Grid, Layout, Model, SpecError};

/// One linear layer of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Linear {
    /// `qkv`, `projection`, `up` or `down`.
    pub name: &'static str,
    /// Inputs `k`.
    pub inputs: usize,
    /// Outputs `n`.
    pub outputs: usize,
    /// Whether x and y change roles: a normal layer contracts over y and shards its outputs over x.
    pub transposed: bool,
}

/// The linear layers of a block, in forward order; normal and transposed ones alternate.
pub fn linears(model: &Model) -> [Linear; 4] {
    let model = &model.classic();
    let h = model.hidden;
    let f = model.ffn;
    let linear = |name, inputs, outputs, transposed| Linear { name, inputs, outputs, transposed };
    [
        linear("qkv", h, model.qkv_width(), false),
        linear("projection", h, h, true),
        linear("up", h, model.up_width(), false),
        linear("down", f, h, true),
    ]
}

/// One collective of a linear layer: an equation of the paper.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Equation {
    /// Equation 1: all-gather of the weight over z, forward, every pass.
    WeightGather,
    /// Equation 2: reduce-scatter of the weight's gradient over z, every pass.
    WeightGradientScatter,
    /// Equation 3: all-reduce of the output, forward, every pass; over y, in transposed layers over x.
    OutputReduce,
    /// Equation 4: all-reduce of the input's gradient, backward, every pass; over x, in transposed layers over y.
    InputGradientReduce,
    /// Equation 5: all-reduce of the weight's gradient over data, once per step.
    DataReduce,
}

impl Equation {
    /// All equations, in the paper's order.
    pub const ALL: [Self; 5] = [
        Self::WeightGather,
        Self::WeightGradientScatter,
        Self::OutputReduce,
        Self::InputGradientReduce,
        Self::DataReduce,
    ];

    /// The axis whose groups communicate.
    pub fn axis(self, linear: &Linear) -> Axis {
        let (contracted, sharded) = roles(linear);
        match self {
            Self::WeightGather | Self::WeightGradientScatter => Axis::Z,
            Self::OutputReduce => contracted,
            Self::InputGradientReduce => sharded,
            Self::DataReduce => Axis::Data,
        }
    }

    /// Elements that every rank sends for one execution of this collective; `rows` is `m`, the tokens of a data group
    /// in a pass, before z splits them. Divided by the bandwidth in elements per second this is the paper's time.
    pub fn elements(self, linear: &Linear, grid: &Grid, rows: usize) -> f64 {
        let (contracted, sharded) = roles(linear);
        let size = |axis| grid.size(axis) as f64;
        let gx = size(sharded);
        let gy = size(contracted);
        let gz = size(Axis::Z);
        let gdata = size(Axis::Data);
        let m = rows as f64;
        let k = linear.inputs as f64;
        let n = linear.outputs as f64;
        match self {
            Self::WeightGather => (gz - 1.0) * k * n / (gx * gy * gz),
            Self::WeightGradientScatter => (gz - 1.0) / gz * k * n / (gx * gy),
            Self::OutputReduce => 2.0 * (gy - 1.0) / gy * m * n / (gz * gx),
            Self::InputGradientReduce => 2.0 * (gx - 1.0) / gx * m * k / (gz * gy),
            Self::DataReduce => 2.0 * (gdata - 1.0) / gdata * k * n / (gx * gy * gz),
        }
    }
}

/// The axes that play `G_y` (contracted) and `G_x` (outputs sharded) in the equations of this layer.
fn roles(linear: &Linear) -> (Axis, Axis) {
    if linear.transposed { (Axis::X, Axis::Y) } else { (Axis::Y, Axis::X) }
}

/// One equation of one linear layer, summed over the blocks and passes of a step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Term {
    /// `qkv`, `projection`, `up` or `down`.
    pub linear: &'static str,
    /// The collective.
    pub equation: Equation,
    /// The axis whose groups communicate.
    pub axis: Axis,
    /// Elements that every rank sends.
    pub elements: f64,
    /// Bytes that every rank sends.
    pub bytes: f64,
    /// Seconds at the axis's bandwidth.
    pub seconds: f64,
}

/// The communication of a step, by linear layer and equation.
#[derive(Debug, Clone, PartialEq)]
pub struct Price {
    /// Twenty terms: linear layers in forward order, each with equations 1 to 5.
    pub terms: Vec<Term>,
    /// Bytes per second of each axis, indexed by `Axis as usize`: equation 7 and the table of case 1, see
    /// [`Cluster::ring_bandwidths`].
    pub bandwidths: [f64; Axis::COUNT],
}

/// Bytes that a rank sends and the seconds that it takes.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Cost {
    /// Bytes.
    pub bytes: f64,
    /// Seconds.
    pub seconds: f64,
}

impl Price {
    /// Seconds of communication in a step: equation 6 over all layers.
    pub fn seconds(&self) -> f64 {
        self.total(|_| true).seconds
    }

    /// What the collectives of one axis cost in a step.
    pub fn on(&self, axis: Axis) -> Cost {
        self.total(|term| term.axis == axis)
    }

    /// What one equation costs in a step.
    pub fn of(&self, equation: Equation) -> Cost {
        self.total(|term| term.equation == equation)
    }

    fn total(&self, counts: impl Fn(&Term) -> bool) -> Cost {
        self.terms.iter().filter(|term| counts(term)).fold(Cost::default(), |sum, term| Cost {
            bytes: sum.bytes + term.bytes,
            seconds: sum.seconds + term.seconds,
        })
    }
}

/// Prices the communication of a step of `layout`, with values of `element_bytes` bytes (the paper: 2, bf16).
///
/// Equations 1 to 4 count once per pass over a microbatch, with the microbatch's rows as `m`, equation 5 once per
/// step. With one pass this is the paper's formula, `m` being all tokens of a data group.
///
/// # Errors
/// A model that [`quadrille_spec::Classic`] does not describe; those of [`Cluster::ring_bandwidths`].
pub fn price(model: &Model, layout: &Layout, cluster: &Cluster, element_bytes: u64) -> Result<Price, SpecError> {
    model.check_classic("AxoNN's communication model")?;
    let bandwidths = cluster.ring_bandwidths(&layout.grid, layout.per_node)?;
    let rows = layout.microbatch * layout.seq_len;
    let term = |linear: &Linear, equation: Equation| {
        let executions = if equation == Equation::DataReduce { 1 } else { layout.microbatches() };
        let axis = equation.axis(linear);
        let elements = equation.elements(linear, &layout.grid, rows) * (model.layers() * executions) as f64;
        let bytes = elements * element_bytes as f64;
        Term { linear: linear.name, equation, axis, elements, bytes, seconds: bytes / bandwidths[axis as usize] }
    };
    let terms = linears(model).iter().flat_map(|linear| Equation::ALL.map(|equation| term(linear, equation))).collect();
    Ok(Price { terms, bandwidths })
}
