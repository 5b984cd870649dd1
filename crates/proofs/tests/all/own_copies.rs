//! What the engine and the serial model each have a copy of says the same: short runs against the serial model see a
//! schedule at few steps, and a mask at few elements.

use proptest::prelude::*;
use quadrille_engine::{Hyper, schedule};
use quadrille_oracle::{DropoutSeed, LearningRate, Mask};
use quadrille_proofs::model;
use quadrille_spec::{Dropout, Model};

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn learning_rates_are_the_oracles_at_every_step(
        (peak, final_fraction) in (1e-6..1.0, 0.0..=1.0_f64),
        (warmup_steps, steps) in (0..50_u64, 1..200_u64),
    ) {
        let hyper = Hyper { learning_rate: peak, final_fraction, warmup_steps, steps, ..Hyper::DEFAULT };
        let rate = LearningRate { peak, final_fraction, warmup_steps, steps };
        for step in 1..steps + 20 {
            let found = schedule(&hyper, step);
            let expected = rate.at(step);
            prop_assert!((found - expected).abs() <= 1e-14 * peak, "step {}: {} {}", step, found, expected);
        }
    }

    #[test]
    fn dropout_is_the_oracles_at_every_element(rate in 0.001..0.999, seed: u64, step in 0..1000_u64) {
        let model = Model { dropout: rate, ..model(1) };
        let mask = Mask::new(&model, Some(DropoutSeed { seed, step }), "block 0 attention");
        let dropout = Dropout::new(seed, "block 0 attention", step, rate);
        for index in 0..20_000 {
            let factor = if dropout.keeps(index as u64) { dropout.scale } else { 0.0 };
            prop_assert!((factor - mask.factor(index)).abs() <= 1e-15 * factor, "element {}", index);
        }
    }
}
