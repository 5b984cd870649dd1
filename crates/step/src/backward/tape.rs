//! What the forward pass records for the backward pass.

use quadrille_spec::Activation;

use crate::operation::{BlockKind, DropoutSite, NormOf, Scaled};
use crate::{ParameterId, ValueId};

/// What the forward pass did, with what its backward needs. `input` is the value as used, `output` the result.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Node {
    Embed {
        table: ParameterId,
        output: ValueId,
    },
    AddPositions {
        positions: ParameterId,
        input: ValueId,
        output: ValueId,
    },
    Dropout {
        site: DropoutSite,
        input: ValueId,
        output: ValueId,
    },
    Norm(NormNode),
    /// `kept`: what the weight gradient is made of: the input, or a copy.
    Linear {
        weight: ParameterId,
        input: ValueId,
        kept: ValueId,
        output: ValueId,
    },
    Bias {
        bias: ParameterId,
        input: ValueId,
        output: ValueId,
    },
    Activation {
        function: Activation,
        bias: Option<ParameterId>,
        input: ValueId,
        output: ValueId,
        activated: ValueId,
    },
    Scale {
        of: Scaled,
        input: ValueId,
        output: ValueId,
    },
    HeadNorm(HeadNormNode),
    JoinLatent(JoinNode),
    SplitHeads {
        block: BlockKind,
        input: ValueId,
        queries: ValueId,
        keys: ValueId,
    },
    /// `beside` is what they were split from.
    JoinHeads {
        block: BlockKind,
        queries: ValueId,
        keys: ValueId,
        beside: ValueId,
        output: ValueId,
    },
    Rotate {
        block: usize,
        input: ValueId,
        output: ValueId,
    },
    Attention {
        block: usize,
        qkv: ValueId,
        output: ValueId,
        statistics: ValueId,
        dropout: Option<DropoutSite>,
    },
    Stream {
        input: ValueId,
        output: ValueId,
    },
    Receive {
        received: ValueId,
        x: ValueId,
    },
    Send {
        x: ValueId,
        sent: ValueId,
    },
    Residual {
        bias: Option<ParameterId>,
        input: ValueId,
        residual: ValueId,
        output: ValueId,
        dropout: Option<DropoutSite>,
    },
    Head {
        weight: ParameterId,
        input: ValueId,
        logits: ValueId,
    },
    PatchEmbedding {
        weight: ParameterId,
        input: ValueId,
        output: ValueId,
    },
    PatchHead {
        weight: ParameterId,
        input: ValueId,
        output: ValueId,
    },
    Router {
        weight: ParameterId,
        input: ValueId,
        output: ValueId,
    },
    Route(RouteNode),
    Dispatch {
        block: BlockKind,
        input: ValueId,
        routes: ValueId,
        output: ValueId,
    },
    Combine {
        block: BlockKind,
        input: ValueId,
        routes: ValueId,
        output: ValueId,
    },
    Sum {
        inputs: [ValueId; 2],
        output: ValueId,
    },
    Loss {
        predictions: ValueId,
        gradient: ValueId,
    },
    Reshard {
        input: ValueId,
        output: ValueId,
    },
    /// What is kept for the node that follows.
    Keep {
        kept: ValueId,
    },
}

/// What the backward of a norm needs; an RMS norm has neither beta nor sums.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NormNode {
    pub of: NormOf,
    pub gamma: ParameterId,
    pub beta: Option<ParameterId>,
    pub input: ValueId,
    pub sums: Option<ValueId>,
    pub squares: ValueId,
    pub output: ValueId,
}

/// What the backward of a choice of experts needs. The gradient of `routes` is that of the weights among them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RouteNode {
    pub block: BlockKind,
    pub logits: ValueId,
    pub routes: ValueId,
    pub counts: Option<ValueId>,
    pub bias: Option<ParameterId>,
}

/// What the backward of joining queries, keys and values needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct JoinNode {
    pub block: BlockKind,
    pub queries: ValueId,
    pub keys_values: ValueId,
    pub shared: ValueId,
    pub output: ValueId,
}

/// What the backward of a norm of queries or keys needs: `raw` has them as they were before either norm.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HeadNormNode {
    pub block: usize,
    pub keys: bool,
    pub gamma: ParameterId,
    pub beta: Option<ParameterId>,
    pub raw: ValueId,
    pub input: ValueId,
    pub output: ValueId,
}
