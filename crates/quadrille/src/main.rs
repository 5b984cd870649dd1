//! The program `quadrille`: its command line is the library's.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    quadrille::command_line::main()
}
