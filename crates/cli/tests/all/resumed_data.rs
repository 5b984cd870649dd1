//! A run that goes on reads the samples that it would have read had it never ended, whatever its data are.

use std::fs;

use tempfile::TempDir;

use crate::common::json;
use crate::run_folders::{TINY, copy_run, losses, succeed};

/// Text in which no two places are alike.
fn text(words: usize, seed: u64) -> String {
    let mut random = seed;
    let mut word = || {
        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        let syllables = ["ba", "ro", "ti", "lem", "so", "ka", "un", "ve"];
        (0..3).map(|at| syllables[(random >> (40 + 5 * at)) as usize % 8]).collect::<String>()
    };
    (0..words).map(|_| word() + " ").collect()
}

/// Documents of many lengths, as JSON lines.
fn documents(count: usize) -> String {
    (0..count).map(|at| format!("{{\"text\": \"{}\"}}\n", text(1 + at * 7 % 23, at as u64).trim_end())).collect()
}

fn data() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a.txt"), text(4000, 1)).unwrap();
    fs::write(folder.path().join("b.txt"), text(200, 2)).unwrap();
    fs::write(folder.path().join("documents.jsonl"), documents(200)).unwrap();
    succeed(folder.path(), "data prepare a.txt --tokenizer bytes --out a");
    folder
}

/// Holds runs over `data` that go on after step 4 against one that does 9 steps at a stretch.
fn goes_on(data_flags: &str) {
    let folder = data();
    let path = folder.path();
    let line = "--steps 9 --grid x=2,data=2 --global-batch 12 --checkpoint-every 4 --out whole";
    succeed(path, &format!("{TINY} {line} {data_flags}"));
    let whole = losses(&path.join("whole"));
    assert_eq!(whole.len(), 9);
    let resumed = |name: &str, layout: &str| {
        copy_run(&path.join("whole"), &path.join(name), 4);
        succeed(path, &format!("train --resume {name} {layout}"));
        losses(&path.join(name))
    };
    assert_eq!(resumed("same", ""), whole, "the same layout, {data_flags}");
    let other = resumed("other", "--grid y=2,z=2,data=3");
    assert_eq!(other.len(), 9);
    for ((_, a), (_, b)) in other.iter().zip(&whole) {
        assert!((a - b).abs() <= 1e-11 * b, "{a} and {b} in another layout, {data_flags}");
    }
}

#[test]
fn of_text() {
    goes_on("--data a.txt");
}

#[test]
fn of_token_files() {
    goes_on("--data a.tokens");
}

#[test]
fn of_mixtures() {
    goes_on("--data a.tokens:0.5 b.txt:0.3 documents.jsonl:0.2");
}

#[test]
fn of_documents_that_are_respected() {
    goes_on("--data documents.jsonl --documents respected");
}

#[test]
fn of_the_goldfish_loss() {
    goes_on("--data b.txt --goldfish k=3,h=4");
}

/// Samples are counted, not steps. Where nothing is learned, the loss of a step is that of its samples.
#[test]
fn another_batch_goes_on_at_the_next_sample() {
    let folder = data();
    let path = folder.path();
    let [out, text, cache] = ["whole", "a.txt", "cache"].map(|name| path.join(name).display().to_string());
    let line =
        format!("--lr 0 --steps 8 --global-batch 6 --checkpoint-every 4 --out {out} --data {text} --cache {cache}");
    let whole = json(&format!("{TINY} {line}"))["losses"].clone();
    let whole: Vec<f64> = serde_json::from_value(whole).unwrap();
    copy_run(&path.join("whole"), &path.join("twice"), 4);
    succeed(path, "train --resume twice --global-batch 12 --steps 6");
    let twice = losses(&path.join("twice"));
    for ((_, loss), pair) in twice[4..].iter().zip(whole[4..].chunks(2)) {
        let mean = (pair[0] + pair[1]) / 2.0;
        assert!((loss - mean).abs() <= 1e-11 * mean, "{loss} and {mean}");
    }
    assert!(whole.windows(2).all(|pair| pair[0] != pair[1]));
}
