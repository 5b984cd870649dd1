//! Holds the native model against the step program: its memory, its simulation, and what must not depend on numbers.

mod alignment;
mod bounds;
mod case;
mod expert;
mod expert_buffers;
mod fields;
mod fit;
mod imbalance;
mod parts;
mod program;
mod properties;
mod refusals;
mod windows;
