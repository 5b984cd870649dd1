//! `equality` with 3000 cases; takes minutes. Run it with
//! `cargo test -p quadrille-proofs --features long --test long`.

use proptest::prelude::*;
use quadrille_proofs::{cases, combined_cases, described_cases, for_random, holds};
use quadrille_spec::ElementType;

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn three_thousand_layouts_equal_the_serial_model(case in cases()) {
        holds(&case, ElementType::F64)?;
    }
}

#[test]
fn three_hundred_combined_layouts_equal_the_serial_model() {
    for_random(300, combined_cases(), |case| holds(&case, ElementType::F64));
}

#[test]
fn three_hundred_layouts_of_described_blocks_equal_the_serial_model() {
    for_random(300, described_cases(), |case| holds(&case, ElementType::F64));
}
