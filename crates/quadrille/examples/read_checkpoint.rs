//! A checkpoint looked at by hand, and the page of its run.
//!
//! `cargo run --release -p quadrille --example read_checkpoint`

use std::error::Error;
use std::path::Path;

use quadrille::checkpoint::{Checkpoint, Quantity, TensorShape};
use quadrille::prelude::*;

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let run = folder.path().join("run");
    let model = Model::gpt(2, 32, 2, 256, 16);
    let layout = Layout::new(&model, &LayoutRequest::new("x=2,z=2".parse()?, 8))?;
    let spec = RunSpec { steps: 4, threads: Some(1), ..RunSpec::new(model, layout) };
    train(spec, Some(&run), &mut |_| ControlFlow::Continue(()))?.check()?;
    look(&run.join("checkpoints"))?;
    let page = report(&run, &Cluster::preset("local")?)?;
    println!("the page of the run has {} bytes of HTML", page.len());
    Ok(())
}

/// Prints what the newest checkpoint in a folder holds.
fn look(folder: &Path) -> Result<(), Box<dyn Error>> {
    let checkpoint = Checkpoint::find(folder)?;
    let about = checkpoint.about();
    println!("step {} of {}, written on {}", about.step, about.model.name, about.layout.grid);
    for (rank, bytes, tiles) in checkpoint.files() {
        println!("rank {rank}: {tiles} tiles in {bytes} bytes");
    }
    // Logical tensors, whatever tiles they were written as.
    for TensorShape { name, rows, cols } in checkpoint.tensors().iter().take(6) {
        let values: Vec<f32> = checkpoint.whole(name, Quantity::Value)?;
        let norm = values.iter().map(|value| value * value).sum::<f32>().sqrt();
        println!("{name:<24} {rows:>4} x {cols:<4} norm {norm:.3}");
    }
    // One row of a matrix and of its optimizer state, without reading the rest.
    let mut weights = [0f32; 4];
    let mut moments = [0f32; 4];
    let mut reader = checkpoint.reader();
    reader.read("block.0.up.weight", Quantity::Value, 3, 8, &mut weights)?;
    reader.read("block.0.up.weight", Quantity::FirstMoment, 3, 8, &mut moments)?;
    let whole: Vec<f32> = checkpoint.whole("block.0.up.weight", Quantity::Value)?;
    assert_eq!(weights, whole[3 * 128 + 8..][..4]);
    println!("block.0.up.weight, row 3, columns 8 to 11: {weights:?}, first moments {moments:?}");
    Ok(())
}
