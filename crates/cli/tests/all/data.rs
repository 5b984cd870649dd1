//! `quadrille data`, and what `train` reads: formats, mixtures, documents, validation, the goldfish mask.

use std::fs::{self, OpenOptions};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use serde_json::{Value, json};

use crate::common::{json as one_json, run};
use crate::refusals::{folder_with, refused, refused_in};

pub const TRAIN: &str = "train --model gpt-tiny --set vocab=256 --tokenizer bytes --threads 1 --grid x=1 --steps 3";

pub fn json_in(folder: &Path, line: &str) -> Value {
    let output = run(folder, &format!("{line} --json"));
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// A folder with 60 documents in JSON lines, and a text.
pub fn corpus() -> tempfile::TempDir {
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
    json_in(path, "data info fields.txt --format text");
    let prepared = json_in(path, "data prepare fields.txt --text-field body --out body --tokenizer bytes");
    assert_eq!(prepared["documents"], 60);
    fs::write(path.join("marked.txt"), format!("\u{feff}{lines}")).unwrap();
    assert_eq!(json_in(path, "data prepare marked.txt --out marked --tokenizer bytes")["documents"], 60);
    let unused = ["--text-field body: none of the files is read as JSON lines", "-format json-lines"];
    refused_in(path, &format!("{TRAIN} --data book.txt --text-field body"), &unused);
    refused_in(path, "data prepare book.txt --text-field body --out x", &unused);
    refused_in(path, "memorize --data book.txt --text-field body --seq-len 16 --generate-tokens 4", &unused);
    let unused = ["--skip-bad-lines: none of the files is read as JSON lines", "-format json-lines"];
    refused_in(path, &format!("{TRAIN} --data book.txt --skip-bad-lines"), &unused);
    refused_in(path, "data prepare book.txt --skip-bad-lines --out x", &unused);
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
                "tokenizer gpt2, by default for text; documents begin without BOS\n",
            ][..],
        ),
        (
            "wiki.jsonl --tokenizer bytes --out b",
            true,
            &["60 documents", "tokenizer bytes, as named; documents begin without BOS\n"],
        ),
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
    assert_eq!(
        (&source["tokens"], &read["tokenizer"]),
        (&Value::Null, &json!("gpt2, by default for text; documents begin without BOS"))
    );
    // The same words as before a run.
    let prepared = String::from_utf8(run(path, "data prepare wiki.jsonl --tokenizer bytes --out b").stderr).unwrap();
    let trained = String::from_utf8(run(path, &format!("{TRAIN} --data wiki.jsonl")).stderr).unwrap();
    for line in prepared.lines() {
        assert!(trained.contains(line), "'{line}' is not in: {trained}");
    }
}
