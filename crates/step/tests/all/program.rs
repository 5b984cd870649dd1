//! Programs as text: a changed collective is a changed line.

use quadrille_spec::{
    Activation, Activations, Layout, LayoutRequest, Linear, Model, Norm, Overlap, Positions, Recompute, Schedule, Zero,
};
use quadrille_step::{Generation, StepProgram, Wanted, print_program};

fn program_of(grid: &str, layers: usize, change: impl FnOnce(&mut LayoutRequest)) -> StepProgram {
    program_of_model(&Model { name: "test".to_owned(), ..Model::gpt(layers, 8, 2, 13, 4) }, grid, change)
}

fn program_of_model(model: &Model, grid: &str, change: impl FnOnce(&mut LayoutRequest)) -> StepProgram {
    let mut request = LayoutRequest::new(grid.parse().unwrap(), 8);
    change(&mut request);
    let layout = Layout::new(model, &request).unwrap();
    StepProgram::new(model, &layout).unwrap()
}

/// Four heads, of which two share a key.
fn llama() -> Model {
    Model::gpt(1, 8, 4, 13, 4).reshaped(|m| {
        m.name = "llama".to_owned();
        m.kv_heads = 2;
        m.ffn = 12;
        m.tied_head = false;
        m.biases = false;
        m.norm = Norm::Rms;
        m.positions = Positions::Rotary;
        m.activation = Activation::Swiglu;
    })
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
fn experts_spread_over_z_with_rows_sent_under_the_shared_perceptron() {
    let file = Model::preset_text("moe-tiny").unwrap();
    let changes = [("layers", "1"), ("shared_ffn", "8"), ("router_z_loss", "0.001"), ("experts", "4")];
    let changes = changes.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let model = Model::from_toml(file, &changes).unwrap();
    let spread = |request: &mut LayoutRequest| request.experts_over = Some("z,expert".parse().unwrap());
    insta::assert_snapshot!(print_program(&program_of_model(&model, "x=2,y=2,z=2,expert=2", spread)));
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

#[test]
fn llama_block_with_grouped_keys_over_context() {
    insta::assert_snapshot!(print_program(&program_of_model(&llama(), "x=2,y=2,context=2", |_| {})));
}

#[test]
fn llama_block_recomputed_selectively_in_summa() {
    let summa = |request: &mut LayoutRequest| {
        (request.linear, request.recompute) = (Linear::Summa, Recompute::Selective);
    };
    insta::assert_snapshot!(print_program(&program_of_model(&llama(), "x=2", summa)));
}

#[test]
fn an_evaluation_has_forward_passes_and_the_sum_of_the_loss() {
    let training = program_of_model(&llama(), "x=2,data=2,pipe=2", |request| request.zero = Zero::Optimizer);
    let evaluation = StepProgram::evaluation(&training.model, &training.layout).unwrap();
    insta::assert_snapshot!(print_program(&evaluation));
}

#[test]
fn a_pass_of_generation_reads_a_cache_and_gathers_the_newest_logits() {
    let layout = program_of_model(&llama(), "x=2,y=2,data=2,pipe=2", |_| ()).layout;
    let layout = layout.for_generation(&llama(), 2, 1).unwrap();
    let generation = Generation { capacity: 4, wanted: Wanted::Newest };
    insta::assert_snapshot!(print_program(&StepProgram::generation(&llama(), &layout, generation).unwrap()));
}
