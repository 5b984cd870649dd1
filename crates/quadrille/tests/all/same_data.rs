//! A run that goes on reads what it has begun with, or says what differs.

use std::fs;
use std::path::Path;

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
        ["step-000000000003", "source 1 of training: tokens: 2101 then, 4201 now", "give --data or --validation again"]
    {
        assert!(message.contains(word), "'{word}' is not in: {message}");
    }
    succeed(path, "train --resume run --steps 4 --data c.txt --validation=0.1");
    // Now the checkpoint says what there is.
    succeed(path, "train --resume run --steps 5");
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
