//! Checkpoints of Hugging Face, read and written.

mod checkpoints;
mod common;
mod damage;
mod round_trip;
