//! How far a study is.

use std::fmt;

/// What a run of a study is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// It takes steps.
    Training,
    /// Its model writes the ends of the documents.
    Writing,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Training => "training",
            Self::Writing => "writing",
        })
    }
}

/// How far a study is: told when a part begins, after every step and after every token.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Progress {
    /// The run: `plain` or `goldfish`.
    pub run: &'static str,
    /// What it is at.
    pub part: Part,
    /// Steps or tokens that are done.
    pub done: u64,
    /// All of them.
    pub of: u64,
    /// The loss of the last step, if there was one.
    pub loss: Option<f64>,
}

/// Is told how far a study is.
pub type OnProgress<'a> = &'a mut (dyn FnMut(&Progress) + Send);
