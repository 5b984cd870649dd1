//! One training step of a small model on a 2x2x2 grid: what was predicted beside what was executed.
//!
//! `cargo run --release --example sharded_step`

use std::time::Duration;

use quadrille_engine::{Hyper, InitialValues, StepRecord, TrainOptions, random_batch, train};
use quadrille_spec::{Algorithm, Choice, Layout, LayoutRequest, Model};
use quadrille_step::StepProgram;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let model = Model::preset("gpt-tiny")?;
    let layout = Layout::new(&model, &LayoutRequest::new("x=2,y=2,z=2".parse()?, 8))?;
    let program = StepProgram::new(&model, &layout)?;

    let options = TrainOptions {
        steps: 1,
        hyper: Hyper::default(),
        seed: 1,
        initial: InitialValues::Training,
        threads: 1,
        timeout: Duration::from_secs(60),
        collectives: Choice::Always(Algorithm::Native),
        world: None,
        tune_matmuls: false,
        matmuls: None,
        trace: false,
    };
    let batch = random_batch(&model, 1, layout.seq_len);
    let mut on_step = |record: &StepRecord| {
        println!("loss {:.4}, gradient norm {:.4}", record.loss, record.grad_norm);
        Ok(())
    };
    let outcome = train::<f32>(&program, &options, &batch, &mut on_step)?;

    let (predicted, executed) = (&outcome.predicted.ranks[0], &outcome.counted.ranks[0]);
    println!("\nrank 0                        predicted   executed");
    for (axes, kinds) in &predicted.axes {
        for (kind, transfer) in kinds {
            let counted = executed.axes[axes][kind].wire_bytes;
            println!("{axes:>10} {:<16} {:>10} {counted:>10} bytes on the wire", kind.name(), transfer.wire_bytes);
        }
    }
    println!("{:>27} {:>10} {:>10} FLOP", "", predicted.flops.total(), executed.flops.total());
    println!("{:>27} {:>10} {:>10} bytes at peak", "", predicted.memory.peak, executed.memory.peak);
    assert_eq!(predicted, executed);
    Ok(())
}
