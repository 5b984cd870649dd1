//! Trains a tiny model from code: a callback for every step, and what came of the run.
//!
//! `cargo run --release -p quadrille --example callback`

use quadrille::prelude::*;
use quadrille::run::{DataSpec, HeldOut};

pub(crate) fn main() -> Result<(), Error> {
    // Two blocks of 32 numbers, for bytes in sequences of 32, on two tensor-parallel ranks.
    let model = Model::gpt(2, 32, 2, 256, 32);
    let layout = Layout::new(&model, &LayoutRequest::new("x=2".parse()?, 8))?;
    let spec = RunSpec {
        steps: 200,
        threads: Some(1),
        data: DataSpec { held_out: HeldOut::Share(0.01), ..DataSpec::default() },
        ..RunSpec::new(model, layout)
    };
    let outcome = train(spec, None, &mut |event| match event {
        RunEvent::Step(step) => {
            if step.step % 20 == 0 {
                println!("step {:>3}: loss {:.3}", step.step, step.loss);
            }
            // Early enough for an example: the run ends in good order.
            if step.loss < 4.0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        }
        RunEvent::Validated(step, evaluation) => {
            println!("step {step:>3}: validation loss {:.3}", evaluation.loss);
            ControlFlow::Continue(())
        }
        _ => ControlFlow::Continue(()),
    })?;
    let outcome = outcome.check()?;
    match outcome.ended {
        Ended::Whole => println!("all steps are done"),
        Ended::Stopped { step, of, .. } => println!("ended after step {step} of {of}"),
    }
    println!("bytes, FLOPs and memory of {} ranks were as predicted", outcome.trained.ranks.len());
    Ok(())
}
