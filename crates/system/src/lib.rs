//! What several crates need of the system below them: files that many threads read at any place, panics that become
//! errors, and enough open files.
//!
//! Data and checkpoints are read by calls and never mapped into memory. A mapped file that another program makes shorter
//! ends the process with a signal; here that is an error which can name the file.

mod files;
pub mod panics;

pub use files::{allow_open_files, read_exact_at};
