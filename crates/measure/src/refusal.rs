//! Input that cannot be used, in words that each caller spells in its own way.

use std::fmt;

/// A part of a description that messages name. A program calls it as it is called where measurements are described; a
/// command line may call it by a flag ([`Refusal::spelled`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Named {
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
    /// Milliseconds of a forward pass.
    PassMs,
    /// Bytes of buffers.
    Sizes,
    /// How collectives are carried out.
    Algorithms,
}

impl Named {
    /// What it is called where measurements are described.
    pub fn key(self) -> &'static str {
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
            Self::PassMs => "pass_ms",
            Self::Sizes => "sizes",
            Self::Algorithms => "algorithms",
        }
    }
}

/// Input that cannot be used: a rule that is broken, and what would help. It knows what it names, so that every caller may
/// spell that in its own way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    Name(Named),
}

impl Refusal {
    /// One that begins with words.
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self { parts: vec![Part::Text(text.into())] }
    }

    /// One that begins with a name.
    pub(crate) fn of(named: Named) -> Self {
        Self { parts: vec![Part::Name(named)] }
    }

    /// Goes on with words.
    #[must_use]
    pub(crate) fn text(mut self, text: impl Into<String>) -> Self {
        self.parts.push(Part::Text(text.into()));
        self
    }

    /// Goes on with a name.
    #[must_use]
    pub(crate) fn name(mut self, named: Named) -> Self {
        self.parts.push(Part::Name(named));
        self
    }

    /// What it names, in the order of the words.
    pub fn names(&self) -> impl Iterator<Item = Named> {
        self.parts.iter().filter_map(|part| match part {
            Part::Text(_) => None,
            Part::Name(named) => Some(*named),
        })
    }

    /// The words, with what `name` calls the parts of a description.
    pub fn spelled(&self, name: impl Fn(Named) -> String) -> String {
        let parts = self.parts.iter().map(|part| match part {
            Part::Text(text) => text.clone(),
            Part::Name(named) => name(*named),
        });
        parts.collect()
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.spelled(|named| format!("`{}`", named.key())))
    }
}

impl std::error::Error for Refusal {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_spelled_as_the_caller_calls_them() {
        let refusal = Refusal::of(Named::PerNode).text(" 3: use a divisor of ").name(Named::Ranks);
        assert_eq!(refusal.to_string(), "`per_node` 3: use a divisor of `ranks`");
        let spelled = refusal.spelled(|named| format!("--{}", named.key()));
        assert_eq!(spelled, "--per_node 3: use a divisor of --ranks");
        assert_eq!(refusal.names().collect::<Vec<_>>(), [Named::PerNode, Named::Ranks]);
    }
}
