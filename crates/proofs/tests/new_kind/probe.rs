//! The kind that was added to the table, in a program.

use quadrille_cost::native::{Framework, NativeMachine, Problem};
use quadrille_cost::simulation::simulate;
use quadrille_spec::{Cluster, Layout, LayoutRequest, Model};
use quadrille_step::{Group, Op, StepProgram, kind, predict_rank, print_program};

/// Elements of the value that is looked at: 2 sequences of 4 tokens of 8 numbers.
const ELEMENTS: u64 = 2 * 4 * 8;

#[test]
fn it_is_printed_counted_priced_and_simulated() {
    let model = Model::gpt(1, 8, 2, 13, 4);
    let request = LayoutRequest { dtype: "f32".parse().unwrap(), ..LayoutRequest::new("x=1".parse().unwrap(), 2) };
    let layout = Layout::new(&model, &request).unwrap();
    let without = StepProgram::new(&model, &layout).unwrap();
    let mut with = without.clone();
    let stage = &mut with.stages[0];
    // Of the residual stream after the block's first operation that reads it.
    let ops = &mut stage.chunks[0].forward.ops;
    let at = ops.iter().position(|op| op.operation.name() == "add-positions").unwrap();
    let input = ops[at].operation.operands().writes()[0];
    let probe = Op { operation: kind::Probe { input, output: input }.into(), ..ops[at] };
    ops.insert(at + 1, probe);
    stage.place_storages();

    // Printed, under its group.
    assert!(print_program(&with).contains("probe") && !print_program(&without).contains("probe"));
    assert_eq!(Group::by_name("probe"), Some(Group::ElementWise));
    // Counted.
    let elements = |program| predict_rank(program, 0).elements;
    assert_eq!(elements(&with).get("probe"), Some(&ELEMENTS));
    assert_eq!(elements(&without).get("probe"), None);
    // Priced and simulated.
    let cluster = Cluster::preset("selene").unwrap();
    let problem = Problem::new(&model, &cluster, Framework::QUADRILLE, 2, 4).unwrap();
    let seconds = |program| simulate(program, &NativeMachine::new(&problem, &layout)).unwrap().step_seconds;
    assert!(seconds(&with) > seconds(&without));
}
