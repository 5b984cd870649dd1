//! Checkpoints on disk: round trips, damage, and writers that fail.

mod common;
mod damage;
mod draft;
mod folder;
mod interrupted;
mod manifest;
mod prune;
mod round_trip;
