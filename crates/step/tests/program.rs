//! Programs as text: a changed collective is a changed line.

use quadrille_spec::{Activations, Layout, LayoutRequest, Linear, Model, Overlap, Recompute, Schedule, Zero};
use quadrille_step::{StepProgram, print_program};

fn program_of(grid: &str, layers: usize, change: impl FnOnce(&mut LayoutRequest)) -> StepProgram {
    let model = Model {
        name: "test".to_owned(),
        layers,
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
    let mut request = LayoutRequest::new(grid.parse().unwrap(), 8);
    change(&mut request);
    let layout = Layout::new(&model, &request).unwrap();
    StepProgram::new(&model, &layout).unwrap()
}

fn program(grid: &str, activations: Activations, overlap: Overlap) -> StepProgram {
    program_of(grid, 1, |request| (request.activations, request.overlap) = (activations, overlap))
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

#[test]
fn pipeline_with_scatter_gather_and_a_tied_table() {
    let pipeline = |request: &mut LayoutRequest| {
        (request.activations, request.microbatch) = (Activations::Replicated, Some(4));
    };
    insta::assert_snapshot!(print_program(&program_of("x=2,pipe=2", 2, pipeline)));
}

#[test]
fn zero_bubble_stage_puts_off_weight_gradients() {
    let zero_bubble = |request: &mut LayoutRequest| request.schedule = Schedule::ZeroBubble;
    let program = program_of("pipe=2", 2, zero_bubble);
    insta::assert_snapshot!(print_program(&program));
}

#[test]
fn context_gathers_keys_and_values() {
    insta::assert_snapshot!(print_program(&program_of("context=2", 1, |_| {})));
}

#[test]
fn summa_broadcasts_panels() {
    insta::assert_snapshot!(print_program(&program_of("x=2,y=2", 1, |request| request.linear = Linear::Summa)));
}

#[test]
fn full_recomputation_keeps_what_was_communicated() {
    let full = |request: &mut LayoutRequest| {
        (request.recompute, request.keep_communicated) = (Recompute::Full { every: 1 }, true);
    };
    insta::assert_snapshot!(print_program(&program_of("x=2,z=2", 1, full)));
}

#[test]
fn selective_recomputation_repeats_norms_and_gelu() {
    let selective = |request: &mut LayoutRequest| request.recompute = Recompute::Selective;
    insta::assert_snapshot!(print_program(&program_of("x=2", 1, selective)));
}

#[test]
fn sharded_states_and_gradients() {
    insta::assert_snapshot!(print_program(&program_of("z=2,data=2", 1, |request| request.zero = Zero::Gradients)));
}

#[test]
fn interleaved_overlap_chunks() {
    insta::assert_snapshot!(print_program(&program_of("x=2", 1, |request| request.overlap_chunks = 2)));
}
