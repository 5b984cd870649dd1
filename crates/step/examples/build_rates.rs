//! How long a step program takes to build, by layout: `cargo run --release -p quadrille-step --example build_rates`.
//!
//! Prints microseconds per block of the model, the least of several runs: blocks are nearly all of a program.

use std::time::{Duration, Instant};

use quadrille_spec::{LayoutFile, Model};
use quadrille_step::StepProgram;

const RUNS: usize = 30;

const LAYOUTS: [(&str, &str); 6] = [
    ("one rank", "grid = 'x=1'\nglobal_batch = 8"),
    ("x=8 scattered, data=8", "grid = 'x=8,data=8'\nglobal_batch = 64\nzero = 1"),
    ("4D", "grid = 'x=4,y=2,z=4,data=2'\nglobal_batch = 64"),
    (
        "4D, full recomputation with cac",
        "grid = 'x=4,y=2,z=4,data=2'\nglobal_batch = 64\nrecompute = 'full'\ncac = true",
    ),
    (
        "pipeline, interleaved",
        "grid = 'x=4,pipe=4'\nglobal_batch = 64\nschedule = 'interleaved'\nchunks = 3\nmicrobatch = 1",
    ),
    ("summa, chunks", "grid = 'x=4,y=4,z=2'\nglobal_batch = 64\nlinear = 'summa'\noverlap_chunks = 2"),
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let model = Model::preset("gpt3-6.7b")?;
    for (name, text) in LAYOUTS {
        let layout = LayoutFile::from_toml(text)?.validate(&model)?;
        let mut least = Duration::MAX;
        let mut operations = 0;
        for _ in 0..RUNS {
            let start = Instant::now();
            let program = StepProgram::new(&model, &layout)?;
            least = least.min(start.elapsed());
            let sections =
                program.stages.iter().flat_map(|stage| stage.chunks.iter().flat_map(|chunk| chunk.sections()));
            operations = sections.map(|section| section.ops.len()).sum();
        }
        let microseconds = least.as_secs_f64() * 1e6 / model.layers() as f64;
        println!("{name:<32} {microseconds:>7.1} us per block, {:>4} operations", operations / model.layers());
    }
    Ok(())
}
