//! Measures checkpoints on this machine: how fast they are written, read and verified, what a writer needs beside the
//! numbers, and how long a manifest of many tiles takes to open.
//!
//! cargo run --release -p quadrille-checkpoint --example checkpoint_rates FOLDER [MILLIONS OF NUMBERS] [TILES]

use std::error::Error;
use std::path::Path;
use std::time::Instant;

use quadrille_checkpoint::{About, Checkpoint, Draft, Merge, Quantity, TensorShape, Tile, merge};
use quadrille_spec::{Layout, LayoutRequest, Model, RealType};
use serde_json::Value;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().ok_or("which folder?")?;
    let folder = Path::new(&folder);
    let millions: usize = arguments.next().map_or(Ok(256), |number| number.parse())?;
    let tiles: usize = arguments.next().map_or(Ok(100_000), |number| number.parse())?;
    throughput(folder, millions << 20)?;
    many_tiles(folder, tiles)
}

fn about(step: u64) -> Result<About, Box<dyn Error>> {
    let model = Model::gpt(2, 24, 3, 17, 12);
    let layout = Layout::new(&model, &LayoutRequest::new("x=1".parse()?, 8))?;
    let hyper = Value::Null;
    let data = Value::Null;
    let run = Value::Null;
    let dtype = RealType::F32;
    Ok(About { model, layout, dtype, step, samples: 0, tokens: 0, seed: 0, hyper, data, run, hugging_face: None })
}

/// One tensor of `numbers`, in tiles of a quarter of its rows and half of its columns.
fn throughput(folder: &Path, numbers: usize) -> Result<(), Box<dyn Error>> {
    let cols = 4096;
    let rows = numbers / 4096;
    let tensor = TensorShape { name: "x".to_owned(), rows, cols };
    let tile = |at: usize| Tile {
        tensor: "x".to_owned(),
        quantity: Quantity::Value,
        row: at / 2 * (rows / 4),
        col: at % 2 * (cols / 2),
        rows: rows / 4,
        cols: cols / 2,
    };
    let data: Vec<f32> = (0..numbers / 8).map(|at| at as f32).collect();
    let tiles: Vec<_> = (0..8).map(|at| (tile(at), data.as_slice().into())).collect();
    let gigabytes = numbers as f64 * 4e-9;
    let before = peak_memory()?;
    let rate = |what: &str, start: Instant| {
        let seconds = start.elapsed().as_secs_f64();
        println!("{what}: {gigabytes:.2} GB in {seconds:.2} s, {:.2} GB/s", gigabytes / seconds);
    };
    let start = Instant::now();
    let draft = Draft::begin(folder, 1)?;
    draft.write::<f32>(0, &tiles)?;
    let path = draft.commit(&about(1)?, &[tensor], &[0])?;
    rate("written and synced", start);
    println!("memory beside the numbers: {} MiB", (peak_memory()? - before) >> 10);
    let checkpoint = Checkpoint::open(&path)?;
    let start = Instant::now();
    checkpoint.verify()?;
    rate("verified", start);
    let start = Instant::now();
    checkpoint.whole::<f32>("x", Quantity::Value)?;
    rate("read whole, checksums of first touch included", start);
    let start = Instant::now();
    checkpoint.whole::<f32>("x", Quantity::Value)?;
    rate("read whole again", start);
    let start = Instant::now();
    let merged = merge(checkpoint, &folder.join("merged"), Merge::default())?;
    rate("merged", start);
    std::fs::remove_dir_all(merged)?;
    Ok(std::fs::remove_dir_all(path)?)
}

/// `count` tiles of two rows of eight numbers, of sixteen writers.
fn many_tiles(folder: &Path, count: usize) -> Result<(), Box<dyn Error>> {
    let tensors = 100;
    let writers = 16;
    let each = count / tensors;
    let shapes: Vec<TensorShape> =
        (0..tensors).map(|at| TensorShape { name: format!("block.{at}.up.weight"), rows: 2 * each, cols: 8 }).collect();
    let data = [1.0_f32; 16];
    let start = Instant::now();
    let draft = Draft::begin(folder, 2)?;
    for writer in 0..writers {
        let own = (0..tensors * each).filter(|at| at % writers == writer);
        let tiles: Vec<_> = own
            .map(|at| {
                let tensor = shapes[at / each].name.clone();
                let row = 2 * (at % each);
                (Tile { tensor, quantity: Quantity::Value, row, col: 0, rows: 2, cols: 8 }, data.as_slice().into())
            })
            .collect();
        draft.write::<f32>(writer, &tiles)?;
    }
    let written = start.elapsed();
    let start = Instant::now();
    let path = draft.commit(&about(2)?, &shapes, &(0..writers).collect::<Vec<_>>())?;
    println!("{count} tiles: written in {written:.2?}, committed in {:.2?}", start.elapsed());
    let start = Instant::now();
    let checkpoint = Checkpoint::open(&path)?;
    let bytes = path.join("manifest.json").metadata()?.len();
    println!("opened in {:.2?}, a manifest of {:.1} MB", start.elapsed(), bytes as f64 * 1e-6);
    let start = Instant::now();
    for shape in &shapes {
        checkpoint.whole::<f32>(&shape.name, Quantity::Value)?;
    }
    println!("all of it read in {:.2?}", start.elapsed());
    Ok(std::fs::remove_dir_all(path)?)
}

/// The largest memory that this process has had, in KiB.
fn peak_memory() -> Result<u64, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).ok_or("no VmHWM in /proc/self/status")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}
