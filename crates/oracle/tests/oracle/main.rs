//! What makes the oracle one: finite differences, another program's numbers, invariants and hand calculation.

mod expert_gradients;
mod experts;
mod gradients;
mod invariants;
mod optimizer;
mod reference;
mod small;
