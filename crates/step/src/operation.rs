//! The operations of a program. Each reads and writes values; one that works in place writes a value in the storage
//! of a value that it reads.

use quadrille_spec::{Activation, Axis, AxisSet, CollectiveKind, Grid};
use serde::{Deserialize, Serialize};

use crate::{Layer, ParameterId, StageProgram, ValueId};

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
    /// Replaced by the first microbatch of a step, added to by the others.
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

/// The members of a collective beside its axes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Members {
    /// Every rank along the axes.
    All,
    /// Every rank along the axes; the member with this index has, or gets, the whole.
    Root(usize),
    /// The first and the last rank along the axis.
    Ends,
    /// As many ranks as this that follow each other along the axis, each such block for itself.
    Blocks(usize),
}

/// A collective on values, in place if input and output share a storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Collective {
    /// Which one.
    pub kind: CollectiveKind,
    /// The axes that it spans.
    pub axes: AxisSet,
    /// Who takes part.
    pub members: Members,
    /// How it reduces, if it does.
    pub reduction: Reduction,
    /// What each rank gives.
    pub input: ValueId,
    /// What each rank gets.
    pub output: ValueId,
}

impl Collective {
    /// Ranks that take part together.
    pub fn size(&self, grid: &Grid) -> usize {
        match self.members {
            Members::All | Members::Root(_) => grid.size_of(self.axes),
            Members::Ends => 2,
            Members::Blocks(size) => size,
        }
    }
}

/// Numbers of each rank that are summed over ranks in f64.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scalar {
    /// Sum of the losses of tokens, or of numbers, and how many of them there are.
    Loss,
    /// Sum of squares of the owned gradient shards.
    GradientNormSquared,
}

impl Scalar {
    /// How many numbers.
    pub fn elements(self) -> usize {
        match self {
            Self::Loss => 2,
            Self::GradientNormSquared => 1,
        }
    }
}

/// One operation kind with its operands. `output` is in place of `input` where the documentation says so.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs, reason = "operand names say what they are; the variants are documented")]
pub enum Operation {
    /// Rows of the table for the tokens; zero for tokens of other ranks' vocabulary.
    Embed { table: ValueId, output: ValueId },
    /// The numbers of this rank's patches.
    Patches { output: ValueId },
    /// Adds position rows, in place.
    AddPositions { positions: ValueId, input: ValueId, output: ValueId },
    /// Zeroes masked elements and scales the others; in place if the storages are the same.
    Dropout { purpose: String, input: ValueId, output: ValueId },
    /// Sum of each row's local columns.
    RowSums { input: ValueId, output: ValueId },
    /// Sum of squared distances from the mean over each row's local columns.
    CenteredSquares { input: ValueId, sums: ValueId, output: ValueId },
    /// Sum of squares over each row's local columns.
    RowSquares { input: ValueId, output: ValueId },
    /// A norm with the reduced statistics: a layer norm has sums and beta, an RMS norm has neither.
    Norm {
        input: ValueId,
        sums: Option<ValueId>,
        squares: ValueId,
        gamma: ValueId,
        beta: Option<ValueId>,
        output: ValueId,
    },
    /// `output (+)= left right`, operands stored as said.
    Gemm { pass: GemmPass, storage: GemmStorage, left: ValueId, right: ValueId, output: ValueId, write: Write },
    /// Adds a bias row, in place.
    Bias { bias: ValueId, input: ValueId, output: ValueId },
    /// Turns queries and keys by the angles of their positions, or `back` by their negatives, as their gradients are;
    /// values stay. In place.
    Rotate { back: bool, input: ValueId, output: ValueId },
    /// Adds a bias row in place (`output`) and applies the activation function (`activated`).
    BiasActivation { function: Activation, bias: Option<ValueId>, input: ValueId, output: ValueId, activated: ValueId },
    /// The activation function of a stored pre-activation: what recomputation needs of
    /// [`Operation::BiasActivation`].
    Activation { function: Activation, input: ValueId, output: ValueId },
    /// Attention; keys and values of the whole sequence are those of `qkv`, or, where context cuts sequences, the
    /// gathered ones. `statistics` keeps the logarithms of the softmax sums.
    Attention {
        qkv: ValueId,
        keys_values: Option<ValueId>,
        output: ValueId,
        statistics: ValueId,
        dropout: Option<String>,
    },
    /// `residual + dropout(input + bias)`, in place of `input`.
    Residual { bias: Option<ValueId>, input: ValueId, residual: ValueId, output: ValueId, dropout: Option<String> },
    /// Maximum of each row's local logits.
    CrossEntropyMax { logits: ValueId, output: ValueId },
    /// Each row's sum of exponentials and target logit.
    CrossEntropySums { logits: ValueId, maxima: ValueId, output: ValueId },
    /// Adds the loss to the rank's sum; turns the logits into their gradient, in place.
    CrossEntropyGradient { logits: ValueId, maxima: ValueId, sums: ValueId, output: ValueId },
    /// Adds the squared errors to the rank's sum; turns the predicted numbers into their gradient, in place.
    SquaredError { predictions: ValueId, output: ValueId },
    /// Adds the loss of each row to the rank's sum, where no gradient is wanted.
    CrossEntropyLoss { sums: ValueId },
    /// Adds the squared errors to the rank's sum, where no gradient is wanted.
    SquaredErrorLoss { predictions: ValueId },
    /// Puts the keys and values of a pass behind those of the same sequences that the cache has.
    StoreKeysValues { input: ValueId, output: ValueId },
    /// Attention of a pass's queries to the keys and values in the cache, their own among them.
    CachedAttention { qkv: ValueId, cache: ValueId, output: ValueId },
    /// The wanted rows of a microbatch's sequences, at the microbatch's place among those of all microbatches.
    CollectRows { wanted: Wanted, input: ValueId, output: ValueId },
    /// Adds rows of the gradient to the table rows of their tokens.
    EmbedBackward { gradient: ValueId, output: ValueId, write: Write },
    /// Adds rows of the gradient to the rows of their positions.
    PositionsBackward { gradient: ValueId, output: ValueId, write: Write },
    /// The row sums of a norm's backward, two of a layer norm and one of an RMS norm, and the gradients of gamma and
    /// beta.
    NormBackwardSums {
        input: ValueId,
        sums: Option<ValueId>,
        squares: ValueId,
        gamma: ValueId,
        gradient: ValueId,
        output: ValueId,
        gamma_gradient: ValueId,
        beta_gradient: Option<ValueId>,
        write: Write,
    },
    /// The gradient of a norm's input, in `output` or added to it.
    NormBackward {
        input: ValueId,
        sums: Option<ValueId>,
        squares: ValueId,
        gamma: ValueId,
        gradient: ValueId,
        reduced: ValueId,
        output: ValueId,
        write: Write,
    },
    /// Column sums of the gradient, into a bias gradient.
    BiasBackward { gradient: ValueId, output: ValueId, write: Write },
    /// The gradient before the activation function, and its column sums; in place of the one after it, or, where it is
    /// wider than that, of the pre-activation `input`.
    ActivationBackward {
        function: Activation,
        input: ValueId,
        gradient: ValueId,
        output: ValueId,
        bias_gradient: Option<ValueId>,
        write: Write,
    },
    /// The gradient of q, k and v; where keys and values were gathered, theirs in `keys_values_gradient`, of all
    /// tokens.
    AttentionBackward {
        qkv: ValueId,
        keys_values: Option<ValueId>,
        keys_values_gradient: Option<ValueId>,
        result: ValueId,
        statistics: ValueId,
        gradient: ValueId,
        output: ValueId,
        dropout: Option<String>,
    },
    /// Keys and values of q, k and v, one after the other.
    PackKeysValues { input: ValueId, output: ValueId },
    /// Keys and values (their gradients) into q, k and v.
    UnpackKeysValues { input: ValueId, output: ValueId },
    /// On the rank along `axis` that holds it, a panel of a tile.
    CopyPanel { panel: Panel, input: ValueId, output: ValueId },
    /// On the rank along `axis` that holds it, a panel back into its tile.
    StorePanel { panel: Panel, input: ValueId, output: ValueId, write: Write },
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
    /// Waits for a collective that the last step's update has issued; in the first step there is none.
    WaitCarried(Collective),
    /// Adds `input` to `output`.
    Accumulate { input: ValueId, output: ValueId, write: Write },
    /// Adds the squares of a gradient shard to the rank's sum, if the rank owns the shard.
    SumSquares { parameter: ParameterId, gradient: ValueId },
    /// Sums a scalar over ranks.
    ReduceScalar { scalar: Scalar, axes: AxisSet },
    /// The optimizer's update of one parameter shard.
    AdamW { parameter: ParameterId, value: ValueId, gradient: ValueId },
}

/// Which positions of a pass give logits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Wanted {
    /// Of each sequence the newest, after which a token is drawn.
    Newest,
    /// All.
    Every,
}

/// One of the panels that a SUMMA product cuts its contraction into.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Panel {
    /// Its number.
    pub index: usize,
    /// How many there are.
    pub count: usize,
    /// The axis over which they are spread.
    pub axis: Axis,
    /// Whether they are columns of the tile, or rows.
    pub of_columns: bool,
}

impl Panel {
    /// The coordinate on the axis, of `size`, of the ranks that hold it.
    pub fn holder(self, size: usize) -> usize {
        self.index * size / self.count
    }

    /// Its number among the panels of its holder.
    pub fn local_index(self, size: usize) -> usize {
        self.index % (self.count / size)
    }
}

/// An operation with the layer that it belongs to.
#[derive(Debug, Clone, PartialEq)]
pub struct Op {
    /// For ledgers and messages.
    pub layer: Layer,
    /// Whether only the step's first microbatch executes it.
    pub once: bool,
    /// Whether it serves the gradient of a weight, which schedules may put off.
    pub weight_gradient: bool,
    /// What to do.
    pub operation: Operation,
}

impl Operation {
    /// The local shape, if the operation is a product.
    pub fn product(&self, program: &StageProgram) -> Option<Product> {
        let Self::Gemm { storage, left, output, .. } = *self else { return None };
        let (left, output) = (program.value(left), program.value(output));
        let k = if storage == GemmStorage::Tn { left.local_rows } else { left.local_cols };
        Some(Product { storage, m: output.local_rows, n: output.local_cols, k })
    }

    /// The name in printed programs, ledgers and messages.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Embed { .. } => "embed",
            Self::Patches { .. } => "patches",
            Self::AddPositions { .. } => "add-positions",
            Self::Dropout { .. } => "dropout",
            Self::RowSums { .. } => "row-sums",
            Self::CenteredSquares { .. } => "centered-squares",
            Self::RowSquares { .. } => "row-squares",
            Self::Norm { .. } => "norm",
            Self::Gemm { pass: GemmPass::Forward, .. } => "gemm",
            Self::Gemm { pass: GemmPass::InputGradient, .. } => "gemm-input-gradient",
            Self::Gemm { pass: GemmPass::WeightGradient, .. } => "gemm-weight-gradient",
            Self::Bias { .. } => "bias",
            Self::Rotate { back: false, .. } => "rotate",
            Self::Rotate { back: true, .. } => "rotate-back",
            Self::BiasActivation { function: Activation::Gelu, .. } => "bias-gelu",
            Self::BiasActivation { function: Activation::Swiglu, .. } => "bias-swiglu",
            Self::Activation { function: Activation::Gelu, .. } => "gelu",
            Self::Activation { function: Activation::Swiglu, .. } => "swiglu",
            Self::Attention { .. } => "attention",
            Self::Residual { .. } => "residual",
            Self::CrossEntropyMax { .. } => "cross-entropy-max",
            Self::CrossEntropySums { .. } => "cross-entropy-sums",
            Self::CrossEntropyGradient { .. } => "cross-entropy-gradient",
            Self::SquaredError { .. } => "squared-error",
            Self::CrossEntropyLoss { .. } => "cross-entropy-loss",
            Self::SquaredErrorLoss { .. } => "squared-error-loss",
            Self::StoreKeysValues { .. } => "store-keys-values",
            Self::CachedAttention { .. } => "cached-attention",
            Self::CollectRows { .. } => "collect-rows",
            Self::EmbedBackward { .. } => "embed-backward",
            Self::PositionsBackward { .. } => "positions-backward",
            Self::NormBackwardSums { .. } => "norm-backward-sums",
            Self::NormBackward { .. } => "norm-backward",
            Self::BiasBackward { .. } => "bias-backward",
            Self::ActivationBackward { function: Activation::Gelu, .. } => "gelu-backward",
            Self::ActivationBackward { function: Activation::Swiglu, .. } => "swiglu-backward",
            Self::AttentionBackward { .. } => "attention-backward",
            Self::PackKeysValues { .. } => "pack-keys-values",
            Self::UnpackKeysValues { .. } => "unpack-keys-values",
            Self::CopyPanel { .. } => "copy-panel",
            Self::StorePanel { .. } => "store-panel",
            Self::Pack { .. } => "pack",
            Self::Unpack { .. } => "unpack",
            Self::SliceRows { .. } => "slice-rows",
            Self::SliceColumns { .. } => "slice-columns",
            Self::Issue(_) => "issue",
            Self::Wait(_) => "wait",
            Self::WaitCarried(_) => "wait-carried",
            Self::Accumulate { .. } => "accumulate",
            Self::SumSquares { .. } => "sum-squares",
            Self::ReduceScalar { .. } => "reduce-scalar",
            Self::AdamW { .. } => "adamw",
        }
    }
}
