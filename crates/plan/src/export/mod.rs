//! A layout as the launch flags or configuration of another framework.
//!
//! Pure: a model and a layout in, text out. What a framework has no word for is listed, never dropped; what would train
//! another model, or cannot have the layout's number of ranks, is refused.

mod attention;
mod axonn;
mod deepseek;
mod deepspeed;
mod experts;
mod fields;
mod gaps;
mod megatron;
mod model;
mod nemo;
mod numbers;
mod properties;
mod torchtitan;

use std::fmt;
use std::str::FromStr;

use crate::frameworks::{Capability, Support};
pub(crate) use gaps::{even_pieces, zero_capability};

use gaps::Gaps;
use quadrille_cost::native::{self, Numbers};
use quadrille_spec::{Axis, Classic, ElementType, Layout, Model, SpecError};

/// A framework that layouts are exported to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Framework {
    /// Megatron-LM: `torchrun` and the flags of `pretrain_gpt.py`.
    Megatron,
    /// torchtitan: its TOML configuration.
    Torchtitan,
    /// DeepSpeed: its JSON configuration.
    DeepSpeed,
    /// Megatron Bridge, which succeeds NeMo's language models: YAML overrides of a recipe.
    Nemo,
    /// AxoNN: calls of its Python interface.
    Axonn,
}

impl Framework {
    /// Every framework by the name that users write.
    pub const ALL: [(&'static str, Self); 5] = [
        ("megatron", Self::Megatron),
        ("torchtitan", Self::Torchtitan),
        ("deepspeed", Self::DeepSpeed),
        ("nemo", Self::Nemo),
        ("axonn", Self::Axonn),
    ];

    /// What it pads each rank's rows of a vocabulary to a multiple of, unless asked otherwise.
    pub fn vocab_multiple(self) -> usize {
        match self {
            Self::Megatron | Self::Nemo => native::Framework::MEGATRON.vocab_multiple,
            Self::Torchtitan | Self::DeepSpeed | Self::Axonn => 1,
        }
    }
}

impl fmt::Display for Framework {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Self::ALL.iter().filter(|(_, known)| known == self).try_for_each(|(name, _)| f.write_str(name))
    }
}

impl Framework {
    /// True if the framework has an option for the precision: torchtitan's `mixed_precision_param` is bfloat16 or float32.
    pub fn trains_in(self, precision: Precision) -> bool {
        (self, precision) != (Self::Torchtitan, Precision::F16)
    }
}

impl FromStr for Framework {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        Self::ALL.iter().find(|(name, _)| *name == text).map(|(_, framework)| *framework).ok_or_else(|| {
            SpecError::Unknown {
                what: "framework",
                name: text.to_owned(),
                known: Self::ALL.map(|(name, _)| name.to_owned()).to_vec(),
            }
        })
    }
}

/// The type of numbers that the framework is to compute in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precision {
    /// bf16 with master weights in f32.
    Bf16,
    /// f16 with master weights in f32 and a scaled loss.
    F16,
    /// f32 throughout.
    F32,
}

impl Precision {
    /// The precision in which values of a type are exported.
    pub fn of(dtype: ElementType) -> Self {
        match dtype {
            ElementType::Bf16 => Self::Bf16,
            ElementType::F16 => Self::F16,
            ElementType::F32 | ElementType::F64 => Self::F32,
        }
    }
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bf16 => "bf16",
            Self::F16 => "f16",
            Self::F32 => "f32",
        })
    }
}

/// What a layout leaves open.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Target {
    /// Devices of a node, each with a rank.
    pub gpus_per_node: usize,
    /// The type of numbers.
    pub precision: Precision,
    /// Types of gradients, moments and operands of products that were asked for: those that a framework lacks are errors.
    pub numbers: Numbers,
    /// The framework that the layout was planned for, with the types of its numbers: those that the exported framework lacks
    /// are named.
    pub planned: Option<native::Framework>,
}

impl Target {
    /// True if the layout was planned with attention that stores its scores.
    fn stores_scores(&self) -> bool {
        self.planned.is_some_and(|planned| planned.attention == native::AttentionKernel::Stored)
    }
}

/// A layout in a framework's words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Export {
    /// Flags, configuration or code; where the format has comments, they repeat `cannot_express`.
    pub text: String,
    /// Parts of the layout that the text does not say, each with what happens instead.
    pub cannot_express: Vec<String>,
}

/// Writes `layout` of `model` for `framework`.
///
/// # Errors
/// A number of devices in a node that does not divide the ranks; a model or an axis for which the framework has nothing
/// that computes the same; a rule of the framework without which it does not start ([`Framework::check`]); states that it does not
/// offload or store so.
pub fn export(framework: Framework, model: &Model, layout: &Layout, target: &Target) -> Result<Export, SpecError> {
    let classic = || classic(model, framework);
    let export = match framework {
        Framework::Megatron => megatron::export(&megatron::described(model)?, layout, target),
        Framework::Torchtitan => torchtitan::export(&torchtitan::described(model)?, layout, target),
        Framework::DeepSpeed => deepspeed::export(&classic()?, layout, target),
        Framework::Nemo => nemo::export(&nemo::described(model)?, layout, target),
        Framework::Axonn => axonn::export(&classic()?, layout, target),
    }?;
    framework.check(model, layout)?;
    framework.check_offload(layout)?;
    Ok(export)
}

/// True if the framework can number ranks as a layout does, with experts on the same ranks.
pub(crate) fn keeps_order(framework: Framework, has_experts: bool, layout: &Layout) -> bool {
    let gaps = Gaps::new(framework, layout);
    let spreads = !has_experts || gaps.spreads_first(&ORDER[..5]);
    spreads
        && match framework {
            Framework::Megatron | Framework::Nemo => {
                gaps.is_order(&ORDER) || megatron::has_pipe_before_data(&gaps, has_experts, layout)
            }
            Framework::Torchtitan | Framework::DeepSpeed => gaps.is_order(&ORDER),
            Framework::Axonn => gaps.is_order(&axonn::order(layout)),
        }
}

/// The order in which most frameworks number ranks, innermost first.
const ORDER: [Axis; 6] = [Axis::X, Axis::Y, Axis::Context, Axis::Z, Axis::Data, Axis::Pipe];

/// The sizes of a model for a framework whose exports write no experts.
fn classic(model: &Model, framework: Framework) -> Result<Classic, SpecError> {
    let mut experts = model.blocks.kinds().iter().filter_map(|block| block.feed_forward.experts());
    let instead = match framework.support(Capability::Experts) {
        Support::Absent(instead) => instead,
        Support::Whole | Support::Partial(_) => return Ok(model.classic()),
    };
    if let Some(experts) = experts.next() {
        let rule = format!("not in exports to {}: {instead}", framework.title());
        return Err(SpecError::invalid("experts", experts.count, rule, "export to megatron, nemo or torchtitan"));
    }
    Ok(model.classic())
}

/// The sizes of a grid by name. Expert ranks are data ranks, whatever experts do: what all frameworks call data parallelism.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    x: usize,
    y: usize,
    z: usize,
    context: usize,
    data: usize,
    /// Those of the data ranks over which experts are spread: the axis expert, or 1.
    spread_data: usize,
    pipe: usize,
}

impl Sizes {
    fn of(layout: &Layout) -> Self {
        let [x, y, z, context, pipe] =
            [Axis::X, Axis::Y, Axis::Z, Axis::Context, Axis::Pipe].map(|axis| layout.grid.size(axis));
        let spread_data = if layout.experts_over.contains(Axis::Expert) { layout.grid.size(Axis::Expert) } else { 1 };
        Self { x, y, z, context, data: layout.grid.batch_shares(), spread_data, pipe }
    }

    fn ranks(self) -> usize {
        self.x * self.y * self.z * self.context * self.data * self.pipe
    }
}

/// Nodes, and ranks on each.
fn nodes(layout: &Layout, target: &Target) -> Result<(usize, usize), SpecError> {
    let ranks = layout.grid.ranks();
    if target.gpus_per_node == 0 {
        return Err(SpecError::invalid("gpus-per-node", 0, "a node has at least one device", "give a positive number"));
    }
    let per_node = target.gpus_per_node.min(ranks);
    SpecError::check_divides("gpus-per-node", per_node, "the number of ranks", ranks)?;
    Ok((ranks / per_node, per_node))
}

/// The program trains causal models of tokens only.
fn check_language_model(model: &Classic, framework: &str) -> Result<(), SpecError> {
    if let Some(values) = model.patch_values {
        let rule = format!("{framework} trains models of tokens here, and {} reads patches", model.name);
        return Err(SpecError::invalid("patch_values", values, rule, "export to deepspeed or axonn"));
    }
    if !model.causal {
        let rule = format!("{framework} trains causal models here: each position attends to those before it");
        return Err(SpecError::invalid("causal", false, rule, "export to deepspeed or axonn"));
    }
    Ok(())
}

/// Comment lines: what is exported, what is left to the user, what is not expressed.
fn comments(model: &Classic, layout: &Layout, checked: &str, left: &str, gaps: &[String]) -> String {
    let mut text = format!("# {} on {} ({} ranks)\n", model.name, layout.grid, layout.grid.ranks());
    text += &format!("# {checked}\n# {left}\n");
    for gap in gaps {
        text += &format!("# Not expressed: {gap}\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for (name, framework) in Framework::ALL {
            assert_eq!(name.parse::<Framework>().unwrap(), framework);
            assert_eq!(framework.to_string(), name);
        }
        let message = "jax".parse::<Framework>().unwrap_err().to_string();
        assert_eq!(message, "unknown framework 'jax'; known: megatron, torchtitan, deepspeed, nemo, axonn");
    }
}
