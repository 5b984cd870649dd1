//! Why a file of measured runs cannot be read.

/// A place in a CSV file that breaks a rule.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum CsvError {
    /// The file does not have the columns that are read.
    #[error("line 1: the column '{column}' {rule}; {remedy}")]
    Header {
        /// The column's name.
        column: String,
        /// The rule that it breaks.
        rule: &'static str,
        /// What to do instead.
        remedy: String,
    },
    /// A line is no CSV, or has more or fewer cells than the header.
    #[error("line {line}: {reason}; write one cell per column, with quotes around those that hold commas")]
    Line {
        /// Counted from 1, the header included.
        line: u64,
        /// What the reader found.
        reason: String,
    },
    /// A cell holds what its column cannot.
    #[error("line {line}, column '{column}': '{value}' breaks the rule: {rule}; {remedy}")]
    Cell {
        /// Counted from 1, the header included.
        line: u64,
        /// The column's name.
        column: &'static str,
        /// What the cell holds.
        value: String,
        /// The rule that it breaks.
        rule: &'static str,
        /// What to do instead.
        remedy: String,
    },
}
