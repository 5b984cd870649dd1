//! Times training steps on a device: `step MODEL GRID BATCH MICROBATCH SEQ_LEN DTYPE STEPS`.

use std::error::Error;
use std::time::Instant;

use half::bf16;
use quadrille_cuda::Cuda;
use quadrille_engine::{Backend, Hyper, RunEvent, TrainOptions, random_batch, train};
use quadrille_spec::{ElementType, Layout, LayoutRequest, Model};
use quadrille_step::StepProgram;

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [model, grid, batch, microbatch, seq_len, dtype, steps] = words.as_slice() else {
        return Err("step MODEL GRID BATCH MICROBATCH SEQ_LEN DTYPE STEPS".into());
    };
    let model = Model::preset(model)?;
    let request = LayoutRequest {
        dtype: dtype.parse()?,
        microbatch: Some(microbatch.parse()?),
        seq_len: Some(seq_len.parse()?),
        ..LayoutRequest::new(grid.parse()?, batch.parse()?)
    };
    let layout = Layout::new(&model, &request)?;
    let program = StepProgram::new(&model, &layout)?;
    let steps = steps.parse()?;
    match layout.dtype {
        ElementType::F64 => time::<Cuda<f64>>(&program, steps),
        ElementType::F32 => time::<Cuda<f32>>(&program, steps),
        ElementType::Bf16 => time::<Cuda<bf16>>(&program, steps),
        other => Err(format!("no device stores {other}").into()),
    }
}

/// Trains, and prints each step's loss and time.
fn time<B: Backend>(program: &StepProgram, steps: u64) -> Result<(), Box<dyn Error>> {
    let batch = random_batch(&program.model, 1, program.layout.seq_len);
    let mut since = Instant::now();
    let tokens = program.layout.global_batch * program.layout.seq_len;
    let mut print = |event: RunEvent| {
        if let RunEvent::Step(record) = event {
            let seconds = since.elapsed().as_secs_f64();
            let rate = tokens as f64 / seconds;
            println!("step {}: loss {:.6}, {:.1} ms, {rate:.0} tokens/s", record.step, record.loss, seconds * 1e3);
            since = Instant::now();
        }
        Ok(())
    };
    let outcome = train::<B>(program, &TrainOptions::new(steps, Hyper::default(), 1), &batch, None, &mut print)?;
    println!("ledgers equal: {}", outcome.counted == Some(outcome.predicted));
    Ok(())
}
