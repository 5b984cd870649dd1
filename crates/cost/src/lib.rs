//! Prices of step programs: their simulation, and what layouts of a framework cost on a cluster.

pub mod native;
pub mod simulation;
pub mod trace;
