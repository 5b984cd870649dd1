//! Input that cannot be used, in words that each caller spells in its own way.

use std::fmt;

/// What messages name: a choice, a part of a description.
pub trait Named: Copy + fmt::Debug {
    /// What it is called where it is described.
    fn key(self) -> &'static str;
}

/// Input that cannot be used: a rule that is broken, and what would help. It knows what it names, so that every caller may
/// spell that in its own way: a library by keys, a command line by flags ([`Unusable::spelled`]).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unusable<N> {
    parts: Vec<Part<N>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part<N> {
    Text(String),
    Name(N),
}

impl<N: Named> Unusable<N> {
    /// One that begins with words.
    pub fn new(text: impl Into<String>) -> Self {
        Self { parts: vec![Part::Text(text.into())] }
    }

    /// One that begins with a name.
    pub fn of(name: N) -> Self {
        Self { parts: vec![Part::Name(name)] }
    }

    /// Goes on with words.
    #[must_use]
    pub fn text(mut self, text: impl Into<String>) -> Self {
        self.parts.push(Part::Text(text.into()));
        self
    }

    /// Goes on with a name.
    #[must_use]
    pub fn name(mut self, name: N) -> Self {
        self.parts.push(Part::Name(name));
        self
    }

    /// What it names, in the order of the words.
    pub fn names(&self) -> impl Iterator<Item = N> {
        self.parts.iter().filter_map(|part| match part {
            Part::Text(_) => None,
            Part::Name(name) => Some(*name),
        })
    }

    /// The words, with the names that the caller gives.
    pub fn spelled(&self, call: impl Fn(N) -> String) -> String {
        let parts = self.parts.iter().map(|part| match part {
            Part::Text(text) => text.clone(),
            Part::Name(name) => call(*name),
        });
        parts.collect()
    }
}

impl<N: Named> fmt::Display for Unusable<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.spelled(|name| format!("`{}`", name.key())))
    }
}

impl<N: Named> std::error::Error for Unusable<N> {}

/// What is at fault for an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blame {
    /// What was asked for, or a file that it names: asking again as before fails again.
    Input,
    /// The work: a rank, the machine, the disk.
    Work,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Clone, Copy, PartialEq)]
    enum Choice {
        PerNode,
        Ranks,
    }

    impl Named for Choice {
        fn key(self) -> &'static str {
            match self {
                Self::PerNode => "per_node",
                Self::Ranks => "ranks",
            }
        }
    }

    #[test]
    fn names_are_spelled_as_the_caller_calls_them() {
        let unusable = Unusable::of(Choice::PerNode).text(" 3: use a divisor of ").name(Choice::Ranks);
        assert_eq!(unusable.to_string(), "`per_node` 3: use a divisor of `ranks`");
        let spelled = unusable.spelled(|name| name.key().to_uppercase());
        assert_eq!(spelled, "PER_NODE 3: use a divisor of RANKS");
        assert_eq!(unusable.names().collect::<Vec<_>>(), [Choice::PerNode, Choice::Ranks]);
    }
}
