//! JSON lines with bad ones, Parquet and token ids without a header in `train`, `eval` and `data`.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::common::run;
use crate::data::{TRAIN, corpus, json_in};
use crate::refusals::refused_in;

/// Files that hold no token are no data.
#[test]
fn files_without_a_text_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("blank.jsonl"), "\n\n\n").unwrap();
    fs::write(folder.path().join("empty.jsonl"), "{\"text\": \"\"}\n").unwrap();
    for data in ["blank.jsonl", "empty.jsonl"] {
        for line in [
            format!("data prepare {data} --tokenizer bytes --out out --json"),
            format!("train --model gpt-tiny --set vocab=256 --threads 1 --steps 1 --grid x=1 --data {data}"),
        ] {
            let output = run(folder.path(), &line);
            let message = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(2), "{line}: {message}");
            assert!(
                message.contains("no text in ") && message.contains(&format!("{data}: there is nothing")),
                "{line}: {message}"
            );
        }
        assert!(!folder.path().join("out.tokens").exists());
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
        let as_text = if line.starts_with("data prepare") { "--input-format text" } else { "--format text" };
        refused_in(path, &only_bad, &[as_text, "leave the file out"]);
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
    let skipped = &source["skipped_lines"];
    assert_eq!(skipped.as_array().map(Vec::len), Some(1));
    assert_eq!(
        (&skipped[0]["count"], &skipped[0]["first"], &skipped[0]["unit"]),
        (&json!(4), &json!(11), &json!("line"))
    );
    let text = String::from_utf8(run(path, "eval --from run --data mixed.jsonl --skip-bad-lines").stderr).unwrap();
    assert!(text.contains(said), "{text}");
    // A record of the lines that is lost is made again of the text.
    let records = || {
        let entries = fs::read_dir(path.join(".quadrille-cache")).unwrap().map(|entry| entry.unwrap().path());
        entries.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with(".skipped-")).collect::<Vec<_>>()
    };
    assert_eq!(records().len(), 1);
    fs::remove_file(&records()[0]).unwrap();
    assert_eq!(&json_in(path, &line)["data"]["sources"][0]["skipped_lines"], skipped);
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
    assert_eq!(
        (&info["files"][0]["documents"], &info["files"][0]["skipped_lines"][0]["count"]),
        (&json!(60), &json!(4))
    );
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
    assert_eq!(resumed["data"]["sources"][0]["skipped_lines"][0]["count"], 1);
    let whole = json_in(path, &format!("{TRAIN} --data wiki.jsonl --out whole"));
    let losses = |document: &Value| document["losses"].as_array().unwrap().clone();
    assert_eq!(losses(&json_in(path, "train --resume whole --steps 5")), losses(&resumed));
    assert_eq!(losses(&whole).len(), 3);
    // Another bad line changes no token; without the rule it is an error, and a good line that becomes a bad one is missing.
    fs::write(path.join("mixed.jsonl"), format!("{lines}{{\"text\": null}}\n{{\"text\": 7}}\n")).unwrap();
    assert_eq!(json_in(path, "train --resume run --steps 6")["data"]["sources"][0]["skipped_lines"][0]["count"], 2);
    let (first, rest) = lines.split_once('\n').unwrap();
    fs::write(path.join("mixed.jsonl"), format!("{{\"text\": null}}\n{rest}{first}\n")).unwrap();
    let output = run(path, "train --resume run --steps 7");
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(2) && message.contains("mixed.jsonl has other content"), "{message}");
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
    // Beside them lie a text, a script and notes, as in nanoGPT's folders; by name these are refused.
    for name in ["input.txt", "prepare.py", "readme.md", "meta.pkl"] {
        fs::write(path.join("shards").join(name), "no ids at all").unwrap();
    }
    assert_eq!(losses("shards --format raw-u16"), losses("own.tokens"));
    let words = ["input.txt looks like text", "without --format", "ends in .bin"];
    refused_in(path, &format!("{train} --data shards/input.txt --format raw-u16"), &words);
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
    assert_eq!(file["skipped_lines"][0]["unit"], "row");
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
