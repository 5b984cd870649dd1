//! The operations of a program. Each reads and writes values; one that works in place writes a value in the storage
//! of a value that it reads.

use quadrille_spec::{Axis, AxisSet, CollectiveKind};
use serde::{Deserialize, Serialize};

use crate::{Layer, ParameterId, StepProgram, ValueId};

/// Which of a linear layer's three products.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GemmPass {
    /// Output from input and weight.
    Forward,
    /// Gradient of the input.
    InputGradient,
    /// Gradient of the weight.
    WeightGradient,
}

/// How the operands of a product lie in memory: `N` as used, `T` transposed; left operand first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GemmStorage {
    /// `[m,k] [k,n]`
    Nn,
    /// `[m,k] [n,k]`
    Nt,
    /// `[k,m] [k,n]`
    Tn,
}

/// The local shape of a product: `[m,k] [k,n]` with operands stored as said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Product {
    /// How the operands lie.
    pub storage: GemmStorage,
    /// Rows of the result.
    pub m: usize,
    /// Columns of the result.
    pub n: usize,
    /// Contracted size.
    pub k: usize,
}

/// What happens to the former contents of an output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Write {
    /// They are replaced.
    Overwrite,
    /// The result is added to them.
    Accumulate,
    /// Replaced in the first microbatch of a step, added to in the others.
    AccumulateMicrobatches,
}

/// How a reducing collective combines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reduction {
    /// Sums.
    Sum,
    /// Maxima.
    Max,
}

/// A collective on values, in place if input and output share a storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Collective {
    /// Which one.
    pub kind: CollectiveKind,
    /// The axes that it spans.
    pub axes: AxisSet,
    /// How it reduces, if it does.
    pub reduction: Reduction,
    /// What each rank gives.
    pub input: ValueId,
    /// What each rank gets.
    pub output: ValueId,
}

/// A number per rank that is summed over ranks in f64.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scalar {
    /// Sum of token losses.
    Loss,
    /// Sum of squares of the owned gradient shards.
    GradientNormSquared,
}

/// One operation kind with its operands. `output` is in place of `input` where the documentation says so.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs, reason = "operand names say what they are; the variants are documented")]
pub enum Operation {
    /// Rows of the table for the tokens; zero for tokens of other ranks' vocabulary.
    Embed { table: ValueId, output: ValueId },
    /// Adds position rows, in place.
    AddPositions { positions: ValueId, input: ValueId, output: ValueId },
    /// Zeroes masked elements and scales the others; in place if the storages are the same.
    Dropout { purpose: String, input: ValueId, output: ValueId },
    /// Sum of each row's local columns.
    RowSums { input: ValueId, output: ValueId },
    /// Sum of squared distances from the mean over each row's local columns.
    CenteredSquares { input: ValueId, sums: ValueId, output: ValueId },
    /// Layer norm with the reduced statistics.
    Norm { input: ValueId, sums: ValueId, squares: ValueId, gamma: ValueId, beta: ValueId, output: ValueId },
    /// `output (+)= left right`, operands stored as said.
    Gemm { pass: GemmPass, storage: GemmStorage, left: ValueId, right: ValueId, output: ValueId, write: Write },
    /// Adds a bias row, in place.
    Bias { bias: ValueId, input: ValueId, output: ValueId },
    /// Adds a bias row in place (`output`) and applies tanh GELU (`activated`).
    BiasGelu { bias: Option<ValueId>, input: ValueId, output: ValueId, activated: ValueId },
    /// Causal attention over whole sequences; `statistics` keeps the logarithms of the softmax sums.
    Attention { qkv: ValueId, output: ValueId, statistics: ValueId, dropout: Option<String> },
    /// `residual + dropout(input + bias)`, in place of `input`.
    Residual { bias: Option<ValueId>, input: ValueId, residual: ValueId, output: ValueId, dropout: Option<String> },
    /// Maximum of each row's local logits.
    CrossEntropyMax { logits: ValueId, output: ValueId },
    /// Each row's sum of exponentials and target logit.
    CrossEntropySums { logits: ValueId, maxima: ValueId, output: ValueId },
    /// Adds the loss to the rank's sum; turns the logits into their gradient, in place.
    CrossEntropyGradient { logits: ValueId, maxima: ValueId, sums: ValueId, output: ValueId },
    /// Adds rows of the gradient to the table rows of their tokens.
    EmbedBackward { gradient: ValueId, output: ValueId, write: Write },
    /// Adds rows of the gradient to the rows of their positions.
    PositionsBackward { gradient: ValueId, output: ValueId },
    /// The two row sums of the layer norm's backward, and the gradients of gamma and beta.
    NormBackwardSums {
        input: ValueId,
        sums: ValueId,
        squares: ValueId,
        gamma: ValueId,
        gradient: ValueId,
        output: ValueId,
        gamma_gradient: ValueId,
        beta_gradient: ValueId,
    },
    /// The gradient of a layer norm's input, in `output` or added to it.
    NormBackward {
        input: ValueId,
        sums: ValueId,
        squares: ValueId,
        gamma: ValueId,
        gradient: ValueId,
        reduced: ValueId,
        output: ValueId,
        write: Write,
    },
    /// Column sums of the gradient, into a bias gradient.
    BiasBackward { gradient: ValueId, output: ValueId },
    /// The gradient before GELU in place of the one after it, and its column sums.
    GeluBackward { input: ValueId, gradient: ValueId, output: ValueId, bias_gradient: Option<ValueId> },
    /// The gradient of q, k and v.
    AttentionBackward {
        qkv: ValueId,
        result: ValueId,
        statistics: ValueId,
        gradient: ValueId,
        output: ValueId,
        dropout: Option<String>,
    },
    /// Column blocks of `axis` one after the other.
    Pack { axis: Axis, input: ValueId, output: ValueId },
    /// Column blocks of `axis` side by side.
    Unpack { axis: Axis, input: ValueId, output: ValueId },
    /// This rank's rows of a value that is replicated over `axis`.
    SliceRows { axis: Axis, input: ValueId, output: ValueId },
    /// This rank's columns of a value that is replicated over `axis`.
    SliceColumns { axis: Axis, input: ValueId, output: ValueId },
    /// Starts a collective.
    Issue(Collective),
    /// Waits for a collective; its output may be used from here.
    Wait(Collective),
    /// Adds `input` to `output`.
    Accumulate { input: ValueId, output: ValueId, write: Write },
    /// Adds the squares of a gradient shard to the rank's sum, if the rank owns the shard.
    SumSquares { parameter: ParameterId, gradient: ValueId },
    /// Sums a scalar over ranks.
    ReduceScalar { scalar: Scalar, axes: AxisSet },
    /// The optimizer's update of one parameter shard.
    AdamW { parameter: ParameterId, value: ValueId, gradient: ValueId },
}

/// An operation with the layer that it belongs to.
#[derive(Debug, Clone, PartialEq)]
pub struct Op {
    /// For ledgers and messages.
    pub layer: Layer,
    /// What to do.
    pub operation: Operation,
}

impl Operation {
    /// The local shape, if the operation is a product.
    pub fn product(&self, program: &StepProgram) -> Option<Product> {
        let Self::Gemm { storage, left, output, .. } = *self else { return None };
        let (left, output) = (program.value(left), program.value(output));
        let k = if storage == GemmStorage::Tn { left.local_rows } else { left.local_cols };
        Some(Product { storage, m: output.local_rows, n: output.local_cols, k })
    }

    /// The name in printed programs, ledgers and messages.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Embed { .. } => "embed",
            Self::AddPositions { .. } => "add-positions",
            Self::Dropout { .. } => "dropout",
            Self::RowSums { .. } => "row-sums",
            Self::CenteredSquares { .. } => "centered-squares",
            Self::Norm { .. } => "norm",
            Self::Gemm { pass: GemmPass::Forward, .. } => "gemm",
            Self::Gemm { pass: GemmPass::InputGradient, .. } => "gemm-input-gradient",
            Self::Gemm { pass: GemmPass::WeightGradient, .. } => "gemm-weight-gradient",
            Self::Bias { .. } => "bias",
            Self::BiasGelu { .. } => "bias-gelu",
            Self::Attention { .. } => "attention",
            Self::Residual { .. } => "residual",
            Self::CrossEntropyMax { .. } => "cross-entropy-max",
            Self::CrossEntropySums { .. } => "cross-entropy-sums",
            Self::CrossEntropyGradient { .. } => "cross-entropy-gradient",
            Self::EmbedBackward { .. } => "embed-backward",
            Self::PositionsBackward { .. } => "positions-backward",
            Self::NormBackwardSums { .. } => "norm-backward-sums",
            Self::NormBackward { .. } => "norm-backward",
            Self::BiasBackward { .. } => "bias-backward",
            Self::GeluBackward { .. } => "gelu-backward",
            Self::AttentionBackward { .. } => "attention-backward",
            Self::Pack { .. } => "pack",
            Self::Unpack { .. } => "unpack",
            Self::SliceRows { .. } => "slice-rows",
            Self::SliceColumns { .. } => "slice-columns",
            Self::Issue(_) => "issue",
            Self::Wait(_) => "wait",
            Self::Accumulate { .. } => "accumulate",
            Self::SumSquares { .. } => "sum-squares",
            Self::ReduceScalar { .. } => "reduce-scalar",
            Self::AdamW { .. } => "adamw",
        }
    }

    /// The values that it reads and those that it writes. A value that is added to counts as written; an issued
    /// collective holds both its values until its wait.
    pub fn operands(&self) -> (Vec<ValueId>, Vec<ValueId>) {
        match *self {
            Self::Embed { table, output } => (vec![table], vec![output]),
            Self::AddPositions { positions, input, output } => (vec![positions, input], vec![output]),
            Self::Dropout { input, output, .. } => (vec![input], vec![output]),
            Self::RowSums { input, output } => (vec![input], vec![output]),
            Self::CenteredSquares { input, sums, output } => (vec![input, sums], vec![output]),
            Self::Norm { input, sums, squares, gamma, beta, output } => {
                (vec![input, sums, squares, gamma, beta], vec![output])
            }
            Self::Gemm { left, right, output, .. } => (vec![left, right], vec![output]),
            Self::Bias { bias, input, output } => (vec![bias, input], vec![output]),
            Self::BiasGelu { bias, input, output, activated } => {
                (bias.into_iter().chain([input]).collect(), vec![output, activated])
            }
            Self::Attention { qkv, output, statistics, .. } => (vec![qkv], vec![output, statistics]),
            Self::Residual { bias, input, residual, output, .. } => {
                (bias.into_iter().chain([input, residual]).collect(), vec![output])
            }
            Self::CrossEntropyMax { logits, output } => (vec![logits], vec![output]),
            Self::CrossEntropySums { logits, maxima, output } => (vec![logits, maxima], vec![output]),
            Self::CrossEntropyGradient { logits, maxima, sums, output } => (vec![logits, maxima, sums], vec![output]),
            Self::EmbedBackward { gradient, output, .. } => (vec![gradient], vec![output]),
            Self::PositionsBackward { gradient, output } => (vec![gradient], vec![output]),
            Self::NormBackwardSums { input, sums, squares, gamma, gradient, output, gamma_gradient, beta_gradient } => {
                (vec![input, sums, squares, gamma, gradient], vec![output, gamma_gradient, beta_gradient])
            }
            Self::NormBackward { input, sums, squares, gamma, gradient, reduced, output, .. } => {
                (vec![input, sums, squares, gamma, gradient, reduced], vec![output])
            }
            Self::BiasBackward { gradient, output } => (vec![gradient], vec![output]),
            Self::GeluBackward { input, gradient, output, bias_gradient } => {
                (vec![input, gradient], [output].into_iter().chain(bias_gradient).collect())
            }
            Self::AttentionBackward { qkv, result, statistics, gradient, output, .. } => {
                (vec![qkv, result, statistics, gradient], vec![output])
            }
            Self::Pack { input, output, .. }
            | Self::Unpack { input, output, .. }
            | Self::SliceRows { input, output, .. }
            | Self::SliceColumns { input, output, .. }
            | Self::Accumulate { input, output, .. } => (vec![input], vec![output]),
            Self::Issue(collective) | Self::Wait(collective) => (vec![collective.input], vec![collective.output]),
            Self::SumSquares { gradient, .. } => (vec![gradient], vec![]),
            Self::ReduceScalar { .. } => (vec![], vec![]),
            Self::AdamW { value, gradient, .. } => (vec![gradient], vec![value]),
        }
    }
}
