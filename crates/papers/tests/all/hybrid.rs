//! Holds the closed forms of the dissertation's chapter 3 against numbers worked out by hand and against each other.

use proptest::prelude::*;
use quadrille_papers::axonn::{
    bucketed_bytes, data_parallel_bytes, kept_activations, kept_interval, mixed_precision_bytes,
};

#[test]
fn states_of_the_model_on_six_and_on_24_stages() {
    // 12 billion parameters: 2 billion on a GPU of 6 stages, half a billion on one of 24. Buckets of 16 million.
    assert_eq!([2e9, 0.5e9].map(mixed_precision_bytes), [40e9, 10e9]);
    assert_eq!([2e9, 0.5e9].map(|own| bucketed_bytes(own, 16e6)), [8.256e9, 2.256e9]);
    // What is fetched and stored, 12 bytes a parameter, and the gradient in f32 are what a bucket has.
    assert_eq!(mixed_precision_bytes(1.0) - bucketed_bytes(1.0, 0.0), bucketed_bytes(0.0, 1.0));
}

#[test]
fn intervals_of_the_examples() {
    assert_eq!([(48, 6), (48, 24), (96, 12)].map(|(layers, stages)| kept_interval(layers, stages)), [8, 2, 8]);
    // The root of 6 is nearer to 2 than to 3; that of 36 is a factor; one layer on a stage leaves no choice.
    assert_eq!((kept_interval(6, 1), kept_interval(36, 6), kept_interval(7, 7)), (2, 6, 1));
    assert_eq!(kept_activations(48, 6, 8.0), 6.0 + 1.0 + 8.0);
}

#[test]
fn four_times_the_gradients_on_four_times_the_gpus_are_seven_times_the_bytes() {
    assert_eq!(data_parallel_bytes(2e9, 8) / data_parallel_bytes(0.5e9, 2), 7.0);
    assert_eq!((data_parallel_bytes(1e9, 1), data_parallel_bytes(1e9, 2)), (0.0, 2e9));
}

proptest! {
    /// Equation 3.1 does not depend on the stages, is least at the root, and the chosen factor is at most as far as others.
    #[test]
    fn the_interval_is_the_factor_nearest_to_the_root(stages in 1_usize..20, own in 1_usize..40) {
        let layers = stages * own;
        let chosen = kept_interval(stages * own, stages);
        let root = (layers as f64).sqrt();
        prop_assert_eq!(own % chosen, 0);
        let least = kept_activations(layers, stages, root);
        for factor in (1..=own).filter(|factor| own.is_multiple_of(*factor)) {
            prop_assert!((chosen as f64 - root).abs() <= (factor as f64 - root).abs());
            prop_assert!(kept_activations(layers, stages, factor as f64) >= least * (1.0 - 1e-12));
        }
        let alone = kept_activations(layers, 1, root);
        prop_assert!((alone - least).abs() <= 1e-12 * least);
    }
}
