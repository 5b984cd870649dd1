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
    let simulated = simulate(&case.program(), &NativeMachine::new(&problem, &c)).unwrap();
    price.seconds / simulated.step_seconds - 1.0
}

#[test]
fn plain_layouts_take_what_their_simulation_takes() {
    let stated = [
        (Schedule::Gpipe, 0.002, -0.055, 0.045),
        (Schedule::OneForwardOneBackward, 0.01, -0.19, 0.07),
        (Schedule::Interleaved, 0.03, -0.35, 0.13),
        (Schedule::ZeroBubble, 0.02, -0.19, 0.07),
        (Schedule::MessageDriven, 0.03, -0.24, 0.18),
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
        (Schedule::Gpipe, 0.045, -0.26, 0.5),
        (Schedule::OneForwardOneBackward, 0.045, -0.26, 0.5),
        (Schedule::Interleaved, 0.06, -0.36, 0.4),
        (Schedule::ZeroBubble, 0.075, -0.25, 0.65),
        (Schedule::MessageDriven, 0.055, -0.4, 0.45),
    ];
    for (schedule, mean, least, greatest) in stated {
        let all = Deviation::of(fixed(schedule, 300).iter().map(deviation));
        all.assert_within(&schedule.to_string(), mean, least, greatest);
    }
}
