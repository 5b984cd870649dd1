//! Holds simulated steps against closed forms and numbers worked out by hand.

mod common;
mod copies;
mod network;
mod pictures;
mod pipeline;
mod repeats;
mod streams;
