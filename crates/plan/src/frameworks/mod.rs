//! Capabilities of other frameworks, each with the option and the source file that decide it.
//!
//! One table: exports, refusals, searches and prices read it, so that they agree. The book's page is written from it, too.

mod axonn;
mod deepspeed;
mod megatron;
mod needs;
mod nemo;
mod rules;
mod torchtitan;

use std::fmt::Write as _;

use quadrille_cost::native::{self, Moments, NarrowFormat};
use quadrille_spec::{Recompute, Schedule};

use crate::export::Framework;

/// A part of a layout, or a type of numbers, that a framework may lack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Capability {
    /// Weights cut along both dimensions: y.
    Columns,
    /// Weights sharded and gathered for use: z.
    ShardedWeights,
    /// Sequences cut, with keys and values gathered: context.
    Context,
    /// Mixtures of experts, spread over ranks.
    Experts,
    /// Latent attention.
    LatentAttention,
    /// Products in panels that are broadcast.
    Summa,
    /// Activations between linear layers scattered over tensor parallelism.
    ScatteredActivations,
    /// Activations between linear layers repeated over tensor parallelism.
    ReplicatedActivations,
    /// Parts of a microbatch that hide each other's communication.
    OverlapChunks,
    /// A schedule of the pipeline.
    Pipeline(Schedule),
    /// Stages with unequal numbers of blocks.
    UnevenStages,
    /// Norms and activation functions computed again.
    SelectiveRecompute,
    /// Every block computed again from its input.
    FullRecompute,
    /// Several blocks computed again from the input of the first.
    RecomputeInterval,
    /// Recomputation that keeps the outputs of collectives.
    KeptCollectives,
    /// States of the optimizer sharded over data.
    ShardedStates,
    /// Gradients sharded over data.
    ShardedGradients,
    /// Gathered weights kept for the step.
    StepWeights,
    /// States of the optimizer in the host's memory.
    Offload,
    /// All-to-alls of experts under computation.
    HiddenAllToAlls,
    /// Vocabularies padded for each rank.
    PaddedVocabulary,
    /// Buffers of a fixed number of rows for dropless experts.
    ExpertRows,
    /// Products whose operands are cast to a narrow format.
    Products(NarrowFormat),
    /// Gradients of weights reduced and summed in bf16.
    NarrowGradients,
    /// Moments of the optimizer in a narrow type.
    Moments(Moments),
    /// Attention that stores its scores.
    StoredScores,
}

/// Number of capabilities.
const COUNT: usize = 34;

impl Capability {
    /// Every capability, in the order of the book's page, with its name there.
    pub const ALL: [(&'static str, Self); COUNT] = [
        ("weights cut along both dimensions (y)", Self::Columns),
        ("sharded weights (z)", Self::ShardedWeights),
        ("context parallelism, keys and values gathered", Self::Context),
        ("experts", Self::Experts),
        ("latent attention", Self::LatentAttention),
        ("SUMMA", Self::Summa),
        ("scattered activations", Self::ScatteredActivations),
        ("replicated activations", Self::ReplicatedActivations),
        ("overlap chunks", Self::OverlapChunks),
        ("schedule gpipe", Self::Pipeline(Schedule::Gpipe)),
        ("schedule 1f1b", Self::Pipeline(Schedule::OneForwardOneBackward)),
        ("schedule interleaved", Self::Pipeline(Schedule::Interleaved)),
        ("schedule zb-h1", Self::Pipeline(Schedule::ZeroBubble)),
        ("schedule message-driven", Self::Pipeline(Schedule::MessageDriven)),
        ("uneven stages", Self::UnevenStages),
        ("selective recomputation", Self::SelectiveRecompute),
        ("full recomputation", Self::FullRecompute),
        ("recomputation of several blocks (full:K)", Self::RecomputeInterval),
        ("kept outputs of collectives (cac)", Self::KeptCollectives),
        ("ZeRO 1", Self::ShardedStates),
        ("ZeRO 2", Self::ShardedGradients),
        ("gathered weights kept for the step", Self::StepWeights),
        ("offloaded states", Self::Offload),
        ("hidden all-to-alls of experts", Self::HiddenAllToAlls),
        ("padded vocabulary", Self::PaddedVocabulary),
        ("fixed rows of experts", Self::ExpertRows),
        ("products in fp8", Self::Products(NarrowFormat::Fp8)),
        ("products in fp8-block", Self::Products(NarrowFormat::Fp8Block)),
        ("products in mxfp8", Self::Products(NarrowFormat::Mxfp8)),
        ("products in nvfp4", Self::Products(NarrowFormat::Nvfp4)),
        ("gradients in bf16", Self::NarrowGradients),
        ("moments in bf16", Self::Moments(Moments::Bf16)),
        ("moments in fp8", Self::Moments(Moments::Fp8)),
        ("attention that stores scores", Self::StoredScores),
    ];

    /// The capability that a layout's recomputation needs.
    pub(crate) fn of_recompute(recompute: Recompute) -> Option<Self> {
        match recompute {
            Recompute::None => None,
            Recompute::Selective => Some(Self::SelectiveRecompute),
            Recompute::Full { every: 1 } => Some(Self::FullRecompute),
            Recompute::Full { .. } => Some(Self::RecomputeInterval),
        }
    }
}

/// How far a framework has a capability.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Support {
    /// As a layout means it.
    Whole,
    /// In another way: the text says which.
    Partial(&'static str),
    /// Not at all: the text says what happens instead.
    Absent(&'static str),
}

/// A statement about a framework.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Statement {
    /// The capability.
    pub capability: Capability,
    /// How far the framework has it.
    pub support: Support,
    /// The option that decides it, as the framework names it; of an absent capability the one that comes nearest.
    pub option: &'static str,
    /// The source file that defines the option.
    pub source: &'static str,
}

impl Statement {
    const fn whole(capability: Capability, option: &'static str, source: &'static str) -> Self {
        Self { capability, support: Support::Whole, option, source }
    }

    const fn partial(
        capability: Capability,
        instead: &'static str,
        option: &'static str,
        source: &'static str,
    ) -> Self {
        Self { capability, support: Support::Partial(instead), option, source }
    }

    const fn absent(capability: Capability, instead: &'static str, option: &'static str, source: &'static str) -> Self {
        Self { capability, support: Support::Absent(instead), option, source }
    }
}

impl Framework {
    /// The name under which the framework is published.
    pub fn title(self) -> &'static str {
        match self {
            Self::Megatron => "Megatron-LM",
            Self::Torchtitan => "torchtitan",
            Self::DeepSpeed => "DeepSpeed",
            Self::Nemo => "Megatron Bridge",
            Self::Axonn => "AxoNN",
        }
    }

    /// The release whose sources the statements were checked against.
    pub fn release(self) -> &'static str {
        match self {
            Self::Megatron => megatron::RELEASE,
            Self::Torchtitan => torchtitan::RELEASE,
            Self::DeepSpeed => deepspeed::RELEASE,
            Self::Nemo => nemo::RELEASE,
            Self::Axonn => axonn::RELEASE,
        }
    }

    /// The framework's part of the table: a statement for each of [`Capability::ALL`].
    pub fn statements(self) -> &'static [Statement] {
        match self {
            Self::Megatron => &megatron::STATEMENTS,
            Self::Torchtitan => &torchtitan::STATEMENTS,
            Self::DeepSpeed => &deepspeed::STATEMENTS,
            Self::Nemo => &nemo::STATEMENTS,
            Self::Axonn => &axonn::STATEMENTS,
        }
    }

    /// True if prices of `priced` are those of this framework: Megatron Bridge trains by Megatron-LM's core, and torchtitan by
    /// PyTorch's FSDP.
    pub fn is_priced_as(self, priced: &native::Framework) -> bool {
        match self {
            Self::Megatron | Self::Nemo => priced.name.starts_with(native::Framework::MEGATRON.name),
            Self::Torchtitan => priced.name == native::Framework::FSDP.name,
            Self::DeepSpeed | Self::Axonn => false,
        }
    }

    /// The framework whose rules layouts of `priced` keep, if they are known.
    pub fn of_priced(priced: &native::Framework) -> Option<Self> {
        Self::ALL.into_iter().map(|(_, framework)| framework).find(|framework| framework.is_priced_as(priced))
    }

    /// True if the framework has a capability as a layout means it.
    pub fn has(self, capability: Capability) -> bool {
        self.support(capability) == Support::Whole
    }

    /// How far the framework has a capability.
    pub fn support(self, capability: Capability) -> Support {
        let statement = self.statements().iter().find(|statement| statement.capability == capability);
        statement.map_or(Support::Absent("no statement is known"), |statement| statement.support)
    }
}

/// The table and the rules as a page of the book.
pub fn page() -> String {
    let mut page = PREFACE.to_owned();
    for (name, framework) in Framework::ALL {
        let _ = write!(
            page,
            "\n## {}\n\n`--to {name}`, checked against {}.\n\n| capability | | option | source |\n|---|---|---|---|\n",
            framework.title(),
            framework.release()
        );
        for (statement, (capability, _)) in framework.statements().iter().zip(Capability::ALL) {
            let support = match statement.support {
                Support::Whole => "yes".to_owned(),
                Support::Partial(instead) => format!("in part: {instead}"),
                Support::Absent(instead) => format!("no: {instead}"),
            };
            let Statement { option, source, .. } = statement;
            let _ = writeln!(page, "| {capability} | {support} | `{option}` | `{source}` |");
        }
        let rules: Vec<_> = framework.rules().collect();
        if !rules.is_empty() {
            page += "\nIt starts only layouts that keep these rules:\n\n";
        }
        for (rule, source) in rules {
            let _ = writeln!(page, "- {rule}: `{source}`");
        }
    }
    page
}

const PREFACE: &str = "# Frameworks

Statements about other frameworks, each with the option and the source file that decide it. This page is the table from which
`export` writes options and gaps, and `plan` takes its search space. `plan`, `explain --price` and `export` refuse a layout that breaks a
rule, and a type of numbers that a framework lacks; with `--any-layout`, `plan` and `explain` price it. A fixed choice that a framework
lacks, or has in another way, is priced as in the layout, with a note in all three. Layouts for `--framework fsdp` keep the rules of torchtitan, those for `megatron-stored` the rules of Megatron-LM.

torchtitan took TOML files until release 0.2.2 (February 2026); from 0.3.0 on the model is chosen by `--module` and a Python function
by `--config`, and the keys below are flags such as `--parallelism.tensor_parallel_degree`.
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_framework_has_one_statement_for_each_capability() {
        for (name, framework) in Framework::ALL {
            let stated: Vec<_> = framework.statements().iter().map(|statement| statement.capability).collect();
            assert_eq!(stated, Capability::ALL.map(|(_, capability)| capability), "{name}");
            for statement in framework.statements() {
                assert!(!statement.option.is_empty() && !statement.source.is_empty(), "{name}: {statement:?}");
            }
        }
    }
}
