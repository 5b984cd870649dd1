//! Input that cannot be used, in words that each caller spells in its own way.

use quadrille_spec::Unusable;

/// A part of a description that messages name. A program calls it as it is called where measurements are described; a
/// command line may call it by a flag ([`Refusal::spelled`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Setting {
    /// The number of ranks.
    Ranks,
    /// Ranks that share a node.
    PerNode,
    /// The cluster that is fitted, or for which times are predicted.
    Cluster,
    /// Logs of nccl-tests.
    NcclTests,
    /// Logs of the OSU benchmarks.
    Osu,
    /// A step that somebody measured, [`crate::step_fit::Step`].
    MeasuredStep,
    /// What ran the measured steps.
    Framework,
    /// Steps of each layout.
    Steps,
    /// Sequences in a step.
    GlobalBatch,
    /// The axes of grids.
    Axes,
    /// How many layouts are compared.
    Layouts,
    /// Milliseconds of a forward pass.
    PassMs,
    /// Bytes of buffers.
    Sizes,
    /// How collectives are carried out.
    Algorithms,
}

impl quadrille_spec::Named for Setting {
    fn key(self) -> &'static str {
        match self {
            Self::Ranks => "ranks",
            Self::PerNode => "per_node",
            Self::Cluster => "cluster",
            Self::NcclTests => "nccl_tests",
            Self::Osu => "osu",
            Self::MeasuredStep => "step",
            Self::Framework => "framework",
            Self::Steps => "steps",
            Self::GlobalBatch => "global_batch",
            Self::Axes => "axes",
            Self::Layouts => "layouts",
            Self::PassMs => "pass_ms",
            Self::Sizes => "sizes",
            Self::Algorithms => "algorithms",
        }
    }
}

/// What a measurement cannot use.
pub type Refusal = Unusable<Setting>;
