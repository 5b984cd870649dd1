//! The price of a program against what its ledger counts and its simulation takes.

use proptest::prelude::*;
use quadrille_cost::native::{Framework, NativeMachine, Problem};
use quadrille_cost::simulation::simulate;
use quadrille_spec::{Block, Model, RotaryScaling};
use quadrille_step::predict_rank;

use crate::case::{Case, any_case, described, mixed};

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs().max(b.abs())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    /// Seconds are those of the events, memory is what the fullest rank allocates, FLOPs are those of all ranks.
    #[test]
    fn a_price_is_what_the_program_takes_allocates_and_computes(
        case in prop_oneof![any_case(), described(any_case()), mixed(any_case())]
    ) {
        let problem = case.problem(Framework::QUADRILLE);
        let program = case.program();
        prop_assume!(problem.check_placed(&case.layout).is_ok());
        let price = problem.price_layout(&case.layout).unwrap();
        let simulation = simulate(&program, &NativeMachine::new(&problem, &case.layout)).unwrap();
        prop_assert!(close(price.seconds, simulation.step_seconds), "{} and {}", price.seconds, simulation.step_seconds);
        prop_assert!(close(price.parts.total(), price.seconds), "{:?} of {}", price.parts, price.seconds);
        let ledgers: Vec<_> = (0..case.layout.grid.ranks()).map(|rank| predict_rank(&program, rank)).collect();
        let most = ledgers.iter().map(|ledger| ledger.memory.allocated).max().unwrap();
        prop_assert_eq!(price.memory.total(), most, "{:?}", case.layout);
        let flops: u64 = ledgers.iter().map(|ledger| ledger.flops.total()).sum();
        prop_assert!(close(price.executed_flops, flops as f64), "{} and {flops}", price.executed_flops);
    }

    /// What no work depends on changes no price: bounds tell blocks apart by their work alone.
    #[test]
    fn prices_do_not_depend_on_what_changes_results_only(case in described(any_case()), offset: bool) {
        let change = |block: &mut Block| {
            block.attention.cap = block.attention.cap.xor(Some(3.0));
            (block.norm.offset, block.norm.epsilon) = (offset, 1e-3);
            if let Some(rotary) = &mut block.attention.rotary {
                (rotary.base, rotary.scaling) = (77.0, RotaryScaling::Linear { factor: 2.0 });
            }
            if let Some(norm) = &mut block.attention.qk_norm {
                (norm.rule.offset, norm.rule.epsilon) = (!offset, 1e-4);
            }
        };
        let model = Model { blocks: case.model.blocks.each(change), ..case.model.clone() };
        let other = Case { model, ..case.clone() };
        for framework in Framework::ALL {
            let problem = case.problem(framework);
            prop_assume!(problem.check_placed(&case.layout).is_ok());
            let price = |problem: Problem| problem.price_layout(&case.layout).unwrap();
            prop_assert_eq!(price(problem), price(other.problem(framework)), "{}", framework.name);
        }
    }

    /// Of other frameworks: the parts of a step are those of its events, and more is executed than the model needs.
    #[test]
    fn prices_of_other_frameworks_are_sums_of_their_parts(
        case in prop_oneof![any_case(), described(any_case()), mixed(any_case())]
    ) {
        for framework in Framework::ALL.into_iter().filter(|framework| !framework.is_own()) {
            let problem = case.problem(framework);
            prop_assume!(problem.check_placed(&case.layout).is_ok());
            let price = problem.price_layout(&case.layout).unwrap();
            let program = problem.program(&case.layout).unwrap();
            let simulation = simulate(&program, &NativeMachine::new(&problem, &case.layout)).unwrap();
            prop_assert!(close(price.seconds, simulation.step_seconds), "{} {}", price.seconds, simulation.step_seconds);
            prop_assert!(close(price.parts.total(), price.seconds), "{:?} of {}", price.parts, price.seconds);
            prop_assert!(price.model_flops <= price.executed_flops * (1.0 + 1e-9), "{price:?}");
            let ledgers = (0..case.layout.grid.ranks()).map(|rank| predict_rank(&program, rank));
            let most = ledgers.map(|ledger| ledger.memory.peak).max().unwrap();
            prop_assert_eq!(price.memory.total() - framework.reserved_on(case.cluster.device_memory), most, "{:?}", case.layout);
        }
    }
}
