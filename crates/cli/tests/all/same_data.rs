//! A run that goes on reads what it has begun with, or says what differs.

use std::fs::{self, FileTimes};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use crate::common::{json, run};

fn code_and_message(folder: &Path, line: &str) -> (Option<i32>, String) {
    let output = run(folder, line);
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

fn succeed(folder: &Path, line: &str) {
    let (code, message) = code_and_message(folder, line);
    assert_eq!(code, Some(0), "{line}: {message}");
}

const TRAIN: &str = "train --model gpt-tiny --set vocab=256 --threads 1 --grid x=1 --steps 2";

#[test]
fn text_that_has_grown_is_refused_unless_it_is_named_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let text = "It was a bright cold day in April. ".repeat(60);
    fs::write(path.join("c.txt"), &text).unwrap();
    succeed(path, &format!("{TRAIN} --data c.txt --validation 0.1 --out run"));
    succeed(path, "train --resume run --steps 3 --cache elsewhere");
    fs::write(path.join("c.txt"), text.repeat(2)).unwrap();
    let (code, message) = code_and_message(path, "train --resume run --steps 4");
    assert_eq!(code, Some(2), "{message}");
    for word in
        ["step-000000000003", "c.txt has other content: 2100 bytes then, 4200 now", "give --data or --validation again"]
    {
        assert!(message.contains(word), "'{word}' is not in: {message}");
    }
    // Other ways to read it, or the same one once more, do not name it again.
    for flags in
        ["--documents packed", "--documents respected", "--format text", "--parse-special", "--tokenizer bytes"]
    {
        let (code, message) = code_and_message(path, &format!("train --resume run --steps 4 {flags}"));
        assert_eq!(code, Some(2), "{flags}: {message}");
        assert!(message.contains("c.txt has other content: 2100 bytes then, 4200 now"), "{flags}: {message}");
    }
    succeed(path, "train --resume run --steps 4 --data c.txt --validation=0.1");
    // Now the checkpoint says what there is.
    succeed(path, "train --resume run --steps 5");
}

/// Sets the time of the last change.
fn set_time(path: &Path, seconds: u64) {
    let time = UNIX_EPOCH + Duration::from_secs(seconds);
    fs::File::options().write(true).open(path).unwrap().set_times(FileTimes::new().set_modified(time)).unwrap();
}

#[test]
fn text_is_identified_by_its_content_and_not_by_name_or_time() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let text = "It was a bright cold day in April. ".repeat(60);
    fs::write(path.join("book.txt"), &text).unwrap();
    set_time(&path.join("book.txt"), 1_000_000_000);
    succeed(path, &format!("{TRAIN} --data book.txt --out run"));
    set_time(&path.join("book.txt"), 1_500_000_000);
    succeed(path, "train --resume run --steps 3");
    // The same length and time, and other content.
    fs::write(path.join("book.txt"), text.replace("April", "March")).unwrap();
    set_time(&path.join("book.txt"), 1_500_000_000);
    let (code, message) = code_and_message(path, "train --resume run --steps 4");
    assert_eq!(code, Some(2), "{message}");
    assert!(message.contains("book.txt has other content: 2100 bytes then, 2100 now"), "{message}");
    fs::write(path.join("book.txt"), &text).unwrap();
    succeed(path, "train --resume run --steps 4");
}

/// Documents of these lengths, as JSON lines.
fn documents(letter: &str, lengths: [usize; 2]) -> String {
    (0..200).map(|at| format!("{{\"text\": \"{}\"}}\n", letter.repeat(lengths[at % 2]))).collect()
}

#[test]
fn token_files_of_the_same_length_and_other_content_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let prepare = |name: &str, letter: &str, lengths: [usize; 2]| {
        fs::write(path.join(format!("{name}.jsonl")), documents(letter, lengths)).unwrap();
        succeed(path, &format!("data prepare {name}.jsonl --tokenizer bytes --out {name}"));
        succeed(path, &format!("data prepare {name}.jsonl --tokenizer bytes --out {name} --format megatron"));
    };
    prepare("a", "x", [10, 20]);
    prepare("b", "y", [10, 20]);
    prepare("c", "x", [20, 10]);
    let header: Vec<u8> = [20_240_520_u32, 1, 4000].into_iter().flat_map(u32::to_le_bytes).collect();
    for (name, token) in [("d.bin", 7_u16), ("e.bin", 8)] {
        let tokens: Vec<u8> = [token; 4000].into_iter().flat_map(u16::to_le_bytes).collect();
        fs::write(path.join(name), [header.clone(), vec![0; 1012], tokens].concat()).unwrap();
    }
    let bytes = format!("{TRAIN} --documents respected");
    let gpt2 = TRAIN.replace("vocab=256", "vocab=50257");
    for (line, data, replaced, by) in [
        (&bytes, "a.tokens", "a.tokens", "b.tokens"),
        (&bytes, "a.idx", "a.idx", "c.idx"),
        (&bytes, "a.idx", "a.bin", "b.bin"),
        (&gpt2, "d.bin", "d.bin", "e.bin"),
    ] {
        let [run, used, other] = [format!("run-{replaced}"), replaced.to_owned(), by.to_owned()];
        succeed(path, &format!("{line} --data {data} --out {run}"));
        let saved = fs::read(path.join(&used)).unwrap();
        fs::write(path.join(&used), &saved).unwrap();
        succeed(path, &format!("train --resume {run} --steps 3"));
        let content = fs::read(path.join(&other)).unwrap();
        assert_eq!(content.len(), saved.len());
        fs::write(path.join(&used), content).unwrap();
        let (code, message) = code_and_message(path, &format!("train --resume {run} --steps 4"));
        assert_eq!(code, Some(2), "{used}: {message}");
        assert!(message.contains(&format!("{used} has other content")), "{message}");
        fs::write(path.join(&used), saved).unwrap();
    }
}

#[test]
fn the_share_of_what_is_built_in_is_compared() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let document = json(&format!("{TRAIN} --validation 0.1 --out {}", path.join("run").display()));
    assert_eq!(document["data"]["validation"], 0.1);
    let description = path.join("run/run.json");
    let decided = fs::read_to_string(&description).unwrap().replace("\"share\": 0.1", "\"share\": 0.2");
    fs::write(&description, decided).unwrap();
    let (code, message) = code_and_message(path, "train --resume run --steps 3");
    assert!(code == Some(2) && message.contains("validation: 0.1 then, 0.2 now"), "{message}");
    succeed(path, "train --resume run --steps 3 --validation 0.2");
}
