//! The closed form of a step's seconds against the simulation of its program.

use quadrille_cost::native::{Framework, NativeMachine};
use quadrille_cost::simulation::simulate;
use quadrille_spec::Schedule;

use crate::case::{Case, fixed, switched_off};
use crate::deviation::Deviation;

/// Seconds of the closed form over those of the simulation, less 1.
fn deviation(case: &Case) -> f64 {
    let (problem, c) = (case.problem(Framework::QUADRILLE), case.candidate());
    let price = problem.price(&c, &problem.block(&c));
    let simulated = simulate(&case.program(), &NativeMachine::new(&problem, &case.layout)).unwrap();
    price.seconds / simulated.step_seconds - 1.0
}

#[test]
fn plain_layouts_take_what_their_simulation_takes() {
    let stated = [
        (Schedule::Gpipe, 0.007, -0.38, 0.02),
        (Schedule::OneForwardOneBackward, 0.011, -0.38, 0.065),
        (Schedule::Interleaved, 0.031, -0.4, 0.14),
        (Schedule::ZeroBubble, 0.02, -0.38, 0.075),
        (Schedule::MessageDriven, 0.026, -0.38, 0.18),
    ];
    for (schedule, mean, least, greatest) in stated {
        let plain: Vec<Case> = fixed(schedule, 300).iter().filter_map(switched_off).collect();
        let all = Deviation::of(plain.iter().map(deviation));
        all.assert_within(&schedule.to_string(), mean, least, greatest);
    }
}

#[test]
fn layouts_with_any_switches_take_about_what_their_simulation_takes() {
    let stated = [
        (Schedule::Gpipe, 0.042, -0.38, 0.4),
        (Schedule::OneForwardOneBackward, 0.044, -0.38, 0.4),
        (Schedule::Interleaved, 0.063, -0.39, 0.4),
        (Schedule::ZeroBubble, 0.063, -0.38, 0.73),
        (Schedule::MessageDriven, 0.058, -0.4, 0.42),
    ];
    for (schedule, mean, least, greatest) in stated {
        let all = Deviation::of(fixed(schedule, 300).iter().map(deviation));
        all.assert_within(&schedule.to_string(), mean, least, greatest);
    }
}
