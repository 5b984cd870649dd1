//! What operations are made of, beside the values that they read and write.

use std::fmt;

use quadrille_spec::{Axis, AxisSet, Block, CollectiveKind, Grid, Model, Normalization};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Layer, ValueId};

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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
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

impl Product {
    /// `[m, n, k]` of each of so many products beside each other, if their rows are shared out equally.
    pub fn each(&self, groups: usize) -> [f64; 3] {
        let [m, n, k] = [self.m, self.n, self.k].map(|size| size as f64);
        match self.storage {
            GemmStorage::Tn => [m, n, k / groups as f64],
            GemmStorage::Nn | GemmStorage::Nt => [m / groups as f64, n, k],
        }
    }
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
    /// Tokens of the step and targets that are not ignored, which normalize the losses of routers.
    Batch,
    /// Sums of routers over tokens: the balance loss, the z loss, and choices that found no place; then the choices of
    /// each expert of each block that has some.
    Routers {
        /// Of all blocks.
        experts: usize,
    },
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Loss => "loss",
            Self::GradientNormSquared => "squared gradient norm",
            Self::Batch => "tokens and targets",
            Self::Routers { .. } => "losses and loads of routers",
        })
    }
}

impl Scalar {
    /// Bytes of a scalar: all are reduced, and choices sent, as 64-bit numbers.
    pub const BYTES: u64 = 8;

    /// How many numbers.
    pub fn elements(self) -> usize {
        match self {
            Self::Loss | Self::Batch => 2,
            Self::Routers { experts } => 3 + experts,
            Self::GradientNormSquared => 1,
        }
    }
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

/// The number of a block's kind among the model's ([`quadrille_spec::Blocks::kinds`]): operations of blocks that are made
/// alike differ in nothing but their values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BlockKind(pub usize);

impl BlockKind {
    /// Of the block that a layer of the model is; `None`: it is no block.
    pub fn at(model: &Model, layer: Layer) -> Option<Self> {
        let Layer::Block(place) = layer else { return None };
        Some(Self(model.blocks.kind_of(place)))
    }

    /// What the model says of it.
    pub fn of(self, model: &Model) -> &Block {
        &model.blocks.kinds()[self.0]
    }
}

/// What the model multiplies with a factor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scaled {
    /// Rows of the table of tokens.
    Embedding,
    /// What attention and perceptron give, in blocks of a kind.
    Branch(BlockKind),
}

impl Scaled {
    /// The factor.
    pub fn factor(self, model: &Model) -> f64 {
        match self {
            Self::Embedding => model.embedding_scale,
            Self::Branch(block) => block.of(model).residual.scale,
        }
    }
}

/// A norm of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NormOf {
    /// The one before the head.
    Final,
    /// Of the residual stream, and of what attention narrows it to, in blocks of a kind.
    Stream(BlockKind),
    /// Of queries or keys, in blocks of a kind that norms them.
    Heads(BlockKind),
}

impl NormOf {
    /// How it norms.
    pub fn rule(self, model: &Model) -> Normalization {
        match self {
            Self::Final => model.final_norm,
            Self::Stream(block) => block.of(model).norm,
            Self::Heads(block) => {
                let Block { attention, norm, .. } = block.of(model);
                attention.qk_norm.map_or(*norm, |of_heads| of_heads.rule)
            }
        }
    }
}

/// A place of the model where elements are dropped. Its text names the random numbers that choose them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DropoutSite {
    /// The sum of token and position embedding.
    Embedding,
    /// The probabilities of a block's attention.
    Attention(usize),
    /// The branch of a block's attention.
    Projection(usize),
    /// The branch of a block's perceptron.
    Down(usize),
}

impl fmt::Display for DropoutSite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Embedding => f.write_str("embedding"),
            Self::Attention(block) => write!(f, "block {block} attention"),
            Self::Projection(block) => write!(f, "block {block} projection"),
            Self::Down(block) => write!(f, "block {block} down"),
        }
    }
}
