//! State of a rank: its storages, the samples of a microbatch, and where both lie in the logical model and batch.

pub(crate) mod borrower;
pub(crate) mod checkpoint_tiles;
pub(crate) mod initial;
pub(crate) mod kept;
pub(crate) mod masks;
pub(crate) mod random_batch;
pub(crate) mod rows;
pub(crate) mod samples;
pub(crate) mod shard;
pub(crate) mod step_state;
pub(crate) mod storages;
pub(crate) mod weights;
