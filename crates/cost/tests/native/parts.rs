//! The parts of a step: that they add up, and that each is of what it is named after.

use std::collections::BTreeMap;

use proptest::prelude::*;
use quadrille_cost::native::{Framework, NativeMachine, Parts, Problem};
use quadrille_cost::simulation::{Lane, simulate};
use quadrille_spec::{Axis, AxisSet, Cluster, ElementType, Layout, LayoutRequest, Model, Overlap};

use crate::case::{any_case, described, frameworks, mixed};

proptest! {
    #![proptest_config(ProptestConfig { cases: 80, failure_persistence: None, ..ProptestConfig::default() })]

    /// A stage waits for collectives over some axes no longer than these are under way, whatever is before them on their stream.
    #[test]
    fn exposed_communication_is_at_most_what_its_axes_transfer(
        case in prop_oneof![any_case(), described(any_case()), mixed(any_case())]
    ) {
        // A pruned model may have no program.
        for framework in frameworks().filter(|framework| framework.sparsity.is_none()) {
            let problem = case.problem(framework);
            prop_assume!(problem.check_placed(&case.layout).is_ok());
            let program = problem.program(&case.layout).unwrap();
            let simulation = simulate(&program, &NativeMachine::new(&problem, &case.layout)).unwrap();
            let mut transfers: BTreeMap<(usize, AxisSet), f64> = BTreeMap::new();
            for event in &simulation.events {
                if let Lane::Axes(axes) = event.lane {
                    *transfers.entry((event.stage, axes)).or_default() += event.end_s - event.start_s;
                }
            }
            for (stage, times) in simulation.stages.iter().enumerate() {
                let near = (times.total_s() / simulation.step_seconds - 1.0).abs() < 1e-9;
                prop_assert!(near, "{}: {times:?} of {}", framework.name, simulation.step_seconds);
                for (axes, waited) in &times.waiting_on_collectives_s {
                    let moved = transfers.get(&(stage, *axes)).copied().unwrap_or(0.0);
                    let message = format!("{}: {waited} s of {moved} s over {axes:?}: {:?}", framework.name, case.layout);
                    prop_assert!(*waited <= moved + 1e-9 * simulation.step_seconds, "{message}");
                }
            }
            let Parts { compute, memory_bound, launch, communication, bubble, optimizer, data_loading } =
                problem.price_layout(&case.layout).unwrap().parts;
            let parts = communication.into_iter().chain([compute, memory_bound, launch, bubble, optimizer, data_loading]);
            prop_assert!(parts.clone().all(|part| part >= 0.0), "{:?}", parts.collect::<Vec<_>>());
        }
    }
}

/// Without overlap all that is sent is waited for; with it no axis has more of that, and the step is shorter by what is hidden. On
/// Frontier z crosses nodes, and activations over x queue behind weights that are gathered ahead.
#[test]
fn overlap_books_no_waiting_on_another_axis() {
    let model = Model::preset("gpt-80b").unwrap();
    let cluster = Cluster::preset("frontier").unwrap();
    let parts = |overlap: Overlap| {
        let grid = "x=8,z=128".parse().unwrap();
        let dtype = ElementType::Bf16;
        let request = LayoutRequest { overlap, dtype, per_node: Some(8), ..LayoutRequest::new(grid, 1024) };
        let layout = Layout::new(&model, &request).unwrap();
        let framework = Framework::own(dtype, ElementType::F32);
        let problem = Problem::new(&model, &cluster, framework, 1024, model.seq_len).unwrap();
        problem.price_layout(&layout).unwrap().parts
    };
    let [hidden, exposed] = [Overlap::ALL, Overlap::NONE].map(parts);
    let of = |parts: &Parts, axis: Axis| parts.communication[axis as usize];
    for axis in [Axis::X, Axis::Z] {
        let [waited, sent] = [&hidden, &exposed].map(|parts| of(parts, axis));
        assert!(waited <= sent * (1.0 + 1e-9), "{axis:?}: {waited} s of {sent}");
    }
    assert!(of(&exposed, Axis::Z) > 5.0 * of(&exposed, Axis::X));
    assert!(of(&hidden, Axis::Z) > of(&hidden, Axis::X), "{hidden:?}");
}
