//! Lines of JSON lines, or rows of tables, without a text.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::TextRules;
use crate::DataError;

/// Units in which documents are counted in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LineUnit {
    /// A line of JSON lines.
    Line,
    /// A row of a table.
    Row,
}

impl LineUnit {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Line => "line",
            Self::Row => "row",
        }
    }
}

/// Lines or rows of a file that were skipped because they hold no text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkippedLines {
    /// Lines or rows.
    pub unit: LineUnit,
    /// Number of skipped lines.
    pub count: u64,
    /// Number of the first one in the file, from 1 on.
    pub first: u64,
    /// Reason why the first one holds no text.
    pub reason: String,
}

/// Documents of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct DocumentCount {
    /// Number of documents.
    pub documents: u64,
    /// Lines between them that were skipped.
    pub skipped: Option<SkippedLines>,
}

/// Counts lines without a text, or refuses the first one.
#[derive(Debug)]
pub(super) struct BadLines {
    are_skipped: bool,
    unit: LineUnit,
    skipped: Option<SkippedLines>,
}

impl BadLines {
    pub fn new(rules: TextRules, unit: LineUnit) -> Self {
        Self { are_skipped: rules.skip_bad_lines, unit, skipped: None }
    }

    /// Counts the line, or returns its error where lines are not skipped.
    pub fn add(&mut self, line: u64, reason: String, error: impl FnOnce(String) -> DataError) -> Result<(), DataError> {
        if !self.are_skipped {
            return Err(error(reason));
        }
        match &mut self.skipped {
            Some(skipped) => skipped.count += 1,
            None => self.skipped = Some(SkippedLines { unit: self.unit, count: 1, first: line, reason }),
        }
        Ok(())
    }

    /// The lines counted so far.
    pub fn skipped(&self) -> Option<&SkippedLines> {
        self.skipped.as_ref()
    }
}
