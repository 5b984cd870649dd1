//! The choices of a layout or a model that are made by name.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{NormedOver, QueryKeyNorm, SpecError, by_name, named};

/// How activations lie between the linear layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Activations {
    /// Rows are cut over x outside and over y inside a block: sequence parallelism over two axes.
    Scattered,
    /// The residual stream is repeated over x and the inner stream over y, as in AxoNN and classic Megatron.
    Replicated,
}

named!(Activations, "activation layout", { "scattered" => Scattered, "replicated" => Replicated });

/// The type in which values are stored: weights, activations, their gradients, logits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ElementType {
    /// 32-bit floating point.
    F32,
    /// 64-bit floating point, for proofs.
    F64,
    /// The upper 16 bits of an `f32`: its range with 8 significant bits.
    Bf16,
    /// IEEE's 16-bit floating point: 11 significant bits, up to 65,504.
    F16,
}

named!(ElementType, "element type", { "f32" => F32, "f64" => F64, "bf16" => Bf16, "f16" => F16 });

impl ElementType {
    /// Bytes of an element.
    pub fn bytes(self) -> u64 {
        match self {
            Self::Bf16 | Self::F16 => 2,
            Self::F32 | Self::F64 => self.real().bytes(),
        }
    }

    /// The type that values are computed in; sums, vectors, masters and moments are of it.
    pub fn real(self) -> RealType {
        match self {
            Self::F32 | Self::Bf16 | Self::F16 => RealType::F32,
            Self::F64 => RealType::F64,
        }
    }

    /// Whether values are stored in fewer bits than they are computed in.
    pub fn is_narrow(self) -> bool {
        self.bytes() < self.real().bytes()
    }
}

impl From<RealType> for ElementType {
    fn from(real: RealType) -> Self {
        match real {
            RealType::F32 => Self::F32,
            RealType::F64 => Self::F64,
        }
    }
}

/// A type that is computed in, and that checkpoints hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RealType {
    /// 32-bit floating point.
    F32,
    /// 64-bit floating point, for proofs.
    F64,
}

named!(RealType, "type of numbers", { "f32" => F32, "f64" => F64 });

impl RealType {
    /// Bytes of a number.
    pub fn bytes(self) -> u64 {
        match self {
            Self::F32 => 4,
            Self::F64 => 8,
        }
    }
}

/// The kind of a norm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Norm {
    /// Mean and variance of a row; scale and shift.
    Layer,
    /// Mean square of a row; scale only.
    Rms,
}

named!(Norm, "norm", { "layer" => Layer, "rms" => Rms });

impl Norm {
    /// Parameter vectors.
    pub fn vectors(self) -> usize {
        match self {
            Self::Layer => 2,
            Self::Rms => 1,
        }
    }
}

/// How attention knows positions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Positions {
    /// A trained table is added to the embedding.
    Learned,
    /// Queries and keys are turned by angles that grow with the position (RoPE), halves of a head paired.
    Rotary,
    /// By its mask alone.
    None,
}

named!(Positions, "positions", { "learned" => Learned, "rotary" => Rotary, "none" => None });

/// How queries and keys are normed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum QkNorm {
    /// Not at all.
    None,
    /// By a layer norm of each head.
    Layer,
    /// By an RMS norm of each head.
    Rms,
    /// By a layer norm of all heads together.
    LayerAll,
    /// By an RMS norm of all heads together.
    RmsAll,
}

named!(QkNorm, "norm of queries and keys", {
    "none" => None,
    "layer" => Layer,
    "rms" => Rms,
    "layer-all" => LayerAll,
    "rms-all" => RmsAll,
});

impl QkNorm {
    /// The choice that gives these norms.
    pub fn of(norm: Option<QueryKeyNorm>) -> Self {
        match norm.map(|norm| (norm.rule.kind, norm.over)) {
            None => Self::None,
            Some((Norm::Layer, NormedOver::Head)) => Self::Layer,
            Some((Norm::Rms, NormedOver::Head)) => Self::Rms,
            Some((Norm::Layer, NormedOver::AllHeads)) => Self::LayerAll,
            Some((Norm::Rms, NormedOver::AllHeads)) => Self::RmsAll,
        }
    }

    /// The kind of norm and what it takes together, if there are norms.
    pub(crate) fn norm(self) -> Option<(Norm, NormedOver)> {
        match self {
            Self::None => None,
            Self::Layer => Some((Norm::Layer, NormedOver::Head)),
            Self::Rms => Some((Norm::Rms, NormedOver::Head)),
            Self::LayerAll => Some((Norm::Layer, NormedOver::AllHeads)),
            Self::RmsAll => Some((Norm::Rms, NormedOver::AllHeads)),
        }
    }
}

/// Where norms of the residual stream stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NormPlace {
    /// What attention and perceptron read is normed.
    Before,
    /// What they give is normed, before it is added to the stream (OLMo 2).
    After,
    /// Both, each by a norm of its own (Gemma 2).
    Both,
}

named!(NormPlace, "place of norms", { "before" => Before, "after" => After, "both" => Both });

impl NormPlace {
    /// Whether what a layer reads is normed.
    pub fn is_before(self) -> bool {
        self != Self::After
    }

    /// Whether what a layer gives is normed.
    pub fn is_after(self) -> bool {
        self != Self::Before
    }
}

/// What the perceptron reads and is added to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ResidualOrder {
    /// It reads the stream to which attention has been added.
    Sequential,
    /// It reads what attention reads, each by a norm of its own, and both are added (GPT-NeoX).
    Parallel,
}

named!(ResidualOrder, "order of attention and perceptron", { "sequential" => Sequential, "parallel" => Parallel });

/// What a router makes of its logits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RouterScores {
    /// Parts of 1 over all experts.
    Softmax,
    /// Each by itself, `1 / (1 + e^-x)` (DeepSeek-V3).
    Sigmoid,
}

named!(RouterScores, "router", { "softmax" => Softmax, "sigmoid" => Sigmoid });

/// The tokens over which the loads of experts are balanced by a loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BalanceScope {
    /// Those of every sequence by themselves (DeepSeek-V3).
    Sequence,
    /// All of a step (Qwen3).
    Batch,
    /// There is no such loss.
    None,
}

named!(BalanceScope, "scope of the balance loss", { "sequence" => Sequence, "batch" => Batch, "none" => None });

/// Who has the places of an expert that more tokens choose than it has places for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DropOrder {
    /// All first choices in the order of tokens, then all second ones.
    Choice,
    /// The highest weights; of equal ones first choices, then earlier tokens.
    Score,
}

named!(DropOrder, "order of dropping", { "choice" => Choice, "score" => Score });

/// What ranks along x, which hold the same tokens where activations are replicated, send to experts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Dispatch {
    /// Each its part of the rows, which are gathered where the experts are (TED's duplicate token dropping).
    Dropped,
    /// Each all of them.
    Duplicated,
}

named!(Dispatch, "dispatch to experts", { "dropped" => Dropped, "duplicated" => Duplicated });

/// How rotary frequencies are scaled for sequences longer than a model was first trained with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RotaryRule {
    /// Not at all.
    None,
    /// All alike.
    Linear,
    /// Slow ones only, with a ramp between (Llama 3.1).
    Llama3,
    /// The same, with a ramp over pairs (YaRN).
    Yarn,
}

named!(RotaryRule, "scaling of rotary positions", { "none" => None, "linear" => Linear, "llama3" => Llama3, "yarn" => Yarn });

/// The function between the two layers of the perceptron.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Activation {
    /// GELU in its tanh form.
    Gelu,
    /// `silu(gate) * up`.
    Swiglu,
    /// `x / (1 + e^-x)`.
    Silu,
    /// `max(x, 0)`.
    Relu,
    /// `max(x, 0)^2`.
    Relu2,
    /// `gelu(gate) * up`.
    Geglu,
    /// `relu(gate) * up`.
    Reglu,
    /// GELU by the error function, `x Phi(x)`, `Phi` the normal distribution (Hendrycks and Gimpel 2016).
    #[serde(rename = "gelu-erf")]
    GeluErf,
}

named!(Activation, "activation", {
    "gelu" => Gelu,
    "swiglu" => Swiglu,
    "silu" => Silu,
    "relu" => Relu,
    "relu2" => Relu2,
    "geglu" => Geglu,
    "reglu" => Reglu,
    "gelu-erf" => GeluErf,
});

impl Activation {
    /// Columns that one output needs.
    pub fn inputs(self) -> usize {
        match self {
            Self::Gelu | Self::GeluErf | Self::Silu | Self::Relu | Self::Relu2 => 1,
            Self::Swiglu | Self::Geglu | Self::Reglu => 2,
        }
    }
}

/// How linear layers are multiplied over the x-y mesh.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Linear {
    /// AxoNN's parallel matrix multiplication: whole tiles, partial sums reduced (SC24, Algorithm 1).
    Pmm,
    /// SUMMA: activations cut over both axes, panels of both operands broadcast (LBNL, appendix, Algorithm 1).
    Summa,
}

named!(Linear, "linear algorithm", { "pmm" => Pmm, "summa" => Summa });

/// The order of passes over microbatches in a pipeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Schedule {
    /// All forward passes, then all backward passes.
    #[serde(rename = "gpipe")]
    Gpipe,
    /// PipeDream-Flush: a forward and a backward pass in turn.
    #[serde(rename = "1f1b")]
    OneForwardOneBackward,
    /// 1F1B over several chunks of layers per stage (Megatron-LM PTD-P, section 2.2).
    #[serde(rename = "interleaved")]
    Interleaved,
    /// ZB-H1: weight gradients apart, where a stage would be idle.
    #[serde(rename = "zb-h1")]
    ZeroBubble,
    /// AxoNN's: whatever message has arrived is worked on, backward first, at most as many microbatches in flight as
    /// there are stages.
    #[serde(rename = "message-driven")]
    MessageDriven,
}

impl Schedule {
    /// Passes of all stages in a step: a forward and a backward pass of every piece for every microbatch, and one for weight gradients
    /// where they are apart.
    pub fn passes(self, stages: usize, chunks: usize, microbatches: usize) -> usize {
        let kinds = if self == Self::ZeroBubble { 3 } else { 2 };
        microbatches.saturating_mul(kinds * stages * chunks)
    }
}

named!(Schedule, "schedule", {
    "gpipe" => Gpipe,
    "1f1b" => OneForwardOneBackward,
    "interleaved" => Interleaved,
    "zb-h1" => ZeroBubble,
    "message-driven" => MessageDriven,
});

/// What the forward pass does not keep, but the backward pass computes again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Recompute {
    /// Everything is kept.
    None,
    /// Outputs of norms and of the activation function are computed again: what is cheap and, beside flash-style
    /// attention (which keeps no scores), still large.
    Selective,
    /// Only the inputs of every `every`-th block of a chunk are kept.
    Full {
        /// Blocks between two kept inputs.
        every: usize,
    },
}

impl fmt::Display for Recompute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Selective => f.write_str("selective"),
            Self::Full { every: 1 } => f.write_str("full"),
            Self::Full { every } => write!(f, "full:{every}"),
        }
    }
}

impl FromStr for Recompute {
    type Err = SpecError;

    /// Reads `none`, `selective`, `full` or `full:K`.
    fn from_str(text: &str) -> Result<Self, SpecError> {
        if let Some(every) = text.strip_prefix("full:") {
            return match every.parse() {
                Ok(every) if every > 0 => Ok(Self::Full { every }),
                _ => Err(SpecError::Syntax {
                    what: "a recompute choice",
                    text: text.to_owned(),
                    reason: "full:K keeps the input of every K-th block, K at least 1, e.g. 'full:2'".to_owned(),
                }),
            };
        }
        let known = [("none", Self::None), ("selective", Self::Selective), ("full", Self::Full { every: 1 })];
        by_name("recompute choice", text, &known)
    }
}

/// What is sharded over the axes that replicate weights, data, expert and context (ZeRO).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Zero {
    /// Nothing: gradients are all-reduced.
    Off,
    /// The optimizer's states: reduce-scatter, update, all-gather.
    Optimizer,
    /// Gradients of weights as well: reduce-scattered after every microbatch.
    Gradients,
}

named!(Zero, "ZeRO stage", { "0" => Off, "1" => Optimizer, "2" => Gradients });

/// How long weights that were gathered over z are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum KeepWeights {
    /// For one product: they are gathered again for the backward pass.
    Use,
    /// For the step: they are gathered once.
    Step,
}

named!(KeepWeights, "time to keep gathered weights", { "use" => Use, "step" => Step });

/// Where the optimizer's states lie between updates: masters and moments of what a rank updates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Offload {
    /// On the device.
    None,
    /// In the host's memory: they come to the device a bucket at a time, and go back (dissertation, ch. 3).
    Host,
}

named!(Offload, "place of optimizer states", { "none" => None, "host" => Host });

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weight_gradients_apart_are_a_third_pass() {
        assert_eq!(Schedule::OneForwardOneBackward.passes(4, 1, 8), 2 * 4 * 8);
        assert_eq!(Schedule::Interleaved.passes(4, 3, 8), 2 * 4 * 3 * 8);
        assert_eq!(Schedule::ZeroBubble.passes(4, 1, 8), 3 * 4 * 8);
    }

    #[test]
    fn texts_round_trip() {
        fn check<T: FromStr<Err = SpecError> + fmt::Display>(texts: &[&str]) {
            for text in texts {
                assert_eq!(text.parse::<T>().map(|choice| choice.to_string()).unwrap(), *text);
            }
            assert!("other".parse::<T>().is_err());
        }
        check::<Activations>(&["scattered", "replicated"]);
        check::<ElementType>(&["f32", "f64", "bf16", "f16"]);
        check::<RealType>(&["f32", "f64"]);
        check::<Linear>(&["pmm", "summa"]);
        check::<Schedule>(&Schedule::ALL.map(|(name, _)| name));
        check::<Recompute>(&["none", "selective", "full", "full:3"]);
        check::<Zero>(&["0", "1", "2"]);
        check::<Norm>(&["layer", "rms"]);
        check::<Positions>(&["learned", "rotary"]);
        check::<Activation>(&["gelu", "swiglu"]);
        check::<RouterScores>(&["softmax", "sigmoid"]);
        check::<BalanceScope>(&["sequence", "batch", "none"]);
        check::<DropOrder>(&["choice", "score"]);
        check::<KeepWeights>(&["use", "step"]);
        check::<Offload>(&["none", "host"]);
        assert!("full:0".parse::<Recompute>().is_err());
    }
}
