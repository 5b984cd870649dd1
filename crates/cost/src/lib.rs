//! Prices layouts: the published communication models, one file each, and the simulation of a step program.

pub mod atp;
pub mod axonn;
pub mod lbnl;
pub mod megatron;
pub mod native;
pub mod simulation;
pub mod trace;
