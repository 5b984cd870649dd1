//! The program `quadrille`.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    quadrille_cli::command_line::main()
}
