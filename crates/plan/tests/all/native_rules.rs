//! The native search knows the rules of layouts.

use proptest::prelude::*;
use quadrille_cost::native::Candidate;
use quadrille_draws::descriptions;
use quadrille_plan::native::Rules;
use quadrille_spec::{
    Activations, Axis, AxisSet, Dispatch, KeepWeights, Layout, Linear, Overlap, Recompute, Schedule, Zero,
};

use crate::problems::{FAMILIES, any_model};

/// Sizes that are often legal, and sometimes not.
fn size() -> impl Strategy<Value = usize> {
    prop_oneof![4 => Just(1_usize), 3 => Just(2), 1 => Just(3), 1 => Just(4), 1 => Just(5)]
}

fn candidate() -> impl Strategy<Value = Candidate> {
    let sizes = [size(), size(), size(), size(), size(), size(), size()];
    let switches = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>(), 0..5_usize, 0..3_usize);
    let numbers = (1..13_usize, prop_oneof![3 => Just(1_usize), 1 => Just(2)], 0..5_usize, 0..7_usize, 0..10_usize);
    (sizes, switches, numbers).prop_map(|(sizes, switches, (microbatch, overlap_chunks, chunks, panels, recompute))| {
        let (replicated, summa, keep_communicated, step, schedule, zero) = switches;
        Candidate {
            sizes,
            inside: [1; Axis::COUNT],
            microbatch,
            activations: if replicated { Activations::Replicated } else { Activations::Scattered },
            linear: if summa { Linear::Summa } else { Linear::Pmm },
            summa_panels: if summa { panels } else { 0 },
            overlap: Overlap::ALL,
            overlap_chunks,
            schedule: Schedule::ALL[schedule].1,
            chunks,
            recompute: match recompute {
                0..5 => Recompute::None,
                5 => Recompute::Selective,
                every => Recompute::Full { every: every - 5 },
            },
            keep_communicated,
            zero: Zero::ALL[zero].1,
            keep_weights: if step { KeepWeights::Step } else { KeepWeights::Use },
            bucket: None,
            experts_over: AxisSet::EMPTY,
            dispatch: Dispatch::Dropped,
            expert_rows: 0,
            vocab_multiple: [1, 1, 3][chunks % 3],
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn rules_are_those_of_layouts(
        candidate in candidate(),
        (number, layers, heads, description) in (0..FAMILIES + 2, 1..7_usize, 1..7_usize, descriptions()),
        (global_batch, seq_len) in (1..49_usize, 1..25_usize),
    ) {
        let model = any_model(number, layers, heads, &description);
        let rules = Rules { model: &model, global_batch, seq_len };
        let layout = Layout::new(&model, &candidate.request(global_batch, seq_len).unwrap());
        prop_assert_eq!(rules.check(&candidate).is_ok(), layout.is_ok(), "{:?}: {:?}", rules.check(&candidate), layout);
    }
}
