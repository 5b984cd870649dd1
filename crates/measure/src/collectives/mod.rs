//! Collectives between ranks by every algorithm.

mod measure;

pub use measure::{
    Buffers, Collective, Run, Runs, all_gather, all_reduce, all_to_all, broadcast, copy, reduce_scatter, slowest, time,
    times,
};
