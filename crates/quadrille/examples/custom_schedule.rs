//! A schedule of one's own: two forwards and two backwards in turn, drawn beside 1F1B, and proven.
//!
//! `cargo run --release -p quadrille --example custom_schedule`

use std::error::Error;

use quadrille::cost::simulation::{DeviceRates, RingNetwork, UniformMachine, simulate, timeline};
use quadrille::prelude::*;
use quadrille::proof::{Reference, VerifyOptions, verify_on_cpu};
use quadrille::step::schedule::{Action, Pass, Pipeline};
use quadrille::step::{StepProgram, predict_rank};

/// The passes of a stage: enough forwards to fill the pipeline, then two forwards after two backwards.
fn two_by_two(pipeline: Pipeline, stage: usize) -> Vec<Action> {
    let of = |pass, microbatch| Action { pass, microbatch, chunk: 0 };
    let microbatches = pipeline.microbatches;
    let ahead = 2 * (pipeline.stages - stage);
    let mut forward = 0;
    let mut list = Vec::new();
    for backward in (0..microbatches).step_by(2) {
        let until = (backward + ahead).min(microbatches);
        list.extend((forward..until).map(|microbatch| of(Pass::Forward, microbatch)));
        forward = until;
        list.extend((backward..microbatches.min(backward + 2)).map(|microbatch| of(Pass::Backward, microbatch)));
    }
    list
}

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let model = Model::preset("gpt-tiny")?.reshaped(|model| model.layers = 4);
    let request =
        LayoutRequest { dtype: ElementType::F64, microbatch: Some(1), ..LayoutRequest::new("pipe=4".parse()?, 8) };
    let layout = Layout::new(&model, &request)?;
    let pipeline = Pipeline::of(&layout);
    let lists: Vec<_> = (0..pipeline.stages).map(|stage| two_by_two(pipeline, stage)).collect();

    let rates = DeviceRates {
        gemm_flop_per_s: 1e9,
        attention_flop_per_s: 1e9,
        memory_bytes_per_s: f64::INFINITY,
        operation_latency_s: 0.0,
    };
    let machine = UniformMachine { rates, network: RingNetwork::FREE };
    let ours = StepProgram::with_actions(&model, &layout, &lists)?;
    for (name, program) in [("1f1b", &StepProgram::new(&model, &layout)?), ("two by two", &ours)] {
        let simulation = simulate(program, &machine)?;
        let memory = predict_rank(program, 0).memory.allocated;
        println!("{name}: {:.1} ms, first stage {memory} bytes", 1e3 * simulation.step_seconds);
        println!("{}", timeline(&simulation, 100));
    }

    let options = VerifyOptions::new(2, 1);
    let report = verify_on_cpu(&ours, &options, &mut Reference::new(&ours, &options))?;
    assert!(report.ok, "{:?}", report.failures);
    println!("two by two equals the serial model: gradients differ by {:.1e}", report.grad_diff);
    Ok(())
}
