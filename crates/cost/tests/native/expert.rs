//! Expert ranks of models without experts cost what data ranks at the same place cost.

use proptest::prelude::*;
use quadrille_cost::native::{Price, PriceError};
use quadrille_spec::Axis;

use crate::case::{Case, any_case, described, frameworks};

/// The price, with what communication over expert takes as data's.
fn as_data(case: &Case, framework: usize) -> Result<Price, PriceError> {
    let problem = case.problem(frameworks().nth(framework).unwrap());
    let mut price = problem.price_program(&mut problem.folded(&case.layout)?)?;
    let of_expert = std::mem::take(&mut price.parts.communication[Axis::Expert as usize]);
    price.parts.communication[Axis::Data as usize] += of_expert;
    Ok(price)
}

/// How many shares of the batch lie inside a node. Where nodes end amid them, a price knows of either axis those that all nodes
/// have in common.
fn inside(case: &Case) -> usize {
    let inside = case.candidate().inside;
    Axis::BATCH.map(|axis| inside[axis as usize]).iter().product()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn expert_ranks_cost_what_data_ranks_cost(
        case in prop_oneof![any_case().boxed(), described(any_case()).boxed()]
            .prop_filter("several shares", |case| case.layout.grid.batch_shares() > 1),
        framework in 0..frameworks().count(),
    ) {
        let whole = case.shared_out(1);
        let data = as_data(&whole, framework);
        for expert in case.expert_shares() {
            let shared = case.shared_out(expert);
            if inside(&shared) == inside(&whole) {
                prop_assert_eq!(&as_data(&shared, framework), &data, "expert={}", expert);
            }
        }
    }
}
