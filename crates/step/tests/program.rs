//! Programs as text: a changed collective is a changed line.

use quadrille_spec::{Activations, ElementType, Layout, LayoutRequest, Model, Overlap};
use quadrille_step::{StepProgram, print_program};

fn program(grid: &str, activations: Activations, overlap: Overlap) -> StepProgram {
    let model = Model {
        name: "test".to_owned(),
        layers: 1,
        hidden: 8,
        heads: 2,
        ffn: 32,
        vocab: 13,
        seq_len: 4,
        tied_head: true,
        biases: true,
        dropout: 0.0,
        norm_epsilon: 1e-5,
    };
    let request = LayoutRequest {
        grid: grid.parse().unwrap(),
        per_node: None,
        activations,
        overlap,
        global_batch: 8,
        microbatch: None,
        seq_len: None,
        dtype: ElementType::F32,
    };
    let layout = Layout::new(&model, &request).unwrap();
    StepProgram::new(&model, &layout).unwrap()
}

#[test]
fn scattered_program_on_a_4d_grid() {
    insta::assert_snapshot!(print_program(&program("x=2,y=2,z=2,data=2", Activations::Scattered, Overlap::NONE)));
}

#[test]
fn replicated_program_on_a_4d_grid() {
    insta::assert_snapshot!(print_program(&program("x=2,y=2,z=2,data=2", Activations::Replicated, Overlap::NONE)));
}

#[test]
fn overlapped_program_on_a_4d_grid() {
    insta::assert_snapshot!(print_program(&program("x=2,y=2,z=2,data=2", Activations::Scattered, Overlap::ALL)));
}

#[test]
fn serial_program_has_no_collectives() {
    insta::assert_snapshot!(print_program(&program("x=1", Activations::Scattered, Overlap::ALL)));
}
