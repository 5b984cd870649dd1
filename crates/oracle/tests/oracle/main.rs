//! What makes the oracle one: finite differences, another program's numbers, invariants and hand calculation.

mod gradients;
mod invariants;
mod optimizer;
mod reference;
mod small;
