//! Measures how fast this machine reads a file of tokens: all of it in order, and samples in the order of training.
//!
//! cargo run --release -p quadrille-data --example data_rates FILE [SAMPLES] [TOKENS OF A SAMPLE]

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use quadrille_data::{Documents, Opening, Permutation, Reading, SampleShape, Tokenizer, Windows, open};
use quadrille_spec::RandomStream;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = PathBuf::from(arguments.next().ok_or("which file?")?);
    let samples: u64 = arguments.next().map_or(Ok(60_000), |number| number.parse())?;
    let seq_len: usize = arguments.next().map_or(Ok(1024), |number| number.parse())?;
    let reading = Reading::new(Tokenizer::Gpt2);
    let opening = Opening { reading: &reading, named: true, cache: Path::new(".") };
    let source = Arc::new(open(&[path], &opening, &mut |_, _| {})?.tokens);
    let len = source.len();
    let mut buffer = vec![0; 1 << 16];
    let start = Instant::now();
    for at in (0..len).step_by(buffer.len()) {
        let count = buffer.len().min(len - at);
        source.window(at, &mut buffer[..count])?;
    }
    println!("in order: {:.0} M tokens/s", len as f64 / start.elapsed().as_secs_f64() * 1e-6);
    for documents in [Documents::Packed, Documents::Respected] {
        let start = Instant::now();
        let shape = SampleShape { seq_len, documents, vocab: usize::MAX };
        let windows = Windows::new(source.clone(), 0..len, shape)?;
        let indexed = start.elapsed();
        let order = Permutation::new(RandomStream::new(1, "order"), windows.len());
        let mut tokens = vec![0; seq_len];
        let mut targets = vec![0; seq_len];
        let count = windows.len().min(samples);
        let start = Instant::now();
        for at in 0..count {
            windows.read(order.at(at), &mut tokens, &mut targets)?;
        }
        let each = start.elapsed().as_secs_f64() * 1e6 / count as f64;
        println!("{documents}: {each:.2} us a sample of {seq_len}, indexed in {indexed:.1?}");
    }
    Ok(())
}
