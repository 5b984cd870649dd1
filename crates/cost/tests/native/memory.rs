//! Memory in closed form against the memory of the step program, followed from value to value.

use proptest::prelude::*;
use quadrille_cost::native::{Framework, Memory};
use quadrille_spec::{Axis, MemoryClass, MemoryLedger, Schedule};
use quadrille_step::{StepProgram, predict_rank};

use crate::case::{Case, any_case, cases, fixed, switched_off};
use crate::deviation::Deviation;

/// A rank of the stage whose ZeRO shards have no padding.
fn rank_of(program: &StepProgram, stage: usize) -> usize {
    let grid = &program.layout.grid;
    let is_it = |rank: &usize| {
        let place = grid.coordinate(*rank);
        place.on(Axis::Pipe) == stage && place.on(Axis::Data) == 0 && place.on(Axis::Context) == 0
    };
    (0..grid.ranks()).find(is_it).unwrap()
}

/// The memory of each stage.
fn ledgers(program: &StepProgram) -> Vec<MemoryLedger> {
    (0..program.stages.len()).map(|stage| predict_rank(program, rank_of(program, stage)).memory).collect()
}

fn memory(case: &Case) -> Memory {
    let (problem, c) = (case.problem(Framework::QUADRILLE), case.candidate());
    problem.memory(&c, &problem.block(&c))
}

/// Bytes of the closed form over those of the fullest rank, less 1.
fn deviation(case: &Case) -> f64 {
    let most = ledgers(&case.program()).iter().map(|ledger| ledger.peak).max().unwrap();
    memory(case).total() as f64 / most as f64 - 1.0
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn states_are_those_of_the_ledger(case in any_case()) {
        let memory = memory(&case);
        let ledger = &ledgers(&case.program())[memory.stage];
        let peak = |class| ledger.peak_of.get(&class).copied().unwrap_or(0);
        let states = [memory.parameters, memory.gradients, memory.optimizer];
        let counted = [MemoryClass::Parameters, MemoryClass::Gradients, MemoryClass::Optimizer].map(peak);
        prop_assert_eq!(states, counted, "stage {} of {:?}", memory.stage, case.layout);
    }

    /// Whatever is switched on. Of 15,000 layouts, the worst took 11 % more than the closed form says.
    #[test]
    fn layouts_take_hardly_more_than_the_closed_form(case in any_case()) {
        prop_assert!(deviation(&case) >= -0.15, "{:?}", case.layout);
    }

    /// Without switches, 1F1B and GPipe need what the closed form says, or less.
    #[test]
    fn plain_layouts_fit_into_the_closed_form(
        case in prop_oneof![cases(Schedule::Gpipe), cases(Schedule::OneForwardOneBackward)]
    ) {
        if let Some(case) = switched_off(&case) {
            prop_assert!(deviation(&case) >= 0.0, "{:?}", case.layout);
        }
    }
}

#[test]
fn one_stage_without_switches_is_exact_but_for_its_ends() {
    let alone = |case: &Case| {
        let layout = &case.layout;
        // On several blocks the most is at the first or the last of them, both of which are followed.
        layout.grid.size(Axis::Pipe) == 1 && layout.grid.size(Axis::Z) == 1 && case.model.layers() >= 2
    };
    let cases = fixed(Schedule::OneForwardOneBackward, 400);
    let plain: Vec<Case> = cases.iter().filter(|case| alone(case)).filter_map(switched_off).collect();
    let exact = plain.iter().filter(|case| deviation(case) == 0.0).count();
    assert!(plain.len() >= 10 && 10 * exact >= 8 * plain.len(), "{exact} of {}", plain.len());
}

/// Over all switches, on models of few and narrow blocks, where what the closed form rounds up weighs most. `below`: how
/// many of a hundred layouts take more than it says.
#[test]
fn deviations_over_all_switches_are_as_stated() {
    let stated = [
        (Schedule::Gpipe, 0.05, -0.03, 0.75, 2.0),
        (Schedule::OneForwardOneBackward, 0.065, -0.03, 0.75, 2.5),
        (Schedule::Interleaved, 0.06, -0.055, 1.0, 2.0),
        (Schedule::ZeroBubble, 0.1, -0.006, 0.95, 0.6),
        (Schedule::MessageDriven, 0.065, -0.04, 0.9, 5.0),
    ];
    for (schedule, mean, least, greatest, below) in stated {
        let deviations: Vec<f64> = fixed(schedule, 600).iter().map(deviation).collect();
        let less = deviations.iter().filter(|deviation| **deviation < 0.0).count();
        let all = Deviation::of(deviations.into_iter());
        all.assert_within(&schedule.to_string(), mean, least, greatest);
        assert!(100.0 * less as f64 <= below * all.count as f64, "{schedule}: {less} layouts take more");
    }
}
