//! `quadrille data`, and what `train` reads: formats, mixtures, documents, validation, the goldfish mask.

use std::fs::{self, OpenOptions};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use serde_json::{Value, json};

use crate::common::{json as one_json, run};
use crate::refusals::{folder_with, refused, refused_in};

const TRAIN: &str = "train --model gpt-tiny --set vocab=256 --tokenizer bytes --threads 1 --grid x=1 --steps 3";

fn json_in(folder: &Path, line: &str) -> Value {
    let output = run(folder, &format!("{line} --json"));
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// A folder with 60 documents in JSON lines, and a text.
fn corpus() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let line =
        |at: usize| format!("{}\n", json!({ "id": at, "text": format!("document {at} says {}", at * at).repeat(2) }));
    fs::write(folder.path().join("wiki.jsonl"), (0..60).map(line).collect::<String>()).unwrap();
    fs::write(folder.path().join("book.txt"), "It was a bright cold day in April. ".repeat(60)).unwrap();
    folder
}

#[test]
fn formats_are_converted_and_described() {
    let folder = corpus();
    let prepared = json_in(folder.path(), "data prepare wiki.jsonl book.txt --out all");
    assert_eq!((&prepared["files"], &prepared["documents"]), (&json!(["all.tokens"]), &json!(61)));
    let [tokens, documents] = ["tokens", "documents"].map(|key| prepared[key].clone());
    json_in(folder.path(), "data prepare all.tokens --out m --format megatron");
    json_in(folder.path(), "data prepare m.bin --out c --format llm.c --tokenizer gpt2");
    json_in(folder.path(), "data prepare c.bin --out again");
    assert_eq!(
        fs::read(folder.path().join("all.tokens")).unwrap(),
        fs::read(folder.path().join("again.tokens")).unwrap()
    );
    let info = json_in(folder.path(), "data info all.tokens m.idx c.bin wiki.jsonl");
    let column = |key: &str| info["files"].as_array().unwrap().iter().map(|file| file[key].clone()).collect::<Vec<_>>();
    assert_eq!(column("format"), ["quadrille", "megatron", "llm.c", "json-lines"]);
    assert_eq!(column("tokens"), [tokens.clone(), tokens.clone(), tokens.clone(), Value::Null]);
    assert_eq!(column("documents"), [documents.clone(), documents.clone(), documents, json!(60)]);
    assert_eq!(column("tokenizer"), [json!("gpt2"), Value::Null, json!("gpt2"), Value::Null]);
    assert_eq!(column("largest_token"), [json!(50256), json!(50256), json!(50256), Value::Null]);
    let text = String::from_utf8(run(folder.path(), "data info all.tokens").stdout).unwrap();
    assert!(text.contains("quadrille") && text.contains("xxh3-") && text.lines().count() == 2, "{text}");
    let hidden = |name: &str| name.starts_with('.');
    let left = fs::read_dir(folder.path()).unwrap().any(|entry| hidden(entry.unwrap().file_name().to_str().unwrap()));
    assert!(!left, "drafts are left");
}

/// What a file of tokens holds is what is written of it; text gets its end tokens, each once.
#[test]
fn end_tokens_are_appended_only_where_they_are_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let prepare = |line: &str| json_in(path, &format!("data prepare {line}"));
    let counts = |prepared: &Value| {
        ["tokens", "documents", "documents_without_end", "ends_appended"].map(|key| prepared[key].as_u64().unwrap())
    };
    // llm.c's: the rest of a document of the file before, then a document.
    let tokens: Vec<u8> = [7_u16, 8, 50256, 9].into_iter().flat_map(u16::to_le_bytes).collect();
    let header: Vec<u8> = [20_240_520_u32, 1, 4].into_iter().flat_map(u32::to_le_bytes).collect();
    fs::write(path.join("c.bin"), [header, vec![0; 1012], tokens].concat()).unwrap();
    assert_eq!(counts(&prepare("c.bin --out m --format megatron")), [4, 2, 1, 0]);
    let said = run(path, "data prepare m.idx --tokenizer gpt2 --out own");
    let said = String::from_utf8(said.stdout).unwrap();
    assert!(said.contains("4 tokens of gpt2 in 2 documents"), "{said}");
    assert!(said.contains("1 document without an end token, as before; --append-end appends it"), "{said}");
    for input in ["m.idx", "own.tokens"] {
        assert_eq!(counts(&prepare(&format!("{input} --tokenizer gpt2 --out again"))), [4, 2, 1, 0]);
        // The first document of a file of llm.c's may lack it, no other.
        let words = ["document 2 has no end token", "--append-end"];
        refused_in(path, &format!("data prepare c.bin {input} --tokenizer gpt2 --out x --format llm.c --json"), &words);
        let appended = prepare(&format!("{input} --tokenizer gpt2 --out once --append-end"));
        assert_eq!(counts(&appended), [5, 2, 0, 1]);
        assert_eq!(counts(&prepare("once.tokens --out twice --append-end")), [5, 2, 0, 0]);
    }
    let said =
        String::from_utf8(run(path, "data prepare m.idx --tokenizer gpt2 --out own --append-end").stdout).unwrap();
    assert!(said.contains("the end token was appended to 1 document"), "{said}");
    fs::write(path.join("a.txt"), "Hello world").unwrap();
    assert_eq!(counts(&prepare("a.txt --out text")), [3, 1, 0, 0]);
    let help = String::from_utf8(run(path, "data prepare --help").stdout).unwrap();
    assert!(help.contains("--append-end") && help.contains("each gets the tokenizer's end token"), "{help}");
}

/// Another program cuts the file that a run reads from: the run ends with the file's name, not by a signal.
#[test]
fn a_run_whose_data_are_cut_ends_with_their_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    fs::write(path.join("book.txt"), "It was a bright cold day in April. ".repeat(20_000)).unwrap();
    json_in(path, "data prepare book.txt --out book --tokenizer bytes");
    let line = TRAIN.replace("--steps 3", "--steps 1000000 --data book.tokens --out run");
    let mut command = Command::new(env!("CARGO_BIN_EXE_quadrille"));
    command.args(line.split_whitespace()).current_dir(path).stdin(Stdio::null()).stdout(Stdio::null());
    let child = command.stderr(Stdio::piped()).spawn().unwrap();
    while !fs::read_to_string(path.join("run/steps.jsonl")).is_ok_and(|steps| steps.contains('\n')) {
        sleep(Duration::from_millis(2));
    }
    OpenOptions::new().write(true).open(path.join("book.tokens")).unwrap().set_len(1000).unwrap();
    let output = child.wait_with_output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains("book.tokens changed while it was read") && message.contains("now 1000"), "{message}");
}

/// The order is that of samples, not of files: tokens give the same losses however they are stored.
#[test]
fn training_reads_every_format_alike() {
    let folder = corpus();
    json_in(folder.path(), "data prepare wiki.jsonl --out own --tokenizer bytes");
    json_in(folder.path(), "data prepare own.tokens --out m --format megatron");
    let losses = |data: &str| json_in(folder.path(), &format!("{TRAIN} --data {data}"))["losses"].clone();
    let text = losses("wiki.jsonl");
    assert_eq!(losses("own.tokens"), text);
    assert_eq!(losses("m"), text);
    assert_ne!(losses("book.txt"), text);
}

#[test]
fn mixtures_validation_documents_and_the_mask_are_told_and_change_the_samples() {
    let folder = corpus();
    let of = |more: &str| json_in(folder.path(), &format!("{TRAIN} {more}"));
    let mixed =
        of("--data wiki.jsonl:0.7 --data book.txt:0.3 --validation 0.1 --documents respected --goldfish k=2,h=5");
    let data = &mixed["data"];
    assert_eq!(
        (&data["kind"], &data["documents"], &data["goldfish"]),
        (&json!("files"), &json!("respected"), &json!("k=2,h=5"))
    );
    let sources = data["sources"].as_array().unwrap();
    assert_eq!((sources.len(), sources[0]["share"].as_f64().unwrap()), (2, 45875.0 / 65536.0));
    let validation = data["validation"].as_array().unwrap();
    for (training, validation) in sources.iter().zip(validation) {
        assert_eq!((&training["end"], &validation["end"]), (&validation["first"], &training["tokens"]));
        let share = validation["end"].as_f64().unwrap() - validation["first"].as_f64().unwrap();
        let share = share / training["tokens"].as_f64().unwrap();
        assert!((0.1..0.2).contains(&share), "{share}");
    }
    let plain = of("--data wiki.jsonl");
    assert_eq!((&plain["data"]["validation"], &plain["data"]["goldfish"]), (&Value::Null, &Value::Null));
    for more in ["--documents respected", "--goldfish k=2,h=5", "--validation 0.5"] {
        assert_ne!(of(&format!("--data wiki.jsonl {more}"))["losses"], plain["losses"], "{more}");
    }
    assert_eq!(of("--data wiki.jsonl --validation-data book.txt")["losses"], plain["losses"]);
    assert_eq!(of("--data wiki.jsonl --cache elsewhere")["losses"], plain["losses"]);
    let demo = one_json(&format!("{TRAIN} --validation 0.01"));
    assert_eq!((&demo["data"]["kind"], &demo["losses"]), (&json!("demo"), &of("")["losses"]));
}

#[test]
fn what_cannot_be_read_is_refused_with_the_remedy() {
    let folder = corpus();
    let path = folder.path();
    fs::write(path.join("x.bin"), [1, 0, 2, 0]).unwrap();
    fs::write(path.join("none.json"), "{}").unwrap();
    // Made before the first line is read.
    fs::create_dir(path.join(".quadrille-cache")).unwrap();
    let train = |more: &str, words: &[&str]| refused_in(path, &format!("{TRAIN} --data {more}"), words);
    train("wiki.jsonl:0.7 book.txt", &["--data", "some paths have a weight", "or none"]);
    train("wiki.jsonl:0", &["wiki.jsonl", "not a positive number"]);
    train("missing.txt:0.5", &["missing.txt", "No such file"]);
    train("wiki.jsonl --text-field body", &["wiki.jsonl, line 1", "no field `body`", "id, text", "--text-field"]);
    train("x.bin", &["x.bin", "neither text nor tokens", ".idx"]);
    train("wiki.jsonl --documents split", &["--documents", "packed", "respected"]);
    train("wiki.jsonl --goldfish k=1,h=13", &["--goldfish", "k=1"]);
    train("wiki.jsonl --goldfish k=2,h=999", &["--goldfish", "h of 16 at most"]);
    train("wiki.jsonl --validation 0.1 --validation-data book.txt", &["--validation", "cannot be used with"]);
    refused(&format!("{TRAIN} --validation 1.5"), &["--validation 1.5", "between 0 and 1"]);
    refused(&format!("{TRAIN} --documents respected"), &["--documents respected", "--data"]);
    let json = "train --model gpt-tiny --set vocab=256 --tokenizer none.json --data book.txt";
    refused_in(path, json, &["none.json", "tokenizer.json"]);
    let prepare = |more: &str, words: &[&str]| refused_in(path, &format!("data prepare {more}"), words);
    prepare("wiki.jsonl --out x --format arrow", &["arrow", "quadrille", "megatron", "llm.c"]);
    prepare("wiki.jsonl --out x --format llm.c --tokenizer bytes", &["llm.c", "gpt2", "--format"]);
    prepare("missing.txt --out x", &["missing.txt", "No such file"]);
    prepare("wiki.jsonl --out missing/x", &["missing"]);
    prepare("x.bin --out x --format llm.c", &["would be written over", "x.bin"]);
    refused_in(folder_with("x.bin", [1, 0, 2, 0]).path(), "data info x.bin", &["x.bin", "neither text nor tokens"]);
}

/// Before the first step a run says what it reads, by which tokenizer and why, and how often.
#[test]
fn what_is_read_is_printed_before_the_first_step() {
    let folder = corpus();
    let path = folder.path();
    let said = |line: &str| {
        let output = run(path, line);
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{line}: {text}");
        text.split("step     1").next().unwrap().to_owned()
    };
    let train =
        "train --model gpt-tiny --set vocab=256 --set seq_len=16 --threads 1 --grid x=1 --steps 3 --global-batch 4";
    // 35 letters, 60 times, and the end: 2,101 tokens are 131 windows of 16 with a target after the last; 12 samples are read.
    let text = said(&format!("{train} --data book.txt --out run"));
    for line in [
        "data    book.txt: 1 file, 1 of text (2.05 KiB), 1 document, 2101 tokens\n",
        "tokenizer bytes, by default for the model's vocabulary; documents begin without BOS\n",
        "epochs  0.09 in 3 steps\n",
    ] {
        assert!(text.contains(line), "'{line}' is not in: {text}");
    }
    let text = said(&format!("{train} --tokenizer bytes --data wiki.jsonl:0.5 book.txt:0.5"));
    for line in [
        "data    wiki.jsonl: 1 file, 1 of json-lines",
        "60 documents",
        "50.0% of the samples",
        "tokenizer bytes, as named",
    ] {
        assert!(text.contains(line), "'{line}' is not in: {text}");
    }
    json_in(path, "data prepare book.txt --tokenizer bytes --out book");
    let text = said("eval --from run --data book.tokens --samples 4");
    for line in ["data    book.tokens: 1 file, 1 of quadrille", "tokenizer bytes, as the files of tokens say"] {
        assert!(text.contains(line), "'{line}' is not in: {text}");
    }
    let text = said("eval --from run --data wiki.jsonl --samples 4");
    assert!(text.contains("tokenizer bytes, as the run of the checkpoint"), "{text}");
    let text = said(train);
    assert!(
        text.contains("tokenizer bytes, by default for the model's vocabulary") && !text.contains("epochs"),
        "{text}"
    );
}

/// Files that may be text or JSON are refused with the flag that decides it, by every command that reads text.
#[test]
fn doubtful_files_are_refused_with_the_flag_that_decides_it() {
    let folder = corpus();
    let path = folder.path();
    fs::create_dir(path.join(".quadrille-cache")).unwrap();
    fs::create_dir(path.join("set")).unwrap();
    let lines = fs::read_to_string(path.join("wiki.jsonl")).unwrap();
    for (name, content) in [
        ("fields.txt", lines.replace("\"text\"", "\"body\"")),
        ("nan.json", lines.replacen("\"id\":0", "\"id\":NaN", 1)),
        ("null.txt", format!("{{\"text\":null}}\n{lines}")),
        ("array.json", format!("[{}]", lines.trim_end().replace('\n', ",\n"))),
        ("set/dataset_info.json", "{\n}".to_owned()),
        ("set/train.txt", "some text".to_owned()),
        ("pointer.txt", "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n".to_owned()),
    ] {
        fs::write(path.join(name), content).unwrap();
    }
    for (data, words) in [
        ("fields.txt", "no field `text`; its fields: id, body"),
        ("nan.json", "looks like JSON lines, but it is not a JSON object"),
        ("null.txt", "looks like JSON lines, but invalid type: null"),
        ("array.json", "looks like a JSON array"),
        ("set", "folder of a data set: it holds dataset_info.json"),
        ("pointer.txt", "pointer of Git LFS"),
    ] {
        for line in [
            format!("{TRAIN} --data {data}"),
            format!("{TRAIN} --data book.txt --validation-data {data}"),
            format!("data prepare {data} --out x"),
            format!("data info {data}"),
            format!("memorize --data {data} --seq-len 16 --generate-tokens 4"),
        ] {
            let flag = if line.contains("data prepare") { "--input-format text" } else { " --format text" };
            refused_in(path, &line, &[data, words, flag]);
        }
        json_in(path, &format!("data prepare {data} --tokenizer bytes --out as-text --input-format text"));
    }
    // The flag's former name.
    json_in(path, "data info fields.txt --text-format text");
    let prepared = json_in(path, "data prepare fields.txt --text-field body --out body --tokenizer bytes");
    assert_eq!(prepared["documents"], 60);
    fs::write(path.join("marked.txt"), format!("\u{feff}{lines}")).unwrap();
    assert_eq!(json_in(path, "data prepare marked.txt --out marked --tokenizer bytes")["documents"], 60);
    let unused = ["--text-field body: none of the files is read as JSON lines", "-format json-lines"];
    refused_in(path, &format!("{TRAIN} --data book.txt --text-field body"), &unused);
    refused_in(path, "data prepare book.txt --text-field body --out x", &unused);
    refused_in(path, "memorize --data book.txt --text-field body --seq-len 16 --generate-tokens 4", &unused);
    refused_in(path, &format!("{TRAIN} --data book.txt --format csv"), &["csv", "json-lines"]);
}

/// Whatever names an input: the index of a pair, what both have in common, or the folder around it.
#[test]
fn what_is_read_is_never_written_over() {
    let folder = corpus();
    let path = folder.path();
    fs::create_dir(path.join("in")).unwrap();
    json_in(path, "data prepare wiki.jsonl --out in/pair --format megatron --tokenizer gpt2");
    let before = ["bin", "idx"].map(|end| fs::read(path.join("in/pair").with_extension(end)).unwrap());
    for input in ["in/pair.idx", "in/pair.bin", "in/pair", "in"] {
        for format in ["llm.c", "megatron"] {
            let line = format!("data prepare {input} --tokenizer gpt2 --out in/pair --format {format}");
            refused_in(path, &line, &["--out", "pair.", "would be written over"]);
        }
    }
    assert!(before == ["bin", "idx"].map(|end| fs::read(path.join("in/pair").with_extension(end)).unwrap()));
}

/// One token is one piece of text in all that a run reads.
#[test]
fn tokens_of_different_tokenizers_are_not_mixed() {
    let folder = corpus();
    let path = folder.path();
    json_in(path, "data prepare wiki.jsonl --out pairs --tokenizer gpt2");
    json_in(path, "data prepare book.txt --out bytes --tokenizer bytes");
    let train = "train --model gpt-tiny --set vocab=50257 --threads 1 --grid x=1 --steps 1";
    for data in ["pairs.tokens:0.5 bytes.tokens:0.5", "pairs.tokens --validation-data bytes.tokens"] {
        let words = ["bytes.tokens holds tokens of `bytes`", "pairs.tokens those of `gpt2`"];
        refused_in(path, &format!("{train} --data {data}"), &words);
    }
    // Text is read with the default, gpt2, which is not whose tokens the file has.
    fs::create_dir(path.join(".quadrille-cache")).unwrap();
    let output = run(path, &format!("{train} --data wiki.jsonl:1 bytes.tokens:1"));
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn validation_reads_nothing_that_training_reads() {
    let folder = corpus();
    let path = folder.path();
    fs::create_dir(path.join("texts")).unwrap();
    fs::copy(path.join("book.txt"), path.join("texts/a.txt")).unwrap();
    for (data, held_out) in [
        ("book.txt", "./book.txt"),
        ("texts", "texts/a.txt"),
        ("wiki.jsonl:1 texts/a.txt:2", "texts"),
        ("texts", "texts"),
    ] {
        let words = [&format!("--validation-data {held_out}: training reads it with --data "), "--validation"];
        refused_in(path, &format!("{TRAIN} --data {data} --validation-data {held_out}"), &words);
    }
}

/// Lines without a text are errors that name the flag; with it they are skipped, counted and reported, and the rest is read as if
/// they were not there.
#[test]
fn bad_lines_are_refused_or_skipped_and_reported() {
    let folder = corpus();
    let path = folder.path();
    let lines = fs::read_to_string(path.join("wiki.jsonl")).unwrap();
    let bad = ["{\"text\": null}", "{\"id\": 3}", "no JSON", "{\"text\": 7}"];
    let mut mixed: Vec<&str> = lines.lines().collect();
    for (line, at) in bad.into_iter().zip([10, 20, 30, 40]) {
        mixed.insert(at, line);
    }
    fs::write(path.join("mixed.jsonl"), mixed.join("\n")).unwrap();
    fs::write(path.join("first.txt"), format!("{}\n{lines}", bad[0])).unwrap();
    fs::write(path.join("bad.jsonl"), bad.join("\n")).unwrap();
    json_in(path, &format!("{TRAIN} --data wiki.jsonl --out run"));
    for line in [
        format!("{TRAIN} --data mixed.jsonl"),
        "eval --from run --samples 4 --data mixed.jsonl".to_owned(),
        "data prepare mixed.jsonl --tokenizer bytes --out x".to_owned(),
        "data info mixed.jsonl".to_owned(),
        "memorize --seq-len 16 --generate-tokens 4 --data mixed.jsonl".to_owned(),
    ] {
        refused_in(path, &line, &["mixed.jsonl, line 11", "null", "--skip-bad-lines"]);
        refused_in(path, &line.replace("mixed.jsonl", "first.txt"), &["first.txt", "null", "--skip-bad-lines"]);
        let only_bad = format!("{} --skip-bad-lines", line.replace("mixed.jsonl", "bad.jsonl"));
        let words = ["bad.jsonl: none of its lines holds a text; 4 lines skipped, the first is line 1", "--text-field"];
        refused_in(path, &only_bad, &words);
    }
    // What a training run prints and holds, when it reads the texts and when it reads their tokens again.
    let said = "skipped mixed.jsonl: 4 lines without a text, the first is line 11: invalid type: null";
    let losses = json_in(path, &format!("{TRAIN} --data wiki.jsonl"))["losses"].clone();
    let line = format!("{TRAIN} --data mixed.jsonl --skip-bad-lines");
    for cache in ["", "", " --cache elsewhere"] {
        let text = String::from_utf8(run(path, &format!("{line}{cache}")).stderr).unwrap();
        assert!(text.contains(said) && text.contains("60 documents"), "{text}");
    }
    fs::remove_dir_all(path.join("elsewhere")).unwrap();
    let document = json_in(path, &line);
    assert_eq!(document["losses"], losses);
    let source = &document["data"]["sources"][0];
    assert_eq!((&source["skipped_lines"], &source["files"][0]["skipped_lines"]["first"]), (&json!(4), &json!(11)));
    let text = String::from_utf8(run(path, "eval --from run --data mixed.jsonl --skip-bad-lines").stderr).unwrap();
    assert!(text.contains(said), "{text}");
    // A record of the lines that is lost is made again of the text.
    let records = || {
        let entries = fs::read_dir(path.join(".quadrille-cache")).unwrap().map(|entry| entry.unwrap().path());
        entries.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with(".skipped-")).collect::<Vec<_>>()
    };
    assert_eq!(records().len(), 1);
    fs::remove_file(&records()[0]).unwrap();
    assert_eq!(json_in(path, &line)["data"]["sources"][0]["skipped_lines"], 4);
    // Preparation, description.
    json_in(path, "data prepare wiki.jsonl --tokenizer bytes --out plain");
    let prepared = json_in(path, "data prepare mixed.jsonl first.txt --tokenizer bytes --out both --skip-bad-lines");
    let [mixed, first] = [&prepared["skipped_lines"][0], &prepared["skipped_lines"][1]];
    assert_eq!((&prepared["documents"], &mixed["count"], &mixed["first"]), (&json!(120), &json!(4), &json!(11)));
    assert!(
        mixed["path"].as_str().unwrap().ends_with("mixed.jsonl") && mixed["reason"].as_str().unwrap().contains("null")
    );
    assert_eq!((&first["count"], &first["first"]), (&json!(1), &json!(1)));
    let text = String::from_utf8(
        run(path, "data prepare mixed.jsonl --tokenizer bytes --out skipped --skip-bad-lines").stdout,
    );
    assert!(text.unwrap().contains("mixed.jsonl: 4 lines without a text"));
    assert!(fs::read(path.join("plain.tokens")).unwrap() == fs::read(path.join("skipped.tokens")).unwrap());
    let info = json_in(path, "data info mixed.jsonl --skip-bad-lines");
    assert_eq!((&info["files"][0]["documents"], &info["files"][0]["skipped_lines"]["count"]), (&json!(60), &json!(4)));
}

/// The rule for bad lines is part of what decides a run: it resumes by the same one.
#[test]
fn a_run_that_skips_bad_lines_resumes_with_the_same_tokens() {
    let folder = corpus();
    let path = folder.path();
    let lines = fs::read_to_string(path.join("wiki.jsonl")).unwrap();
    fs::write(path.join("mixed.jsonl"), format!("{lines}{{\"text\": null}}\n")).unwrap();
    json_in(path, &format!("{TRAIN} --data mixed.jsonl --skip-bad-lines --out run"));
    let resumed = json_in(path, "train --resume run --steps 5");
    assert_eq!(resumed["data"]["sources"][0]["skipped_lines"], 1);
    let whole = json_in(path, &format!("{TRAIN} --data wiki.jsonl --out whole"));
    let losses = |document: &Value| document["losses"].as_array().unwrap().clone();
    assert_eq!(losses(&json_in(path, "train --resume whole --steps 5")), losses(&resumed));
    assert_eq!(losses(&whole).len(), 3);
    // Another bad line changes no token; without the rule it is an error, and a good line that becomes a bad one is missing.
    fs::write(path.join("mixed.jsonl"), format!("{lines}{{\"text\": null}}\n{{\"text\": 7}}\n")).unwrap();
    assert_eq!(json_in(path, "train --resume run --steps 6")["data"]["sources"][0]["skipped_lines"], 2);
    let (first, rest) = lines.split_once('\n').unwrap();
    fs::write(path.join("mixed.jsonl"), format!("{{\"text\": null}}\n{rest}{first}\n")).unwrap();
    let output = run(path, "train --resume run --steps 7");
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(2) && message.contains("mixed.jsonl has other content"), "{message}");
}

/// `data prepare` prints what it reads as `train` does, before it tokenizes: also where that fails.
#[test]
fn preparation_prints_what_it_reads_before_it_begins() {
    let folder = corpus();
    let path = folder.path();
    fs::write(path.join("latin.txt"), b"caf\xe9").unwrap();
    for (line, is_done, said) in [
        (
            "wiki.jsonl book.txt --out a",
            true,
            &[
                "data    wiki.jsonl, book.txt: 2 files, 1 of json-lines, 1 of text (",
                "), 61 documents\n",
                "tokenizer gpt2, by default for text\n",
            ][..],
        ),
        ("wiki.jsonl --tokenizer bytes --out b", true, &["60 documents", "tokenizer bytes, as named\n"]),
        (
            "a.tokens --out c",
            true,
            &["1 of quadrille", "61 documents, ", " tokens\n", "tokenizer gpt2, as the files of tokens say\n"],
        ),
        ("latin.txt --out d", false, &["data    latin.txt: 1 file, 1 of text (4 B), 1 document\n", "is not UTF-8"]),
    ] {
        let output = run(path, &format!("data prepare {line}"));
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success() == is_done && said.iter().all(|words| text.contains(words)), "{line}: {text}");
    }
    let read = &json_in(path, "data prepare wiki.jsonl book.txt --out a")["read"];
    let source = &read["sources"][0];
    assert_eq!(source["files"], json!(["wiki.jsonl", "book.txt"]));
    assert_eq!((&source["formats"], &source["documents"]), (&json!({ "json-lines": 1, "text": 1 }), &json!(61)));
    assert_eq!((&source["tokens"], &read["tokenizer"]), (&Value::Null, &json!("gpt2, by default for text")));
    // The same words as before a run.
    let prepared = String::from_utf8(run(path, "data prepare wiki.jsonl --tokenizer bytes --out b").stderr).unwrap();
    let trained = String::from_utf8(run(path, &format!("{TRAIN} --data wiki.jsonl")).stderr).unwrap();
    for line in prepared.lines() {
        assert!(trained.contains(line), "'{line}' is not in: {trained}");
    }
}

/// Token ids without a header, as nanoGPT writes them, are read where they are named: to the same losses as with a header.
#[test]
fn raw_token_ids_are_read_where_they_are_named() {
    let folder = corpus();
    let path = folder.path();
    json_in(path, "data prepare wiki.jsonl --out own --tokenizer bytes");
    let documents = (0..60).map(|at| format!("document {at} says {}", at * at).repeat(2) + "\0");
    let bytes: Vec<u8> = documents.collect::<String>().into_bytes();
    let of = |width: usize| -> Vec<u8> {
        bytes.iter().flat_map(|&byte| u32::from(byte).to_le_bytes()[..width].to_vec()).collect()
    };
    fs::write(path.join("train.bin"), of(2)).unwrap();
    fs::write(path.join("wide.bin"), of(4)).unwrap();
    let train = TRAIN.replace(" --tokenizer bytes", "");
    let losses = |data: &str| json_in(path, &format!("{train} --data {data}"))["losses"].clone();
    for more in ["", " --documents respected --tokenizer bytes"] {
        let expected = losses(&format!("own.tokens{more}"));
        assert_eq!(losses(&format!("train.bin --format raw-u16{more}")), expected);
        assert_eq!(losses(&format!("wide.bin --format raw-u32{more}")), expected);
    }
    // Without a tokenizer a file is one document; known headers stay what they are.
    let respected = losses("train.bin --format raw-u16 --documents respected");
    assert_ne!(respected, losses("own.tokens --documents respected"));
    assert_eq!(losses("own.tokens --format raw-u16"), losses("own.tokens"));
    // Without the flag the refusal names it, in every command as it is called there.
    fs::create_dir_all(path.join(".quadrille-cache")).unwrap();
    refused_in(
        path,
        &format!("{train} --data train.bin"),
        &["train.bin", "neither text nor tokens", " --format raw-u16"],
    );
    refused_in(path, "data info train.bin", &["train.bin", " --format raw-u16"]);
    refused_in(path, "data prepare train.bin --out x", &["train.bin", "--input-format raw-u16"]);
    refused_in(path, "data prepare train.bin --out x --format raw-u16", &["quadrille", "--input-format raw-u16"]);
    refused_in(path, "data prepare train.bin --input-format raw-u16 --out x", &["whose tokens", "--tokenizer"]);
    // Lengths and ids.
    fs::write(path.join("odd.bin"), &of(2)[..41]).unwrap();
    refused_in(path, &format!("{train} --data odd.bin --format raw-u16"), &["odd.bin", "1 of 41 bytes", "raw-u32"]);
    let ids: Vec<u8> =
        (0..400_u16).map(|at| if at == 321 { 256 } else { at % 256 }).flat_map(u16::to_le_bytes).collect();
    fs::write(path.join("large.bin"), &ids).unwrap();
    let words = ["large.bin holds token 256 at position 321", "ends at 255"];
    refused_in(path, &format!("{train} --data own.tokens large.bin --format raw-u16"), &words);
    refused_in(path, &format!("{train} --data own.tokens --validation-data large.bin --format raw-u16"), &words);
    refused_in(path, "data prepare large.bin --input-format raw-u16 --tokenizer bytes --out x --json", &words);
    // Described and converted: the documents that the tokenizer's end token ends.
    let info = json_in(path, "data info train.bin --format raw-u16");
    let file = &info["files"][0];
    assert_eq!((&file["format"], &file["tokens"]), (&json!("raw-u16"), &json!(bytes.len())));
    let largest = *bytes.iter().max().unwrap();
    assert_eq!((&file["documents"], &file["largest_token"]), (&json!(1), &json!(largest)));
    json_in(path, "data prepare train.bin --input-format raw-u16 --tokenizer bytes --out again");
    assert!(fs::read(path.join("again.tokens")).unwrap() == fs::read(path.join("own.tokens")).unwrap());
    // A run goes on with the same content and no other, and a folder of shards is one source.
    json_in(path, &format!("{train} --data train.bin --format raw-u16 --out run"));
    json_in(path, "train --resume run --steps 4");
    let changed: Vec<u8> = of(2).into_iter().map(|byte| if byte == b'd' { b'D' } else { byte }).collect();
    fs::write(path.join("train.bin"), changed).unwrap();
    let output = run(path, "train --resume run --steps 5");
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(2) && message.contains("train.bin has other content"), "{message}");
    fs::create_dir(path.join("shards")).unwrap();
    let half = bytes.len() / 2 * 2;
    fs::write(path.join("shards/0.bin"), &of(2)[..half]).unwrap();
    fs::write(path.join("shards/1.bin"), &of(2)[half..]).unwrap();
    assert_eq!(losses("shards --format raw-u16"), losses("own.tokens"));
}

/// Parquet files are read like JSON lines: by content or by name, in every command, to the same tokens.
#[test]
fn parquet_is_read_like_json_lines() {
    let folder = corpus();
    let path = folder.path();
    let stored = Path::new(env!("CARGO_MANIFEST_DIR")).join("../data/tests/data");
    fs::create_dir(path.join("set")).unwrap();
    fs::copy(stored.join("zstd-v1.parquet"), path.join("set/train-0.parquet")).unwrap();
    fs::copy(stored.join("zstd-v2.parquet"), path.join("set/train-1.parquet")).unwrap();
    fs::copy(stored.join("zstd-v1.parquet"), path.join("no-name")).unwrap();
    let text = |row: usize| format!("text {row} ").repeat(1 + row % 9);
    let lines = (0..120).filter(|row| row % 10 != 0).map(|row| format!("{}\n", json!({ "text": text(row) })));
    let lines: String = lines.collect();
    fs::write(path.join("one.jsonl"), &lines).unwrap();
    fs::write(path.join("both.jsonl"), lines.repeat(2)).unwrap();
    let losses = |data: &str| json_in(path, &format!("{TRAIN} --data {data}"))["losses"].clone();
    let expected = losses("both.jsonl");
    for data in
        ["set", "set --format parquet", "set/train-0.parquet set/train-1.parquet", "no-name set/train-1.parquet"]
    {
        assert_eq!(losses(&format!("{data} --skip-bad-lines")), expected, "{data}");
    }
    // What is printed, prepared and described.
    let output = run(path, &format!("{TRAIN} --data set --skip-bad-lines --out run"));
    let said = String::from_utf8(output.stderr).unwrap();
    for words in [
        "data    train-0.parquet, train-1.parquet: 2 files, 2 of parquet",
        "216 documents",
        "skipped train-1.parquet: 12 rows without a text, the first is row 1: the text is null",
    ] {
        assert!(said.contains(words), "'{words}' is not in: {said}");
    }
    json_in(path, "data prepare set --tokenizer bytes --out table --skip-bad-lines");
    json_in(path, "data prepare both.jsonl --tokenizer bytes --out lines");
    assert!(fs::read(path.join("table.tokens")).unwrap() == fs::read(path.join("lines.tokens")).unwrap());
    let info = json_in(path, "data info set/train-0.parquet --skip-bad-lines");
    let file = &info["files"][0];
    assert_eq!((&file["format"], &file["documents"]), (&json!("parquet"), &json!(108)));
    assert_eq!(file["skipped_lines"]["unit"], "row");
    // A run goes on with files of the same content and no others.
    json_in(path, "train --resume run --steps 4");
    json_in(path, "eval --from run --data no-name --skip-bad-lines --samples 4");
    let output = |line: &str| {
        let output = run(path, line);
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    fs::rename(path.join("set/train-1.parquet"), path.join("set/train-2.parquet")).unwrap();
    json_in(path, "train --resume run --steps 5");
    fs::remove_file(path.join("set/train-2.parquet")).unwrap();
    let (code, message) = output("train --resume run --steps 6");
    assert!(code == Some(2) && message.contains("train-2.parquet is missing"), "{message}");
    // Refusals.
    let cut = fs::read(path.join("no-name")).unwrap();
    fs::write(path.join("cut.parquet"), &cut[..2000]).unwrap();
    for (data, words) in [
        ("no-name", ["no-name, row 1: the text is null", "--skip-bad-lines"]),
        ("no-name --text-field body", ["no column `body`; its columns: id, text", "--text-field"]),
        ("no-name --text-field id", ["column `id` is of type INT64", "--text-field"]),
        ("no-name --format text", ["no-name is no text but a Parquet file", "--format parquet"]),
        ("book.txt --format parquet", ["Parquet file", "book.txt cannot be read"]),
        ("cut.parquet", ["Parquet file", "cut.parquet cannot be read"]),
    ] {
        for line in [format!("{TRAIN} --data {data}"), format!("data info {data}")] {
            let is_read_as_it_is = line.starts_with("data info") && data.ends_with("--format text");
            if !is_read_as_it_is {
                refused_in(path, &line, &words);
            }
        }
    }
}
