//! Ranks as threads: collectives, their algorithms, ledgers and failures.

mod algorithms;
mod chunks;
mod collectives;
mod failures;
mod ledger;
mod messages;
mod moved;
mod overlap;
mod spans;
