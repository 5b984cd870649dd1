//! Local sizes: what a rank holds of every value of a pass.
//!
//! Letters: `m` token rows of a (data, z, context) rank in an overlap chunk, `h` hidden, `f` perceptron, `x`, `y`
//! sizes of axes.

use quadrille_spec::{Activation, Activations, Axis, AxisSet, Linear, Model, Norm, Overlap, Positions, Recompute};

use super::{Group, Values};
use crate::native::{AttentionKernel, Candidate, Framework};

/// A linear layer on a rank.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::native) struct LinearSizes {
    /// Inputs of the tile that the rank multiplies with.
    pub inputs: u64,
    /// Its outputs.
    pub outputs: u64,
    /// Over which axis the contraction is cut.
    pub contracted: Group,
    /// Over which axis the outputs are cut.
    pub produced: Group,
}

impl LinearSizes {
    /// Elements of the tile.
    pub fn tile(&self) -> u64 {
        self.inputs * self.outputs
    }
}

/// What a pass depends on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::native) struct Sizes {
    pub x: u64,
    pub y: u64,
    pub z: u64,
    pub context: u64,
    pub seq_len: u64,
    /// Overlap chunks.
    pub chunks: u64,
    /// Token rows before x or y cut them.
    pub rows: u64,
    /// Rows of the residual stream.
    pub stream_rows: u64,
    /// Its columns.
    pub stream_cols: u64,
    /// Rows inside a block.
    pub inner_rows: u64,
    pub hidden: u64,
    /// Columns of the attention's output.
    pub attention_cols: u64,
    /// Columns of keys and values.
    pub key_value_cols: u64,
    /// Ranks along x that hold the same keys and values: 1 unless x has more ranks than there are.
    pub key_copies: u64,
    /// Width of a head.
    pub head_dim: u64,
    /// Heads of queries of all sequences of the pass.
    pub heads: u64,
    pub qkv: LinearSizes,
    pub projection: LinearSizes,
    pub up: LinearSizes,
    pub down: LinearSizes,
    /// Columns of logits; of a model of patches, the numbers of a patch.
    pub logits: u64,
    /// Elements of the table's tile; of a model of patches, of the weight at either end.
    pub table: u64,
    /// Elements of the position table.
    pub positions: u64,
    /// Panels of SUMMA products, if they are used.
    pub panels: Option<u64>,
    /// Whether rows are cut over x in the residual stream and over y inside a block (whole-tile products only).
    pub scattered: bool,
    /// Axis that cuts the columns of the residual stream, and that which cuts its rows where they are scattered.
    pub column_group: Group,
    pub row_group: Group,
    pub overlap: Overlap,
    pub framework: Framework,
    pub norm: Norm,
    pub activation: Activation,
    pub rotary: bool,
    pub learned_positions: bool,
    pub biases: bool,
    pub dropout: bool,
    pub causal: bool,
    pub patches: bool,
    pub recompute: Recompute,
    pub keep_communicated: bool,
}

impl Sizes {
    /// Of a candidate that the rules of layouts allow.
    pub fn of(model: &Model, framework: &Framework, seq_len: usize, c: &Candidate) -> Self {
        let [x, y, z, context] = [Axis::X, Axis::Y, Axis::Z, Axis::Context].map(|axis| c.size(axis) as u64);
        let model = &model.classic();
        let [h, f, s] = [model.hidden, model.ffn, seq_len].map(|size| size as u64);
        let summa = c.linear == Linear::Summa;
        let scattered = !summa && c.activations == Activations::Scattered;
        let sequences = c.microbatch as u64 / z / c.overlap_chunks as u64;
        let rows = sequences * (s / context);
        let inner_rows = if scattered || summa { rows / y } else { rows };
        let (stream_rows, stream_cols) = match (summa, scattered) {
            (true, _) => (rows / y, h / x),
            (false, true) => (rows / x, h / y),
            (false, false) => (rows, h / y),
        };
        let normal = |inputs, outputs| LinearSizes {
            inputs: inputs / y,
            outputs: outputs / x,
            contracted: Group::Y,
            produced: Group::X,
        };
        let transposed = |inputs, outputs| match summa {
            true => normal(inputs, outputs),
            false => LinearSizes { inputs: inputs / x, outputs: outputs / y, contracted: Group::X, produced: Group::Y },
        };
        let head_dim = model.head_dim() as u64;
        // Ranks along x beyond the heads of keys and values hold copies of them.
        let kv_heads = (model.kv_heads as u64).max(x);
        let qkv = (model.heads as u64 + 2 * kv_heads) * head_dim;
        let vocab = (model.vocab as u64).div_ceil(x * y);
        let local_sequences = if scattered || summa { sequences / y } else { sequences };
        let (table, logits) = match model.patch_values {
            None => (vocab * h, vocab),
            Some(values) => (values as u64 * stream_cols, values as u64),
        };
        let learned = model.positions == Positions::Learned;
        Self {
            x,
            y,
            z,
            context,
            seq_len: s,
            chunks: c.overlap_chunks as u64,
            rows,
            stream_rows,
            stream_cols,
            inner_rows,
            hidden: h,
            attention_cols: h / x,
            key_value_cols: 2 * kv_heads * head_dim / x,
            key_copies: kv_heads / model.kv_heads as u64,
            head_dim,
            heads: model.heads as u64 / x * local_sequences,
            qkv: normal(h, qkv),
            projection: transposed(h, h),
            up: normal(h, f * model.activation.inputs() as u64),
            down: transposed(f, h),
            logits,
            table,
            positions: if learned { model.seq_len as u64 * stream_cols } else { 0 },
            panels: summa.then_some(c.summa_panels as u64),
            scattered,
            column_group: if summa { Group::X } else { Group::Y },
            row_group: if summa { Group::Y } else { Group::X },
            overlap: c.overlap,
            framework: *framework,
            norm: model.norm,
            activation: model.activation,
            rotary: model.positions == Positions::Rotary,
            learned_positions: learned,
            biases: model.biases,
            dropout: model.dropout > 0.0,
            causal: model.causal,
            patches: model.patch_values.is_some(),
            recompute: c.recompute,
            keep_communicated: c.keep_communicated,
        }
    }

    /// Ranks of a group.
    pub fn members(&self, group: Group) -> u64 {
        match group {
            Group::X => self.x,
            Group::Y => self.y,
            Group::Z => self.z,
            Group::Context => self.context,
            Group::Mesh => self.x * self.y,
        }
    }

    /// Elements of the residual stream.
    pub fn stream(&self) -> u64 {
        self.stream_rows * self.stream_cols
    }

    /// Whether the rows of the residual stream are cut over more than one rank of the mesh.
    pub fn stream_rows_cut(&self) -> bool {
        (self.scattered || self.panels.is_some()) && self.members(self.row_group) > 1
    }

    /// Whether inputs of products are gathered over `group` first.
    pub fn gathers(&self, group: Group) -> bool {
        self.scattered && self.members(group) > 1
    }

    /// Whether attention stores its scores.
    pub fn stores_scores(&self) -> bool {
        self.framework.attention == AttentionKernel::Stored
    }

    /// The four linear layers of a block.
    pub fn linears(&self) -> [LinearSizes; 4] {
        [self.qkv, self.projection, self.up, self.down]
    }

    /// The axes that cut the rows from which gradients are summed after the last microbatch, beside those that hold the
    /// same weights: of vectors on the residual stream and inside a block, and of the weights of patches.
    pub fn row_groups(&self) -> [AxisSet; 3] {
        let scatters = self.scattered || self.panels.is_some();
        let rows = |group: Group| if scatters { group.axes() } else { AxisSet::EMPTY };
        let [stream, inner] = [self.row_group, Group::Y].map(rows);
        [stream.union(Axis::Z.only()), inner.union(Axis::Z.only()), stream]
    }

    /// What a block keeps for its backward pass.
    pub fn kept(&self) -> Values {
        Values::kept(self)
    }
}
