//! The binary, run in a folder.

use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Runs `quadrille` with the words of `line` in `folder`, with nothing on standard input.
pub fn run(folder: &Path, line: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_quadrille"));
    command.args(line.split_whitespace()).current_dir(folder).stdin(Stdio::null()).output().unwrap()
}
