use quadrille_data::*;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;
fn main() {
    let folder = PathBuf::from(std::env::args().nth(1).unwrap());
    let folder: &Path = &folder;
    let text = folder.join("text.jsonl");
    if !text.exists() {
        use std::io::Write;
        let mut out = std::io::BufWriter::new(std::fs::File::create(&text).unwrap());
        for at in 0..300_000_u64 {
            let words: String = (0..60).map(|w| format!("w{} ", (at * 31 + w * w * 7919) % 9973)).collect();
            writeln!(out, "{{\"text\": \"{words}\"}}").unwrap();
        }
    }
    let reading = Reading::new(Tokenizer::Bytes);
    let gpt2 = Reading::new(Tokenizer::Gpt2);
    let own = folder.join("own.tokens");
    let go = |inputs: &[PathBuf], reading: &Reading, named: bool, out: &str, format: TokenFormat, what: &str| {
        let start = Instant::now();
        let done = convert(
            inputs,
            &Conversion { reading, named, format, append_end: false },
            &folder.join(out),
            &mut |_, _| {},
        )
        .unwrap();
        println!("{what}: {:.1} M tokens/s", done.tokens as f64 / start.elapsed().as_secs_f64() * 1e-6);
    };
    if !own.exists() {
        go(&[text.clone()], &reading, true, "own", TokenFormat::Quadrille, "text to own (bytes)");
    }
    if !folder.join("g.tokens").exists() {
        go(&[text.clone()], &gpt2, true, "g", TokenFormat::Quadrille, "text to own (gpt2)");
    }
    go(&[own.clone()], &reading, false, "m", TokenFormat::Megatron, "own to megatron");
    go(&[folder.join("m.idx")], &reading, true, "again", TokenFormat::Quadrille, "megatron to own");
    go(&[folder.join("g.tokens")], &gpt2, false, "c", TokenFormat::LlmC, "own to llm.c");
    go(&[folder.join("c.bin")], &gpt2, false, "c2", TokenFormat::Quadrille, "llm.c to own");
    let start = Instant::now();
    let found = inspect(&[own.clone()], "text").unwrap();
    println!("inspect own: {:.1} M tokens/s", found[0].tokens.unwrap() as f64 / start.elapsed().as_secs_f64() * 1e-6);
    for (name, path) in [("own", own.clone()), ("megatron", folder.join("m.idx")), ("llm.c", folder.join("c.bin"))] {
        for documents in [Documents::Packed, Documents::Respected] {
            let start = Instant::now();
            let opening = Opening { reading: &reading, named: name == "megatron", cache: folder };
            let source = Arc::new(open(&[path.clone()], &opening, &mut |_, _| {}).unwrap());
            let opened = start.elapsed();
            let len = source.len();
            let start = Instant::now();
            let windows = Windows::new(source, 0..len, SampleShape { seq_len: 1024, documents, vocab: 50257 }).unwrap();
            let indexed = start.elapsed();
            let order = Permutation::new(quadrille_spec::RandomStream::new(1, "order"), windows.len());
            let (mut a, mut b) = (vec![0; 1024], vec![0; 1024]);
            for round in 0..2 {
                let start = Instant::now();
                let count = windows.len().min(60000);
                for at in 0..count {
                    windows.read(order.at(at), &mut a, &mut b).unwrap();
                }
                println!(
                    "{name} {documents} round {round}: {:.2} us a sample of 1024 (opened {opened:.1?}, indexed {indexed:.1?})",
                    start.elapsed().as_secs_f64() * 1e6 / count as f64
                );
            }
        }
    }
}
