//! How far a measurement of several parts is.

/// What a measurement of several parts tells before each of them, and once at its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress<'a> {
    /// Parts that are done.
    pub done: usize,
    /// All parts.
    pub of: usize,
    /// The one that comes next; `None` at the end.
    pub next: Option<&'a str>,
}

/// Is told how far a measurement is.
pub type OnProgress<'a> = &'a mut dyn FnMut(Progress);
