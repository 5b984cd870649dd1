//! The same step by three schedules: drawn, with what each keeps in memory; then one of them executed, and its counted
//! memory beside the predicted one.
//!
//! `cargo run --release -p quadrille --example timeline`

use quadrille::comm::{JobOptions, run_ranks};
use quadrille::cost::simulation::{DeviceRates, RingNetwork, UniformMachine, simulate, timeline};
use quadrille::engine::{Cpu, Hyper, InitialValues, RankEngine, random_batch};
use quadrille::prelude::*;
use quadrille::spec::MemoryClass;
use quadrille::step::{StepProgram, predict_rank};

pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    let model = Model::preset("gpt-tiny")?.reshaped(|m| m.layers = 8);
    let rates = DeviceRates {
        gemm_flop_per_s: 1e9,
        attention_flop_per_s: 1e9,
        memory_bytes_per_s: f64::INFINITY,
        operation_latency_s: 0.0,
    };
    let machine = UniformMachine { rates, network: RingNetwork::FREE };
    for schedule in [Schedule::Gpipe, Schedule::OneForwardOneBackward, Schedule::ZeroBubble] {
        let request = LayoutRequest { schedule, ..LayoutRequest::new("pipe=4".parse()?, 8) };
        let program = StepProgram::new(&model, &Layout::new(&model, &request)?)?;
        println!("{schedule}\n{}", timeline(&simulate(&program, &machine)?, 100));
        for rank in 0..program.layout.grid.ranks() {
            let memory = predict_rank(&program, rank).memory;
            println!("stage {rank}: activations {} bytes at most", memory.peak_of[&MemoryClass::Activations]);
        }
        println!();
    }

    let request = LayoutRequest::new("pipe=4".parse()?, 8);
    let program = StepProgram::new(&model, &Layout::new(&model, &request)?)?;
    let batch = random_batch(&model, 1, program.layout.seq_len);
    let counted = run_ranks(&JobOptions::new(4), |context| {
        let mut engine =
            RankEngine::<Cpu<f32>>::new(&program, context, 1, Hyper::default(), 1, InitialValues::Training)?;
        engine.step(&batch)?;
        Ok(engine.take_ledger())
    })?;
    for (rank, counted) in counted.iter().enumerate() {
        let equal = *counted == predict_rank(&program, rank);
        assert!(equal, "rank {rank} has counted other than was predicted");
        println!("rank {rank}: {} bytes at most, as predicted", counted.memory.peak);
    }
    Ok(())
}
