//! Random models on random layouts give the serial model's losses, gradients, norms and weights; replicas are equal in
//! every bit, and predicted and counted ledgers as integers.

use proptest::prelude::*;
use quadrille_proofs::{cases, combined_cases, described_cases, for_random, holds};
use quadrille_spec::{ElementType, Model, Norm, NormedOver};

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn layouts_equal_the_serial_model(case in cases()) {
        holds(&case, ElementType::F64)?;
    }

    #[test]
    fn other_layouts_equal_the_serial_model(case in cases()) {
        holds(&case, ElementType::F64)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn single_precision_is_close_to_the_serial_model(case in cases()) {
        holds(&case, ElementType::F32)?;
    }
}

#[test]
fn combined_layouts_equal_the_serial_model() {
    for_random(40, combined_cases(), |case| holds(&case, ElementType::F64));
}

#[test]
fn combined_layouts_in_single_precision_are_close_to_the_serial_model_too() {
    for_random(20, combined_cases(), |case| holds(&case, ElementType::F32));
}

#[test]
fn layouts_of_described_blocks_equal_the_serial_model() {
    for_random(60, described_cases(), |case| holds(&case, ElementType::F64));
}

#[test]
fn described_blocks_in_single_precision_are_close_to_the_serial_model() {
    for_random(
        20,
        described_cases(),
        |case| if norms_pairs(&case.model) { Ok(()) } else { holds(&case, ElementType::F32) },
    );
}

/// Whether two or three numbers of a head are normed by their mean: of two it leaves the signs, whose gradients are what the epsilon
/// and rounding leave.
fn norms_pairs(model: &Model) -> bool {
    model.blocks.kinds().iter().any(|block| {
        let norm = block.attention.qk_norm;
        let few = block.attention.head_dim < 4;
        norm.is_some_and(|norm| few && norm.over == NormedOver::Head && norm.rule.kind == Norm::Layer)
    })
}
