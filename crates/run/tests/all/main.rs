//! Runs: their specification and their folders.

mod runs;
mod spec;
