//! `quadrille memorize`: what small models learn by heart, in several layouts, from files and from checkpoints.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::common::{json, page_document, run};
use crate::refusals::{folder_with, refused, refused_in};

/// Documents of 32 bytes, of which the last 12 are written.
const TINY: &str = "memorize --model gpt-tiny --set vocab=256 --set seq_len=32 --generate-tokens 12 --goldfish k=2,h=5 \
                    --documents-per-bucket 8 --global-batch 8 --warmup-steps 20 --lr 1e-2 --threads 1";

fn json_in(folder: &Path, line: &str) -> Value {
    let output = run(folder, &format!("{line} --json"));
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{line}: {error}"))
}

/// Of a run, by bucket: how many documents are memorised, and the share of right tokens.
fn buckets(run: &Value) -> Vec<(u64, f64)> {
    let bucket = |bucket: &Value| (bucket["exact"].as_u64().unwrap(), bucket["equal_share"].as_f64().unwrap());
    run["buckets"].as_array().unwrap().iter().map(bucket).collect()
}

#[test]
fn documents_that_are_repeated_are_memorised_without_the_goldfish_loss_and_not_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let document = json_in(folder.path(), &format!("{TINY} --epochs 0,200 --html page.html"));
    let [plain, goldfish] = &document["runs"].as_array().unwrap()[..] else { panic!("two runs") };
    assert_eq!((&plain["goldfish"], &goldfish["goldfish"]), (&Value::Null, &Value::from("k=2,h=5")));
    for run in [plain, goldfish] {
        assert_eq!(run["ledger_equal"], true);
        assert_eq!((run["buckets"][1]["epochs"].as_u64(), run["losses"].as_array().unwrap().len()), (Some(200), 220));
        let (exact, equal) = buckets(run)[0];
        assert!(exact == 0 && equal < 0.3, "what was never seen: {exact} documents, {equal} of the tokens");
    }
    let (memorised, _) = buckets(plain)[1];
    let (despite, right) = buckets(goldfish)[1];
    assert!(memorised >= 7 && despite == 0 && right < 0.7, "{memorised} of 8 without, {despite} with, {right} right");
    assert_eq!(document["steps"], 220);
    let shown = page_document(&fs::read_to_string(folder.path().join("page.html")).unwrap());
    for (run, name) in [(0, "plain loss"), (1, "goldfish k=2,h=5")] {
        assert_eq!(
            (&shown["runs"][run]["buckets"], shown["runs"][run]["name"].as_str()),
            (&document["runs"][run]["buckets"], Some(name))
        );
        assert_eq!(shown["runs"][run]["losses"].as_array().map(Vec::len), Some(220));
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no checkpoint is left");
}

#[test]
fn every_layout_memorises_the_same() {
    let line = format!("{TINY} --epochs 30,0 --dtype f64");
    let serial = json(&line);
    let parallel = json(&format!("{line} --grid x=2,data=2"));
    let pipeline = json(&format!("{line} --grid z=2,pipe=2 --loss goldfish"));
    let losses = |run: &Value| -> Vec<f64> {
        run["losses"].as_array().unwrap().iter().map(|loss| loss.as_f64().unwrap()).collect()
    };
    let same = |run: &Value, expected: &Value| {
        assert_eq!((buckets(run), &run["ledger_equal"]), (buckets(expected), &Value::from(true)));
        let differences = losses(run).into_iter().zip(losses(expected)).map(|(a, b)| (a - b).abs());
        assert!(differences.fold(0.0, f64::max) < 1e-8, "{:?} {:?}", losses(run), losses(expected));
    };
    let runs = &serial["runs"];
    assert_ne!(losses(&runs[0]), losses(&runs[1]), "one of them leaves tokens out");
    same(&parallel["runs"][0], &runs[0]);
    same(&parallel["runs"][1], &runs[1]);
    assert_eq!(pipeline["runs"].as_array().unwrap().len(), 1);
    same(&pipeline["runs"][0], &runs[1]);
}

/// 60 lines of which every third is shorter than a sample.
fn lines() -> String {
    let text = |n: usize| match n % 3 {
        0 => format!("short {n}"),
        _ => format!("{n} is {}, then {}, and last of all {}", n * n, n * n * n, n * 7919 % 1000),
    };
    (0..60).map(|n| format!("{{\"text\": \"{}\"}}\n", text(n))).collect()
}

#[test]
fn a_study_begins_with_a_checkpoint_and_keeps_its_own() {
    let folder = folder_with("notes.jsonl", lines());
    let line = "memorize --set seq_len=32 --generate-tokens 8 --documents-per-bucket 4 --epochs 1,0 --global-batch 4 \
                --threads 1 --data notes.jsonl --tokenizer bytes";
    let first = format!("{line} --model gpt-tiny --set vocab=256 --warmup-steps 3 --steps 4 --loss plain --out kept");
    let document = json_in(folder.path(), &first);
    assert_eq!((document["steps"].as_u64(), &document["data"]["vocabulary"]), (Some(7), &Value::from("bytes")));
    let again = json_in(folder.path(), &format!("{line} --from kept/plain --warmup-steps 0 --goldfish k=2,h=4"));
    let first_loss = |document: &Value| document["runs"][0]["losses"][0].as_f64().unwrap();
    assert_eq!(again["steps"], 1, "as many as the documents fill");
    assert!(first_loss(&again) < first_loss(&document), "it goes on from what was learned");
    refused_in(folder.path(), &first, &["--out kept", "holds checkpoints already"]);
    let output = run(folder.path(), "generate --from kept/plain --prompt 4 --max-tokens 3 --tokenizer bytes --json");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Files, documents, skipped lines and the tokenizer are printed before the first step, and kept with the findings.
#[test]
fn what_is_read_is_printed_and_kept() {
    let folder = folder_with("notes.jsonl", format!("null\n{}", lines()));
    let line = "memorize --set seq_len=32 --generate-tokens 8 --documents-per-bucket 4 --epochs 1,0 --global-batch 4 \
                --threads 1 --data notes.jsonl --tokenizer bytes --model gpt-tiny --set vocab=256 --warmup-steps 1 --steps 2 \
                --loss plain --skip-bad-lines";
    let output = run(folder.path(), line);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
    for words in [
        "data    notes.jsonl: 1 file, 1 of json-lines (",
        "60 documents",
        "skipped notes.jsonl: 1 line without a text, the first is line 1: ",
        "tokenizer bytes, as named; documents begin without BOS\n",
    ] {
        assert!(said.contains(words), "'{words}' is not in: {said}");
    }
    let data = &json_in(folder.path(), line)["data"];
    let source = &data["sources"][0];
    assert_eq!((&source["documents"], &source["skipped_lines"][0]["count"]), (&Value::from(60), &Value::from(1)));
    assert_eq!(data["tokenizer"], "bytes, as named; documents begin without BOS");
}

#[test]
fn what_cannot_be_studied_is_refused() {
    let tiny = "memorize --model gpt-tiny --set vocab=256";
    for (flags, words) in [
        ("--generate-tokens 16", &["--generate-tokens 16", "16 tokens", "15 at most"][..]),
        ("--generate-tokens 4 --goldfish k=2,h=17", &["--goldfish k=2,h=17", "h of 16 at most"]),
        ("--generate-tokens 4 --epochs 0", &["--epochs 0", "no document would be seen"]),
        ("--generate-tokens 4 --epochs 0,4,4", &["4 is there twice"]),
        ("--generate-tokens 4 --epochs 0,4 --steps 2", &["--steps 2", "64 sequences", "8 steps of 8"]),
        ("--generate-tokens 4 --set warmup_steps=3", &["--warmup-steps"]),
        ("--generate-tokens 4 --tokenizer gpt2", &["50257 ids", "256"]),
        ("--generate-tokens 4 --documents-per-bucket 0", &["--documents-per-bucket"]),
        ("--generate-tokens 4 --html none/page.html", &["--html none/page.html"]),
        ("--generate-tokens 4 --goldfish k=1,h=13", &["k=1"]),
    ] {
        refused(&format!("{tiny} {flags}"), words);
    }
    refused("memorize --model gpt-tiny --set patch_values=4", &["patches"]);
    refused("memorize --from nowhere", &["nowhere"]);
    let folder = folder_with("notes.jsonl", lines());
    let line = format!("{tiny} --data notes.jsonl --generate-tokens 4 --cache . --tokenizer bytes");
    let output = run(folder.path(), &line);
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(2) && message.contains("all buckets need 64"), "{message}");
    let few = format!("{tiny} --data notes.jsonl --html notes.jsonl");
    refused_in(folder.path(), &few, &["--html", "would be written over"]);
}
