//! One training step of a small model on a 2x2x2 grid: what was predicted beside what was executed.
//!
//! `cargo run --release -p quadrille --example sharded_step`

use quadrille::engine::{Hyper, TrainOptions, random_batch, train_on_cpu};
use quadrille::prelude::{Layout, LayoutRequest, Model, RunEvent};
use quadrille::step::StepProgram;

pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    let model = Model::preset("gpt-tiny")?;
    let layout = Layout::new(&model, &LayoutRequest::new("x=2,y=2,z=2".parse()?, 8))?;
    let program = StepProgram::new(&model, &layout)?;

    let options = TrainOptions::new(1, Hyper::default(), 1);
    let batch = random_batch(&model, 1, layout.seq_len);
    let mut on_event = |event: RunEvent| {
        let RunEvent::Step(record) = event else { return Ok(()) };
        println!("loss {:.4}, gradient norm {:.4}", record.loss, record.grad_norm);
        Ok(())
    };
    let outcome = train_on_cpu(&program, &options, &batch, None, &mut on_event)?;

    let counted = outcome.counted.ok_or("no step was executed")?;
    let predicted = &outcome.predicted.ranks[0];
    let executed = &counted.ranks[0];
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
