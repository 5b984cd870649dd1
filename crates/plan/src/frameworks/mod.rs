//! Capabilities of other frameworks, each with the option and the source file that decide it.
//!
//! One table: exports, refusals, searches and prices read it, so that they agree. The book's page is written from it, too.

mod axonn;
mod deepspeed;
mod megatron;
mod nemo;
mod rules;
mod torchtitan;

use quadrille_cost::native::{self, Moments, NarrowFormat};

use crate::export::Framework;

/// A part of a layout, or a type of numbers, that a framework may lack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Capability {
    /// Products whose operands are cast to a narrow format.
    Products(NarrowFormat),
    /// Gradients of weights reduced and summed in bf16.
    NarrowGradients,
    /// Moments of the optimizer in a narrow type.
    Moments(Moments),
    /// Attention that stores its scores.
    StoredScores,
}

impl Capability {
    /// Every capability, in the order of the book's page.
    pub const ALL: [Self; 8] = [
        Self::Products(NarrowFormat::Fp8),
        Self::Products(NarrowFormat::Fp8Block),
        Self::Products(NarrowFormat::Mxfp8),
        Self::Products(NarrowFormat::Nvfp4),
        Self::NarrowGradients,
        Self::Moments(Moments::Bf16),
        Self::Moments(Moments::Fp8),
        Self::StoredScores,
    ];
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

    /// How far the framework has a capability.
    pub fn support(self, capability: Capability) -> Support {
        let statement = self.statements().iter().find(|statement| statement.capability == capability);
        statement.map_or(Support::Absent("no statement is known"), |statement| statement.support)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_framework_has_one_statement_for_each_capability() {
        for (name, framework) in Framework::ALL {
            let stated: Vec<_> = framework.statements().iter().map(|statement| statement.capability).collect();
            assert_eq!(stated, Capability::ALL, "{name}");
            for statement in framework.statements() {
                assert!(!statement.option.is_empty() && !statement.source.is_empty(), "{name}: {statement:?}");
            }
        }
    }
}
