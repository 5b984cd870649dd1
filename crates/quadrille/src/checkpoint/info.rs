//! What a checkpoint is of, its tensors and its files.

use quadrille_report::checkpoint::{contents_document, contents_text};

use super::{InfoArguments, find};
use crate::failure::Failure;
use crate::output::{print_json, print_text};

/// Prints a table or a document.
pub fn run(arguments: &InfoArguments) -> Result<(), Failure> {
    let checkpoint = find(&arguments.folder)?;
    if arguments.json {
        return print_json(&contents_document(&checkpoint)?);
    }
    print_text(&contents_text(&checkpoint)?)
}
