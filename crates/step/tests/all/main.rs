//! Step programs: printed, folded, resized, scheduled.

mod flights;
mod folded;
mod parameters;
mod program;
mod reasons;
mod resize;
mod schedule;
mod table;
