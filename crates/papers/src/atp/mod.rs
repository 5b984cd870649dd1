//! ATP's model of column- and row-first tensor parallelism on two-dimensional meshes (Cheng et al., "ATP: Adaptive
//! Tensor Parallelism for Foundation Models", 2023): the hierarchical communication matrix of an interconnect, the
//! bandwidths that the two dimensions of a mesh get from it (equations 3 and 4), the time of communication (equation 2),
//! and the mesh for which it is least.
//!
//! In this repository's axes dimension 1 is `x` and dimension 2 is `y`, with replicated activations; dimension 2 varies
//! fastest over the devices. Nothing is overlapped and latencies are left out.
//!
//! Letters: `d1`, `d2` sizes of the mesh, `B1'`, `B2'` bandwidths that links give its dimensions, `B1`, `B2` those of
//! an all-reduce over them; `L` layers, `b` sequences, `s` tokens each, `h` hidden. All bandwidths in bytes per second.

mod interconnect;
mod matrix;
mod mesh;
mod search;
mod workload;

pub use interconnect::{Interconnect, KnownBandwidths};
pub use matrix::{HierarchicalMatrix, MatrixLayer};
pub use mesh::Mesh;
pub use search::{Dimension, Found, NoMesh, PUBLISHED_BATCH, Search};
pub use workload::{AllReduce, Candidate, Counts, Workload, check_described};
