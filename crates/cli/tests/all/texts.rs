//! Prompts and documents have the special tokens that the transformers library gives them, and chats those of the chat template.
//! Tokens of the library: `crates/hugging-face/tests/data/make_texts.py`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::common::run;

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../hugging-face/tests/data/llama-chat")
}

fn read(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

fn quadrille(folder: &Path, words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_quadrille")).args(words).current_dir(folder).output().unwrap()
}

fn document(folder: &Path, words: &[&str]) -> Value {
    let output = quadrille(folder, words);
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// A folder with the fixture in `hf`, changed, and its checkpoint in `ours`.
fn imported(change: impl Fn(&Path)) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("hf");
    fs::create_dir(&copy).unwrap();
    for entry in fs::read_dir(fixture()).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, copy.join(path.file_name().unwrap())).unwrap();
    }
    change(&copy);
    document(folder.path(), &["convert", "--from-hf", "hf", "ours", "--json"]);
    folder
}

fn edit(path: &Path, change: impl Fn(&mut Value)) {
    let mut value = read(path);
    change(&mut value);
    fs::write(path, value.to_string()).unwrap();
}

const GENERATE: [&str; 10] =
    ["generate", "--from", "ours", "--temperature", "0", "--max-tokens", "12", "--json", "--grid", "x=2"];

fn generated(folder: &Path, words: &[&str]) -> (Value, Value) {
    let made = document(folder, &[&GENERATE[..], words].concat());
    let sequence = &made["sequences"][0];
    (sequence["prompt_tokens"].clone(), sequence["tokens"].clone())
}

#[test]
fn prompts_have_the_tokens_of_transformers_and_so_do_texts_behind_them() {
    let without = |folder: &Path| edit(&folder.join("tokenizer.json"), |file| file["post_processor"] = Value::Null);
    let flag = |folder: &Path| {
        without(folder);
        edit(&folder.join("tokenizer_config.json"), |config| config["add_bos_token"] = json!(true));
    };
    let texts = read(&fixture().join("texts.json"))["texts"].clone();
    let folders = [
        ("usual", imported(|_| {}), None),
        ("plain", imported(without), None),
        ("flag", imported(flag), None),
        ("parsed", imported(|_| {}), Some("--parse-special")),
    ];
    let mut cases = 0;
    for (kind, folder, more) in &folders {
        for text in texts.as_array().unwrap().iter().filter(|text| text["kind"] == *kind) {
            let prompt = format!("--prompt={}", text["prompt"].as_str().unwrap());
            let words: Vec<&str> = [prompt.as_str()].into_iter().chain(*more).collect();
            let found = generated(folder.path(), &words);
            assert_eq!(found, (text["prompt_tokens"].clone(), text["tokens"].clone()), "{kind}: {prompt}");
            cases += 1;
        }
    }
    assert_eq!(cases, 20);
}

#[test]
fn chats_have_the_tokens_of_apply_chat_template_and_end_where_transformers_ends_them() {
    let folder = imported(|_| {});
    let chats = read(&fixture().join("texts.json"))["chats"].clone();
    for chat in chats.as_array().unwrap() {
        let prompt = format!("--prompt={}", chat["prompt"].as_str().unwrap());
        let system = chat["system"].as_str();
        let words: Vec<&str> = [prompt.as_str(), "--chat"]
            .into_iter()
            .chain(system.into_iter().flat_map(|text| ["--system", text]))
            .collect();
        let found = generated(folder.path(), &words);
        assert_eq!(found, (chat["prompt_tokens"].clone(), chat["tokens"].clone()), "{words:?}");
    }
    assert_eq!(chats.as_array().unwrap().len(), 8);
    // The answer alone is shown.
    let words =
        ["generate", "--from", "ours", "--prompt", "Hello world", "--chat", "--temperature", "0", "--max-tokens", "1"];
    let shown = quadrille(folder.path(), &words);
    assert_eq!(String::from_utf8(shown.stdout).unwrap(), "<think>\n");
    // Without a generation configuration the model's own end counts.
    fs::remove_file(folder.path().join("ours/generation_config.json")).unwrap();
    let (_, longer) = generated(folder.path(), &["--prompt=<|im_start|>user", "--chat"]);
    assert!(!longer.as_array().unwrap().is_empty());
}

/// Training, resuming, merging and pruning keep the files around the weights, and exports return them.
#[test]
fn the_files_around_the_weights_outlive_training() {
    let folder = imported(|_| {});
    let path = folder.path();
    let succeed = |line: &str| {
        let output = run(path, line);
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    };
    fs::write(path.join("a.txt"), "a model of tokens and of texts ".repeat(40)).unwrap();
    succeed("train --from ours --threads 1 --grid x=1 --steps 2 --seq-len 16 --global-batch 2 --data a.txt --out run");
    succeed("train --resume run --steps 3");
    succeed("checkpoint merge run --out merged");
    succeed("prune --from run --sparsity 0.5 --out pruned");
    for from in ["run", "run/checkpoints/step-000000000003", "merged", "pruned"] {
        let to = format!("exported-{}", from.replace('/', "-"));
        succeed(&format!("convert --to-hf {to} {from}"));
        for file in ["tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json"] {
            assert!(
                fs::read(path.join(&to).join(file)).unwrap() == fs::read(fixture().join(file)).unwrap(),
                "{from}: {file}"
            );
        }
        let config = read(&path.join(&to).join("config.json"));
        let before = read(&fixture().join("config.json"));
        assert!(before.as_object().unwrap().iter().all(|(field, value)| config[field] == *value), "{from}: {config}");
        assert_eq!((&config["rope_theta"], &config["rope_scaling"]["factor"]), (&json!(5000.0), &json!(8.0)));
    }
    // A model from scratch has the tokens of the tokenizer that its run was given.
    let scratch = "train --model llama-tiny --set vocab=306 --threads 1 --grid x=1 --steps 1 --seq-len 16 --data a.txt";
    succeed(&format!("{scratch} --tokenizer hf/tokenizer.json --out scratch"));
    succeed("convert --to-hf exported-scratch scratch");
    let at = |file: &str| read(&path.join("exported-scratch").join(file));
    for file in ["config.json", "generation_config.json"] {
        let found = ["bos_token_id", "eos_token_id", "pad_token_id"].map(|field| at(file)[field].clone());
        assert_eq!(found, [json!(300), json!(301), json!(304)], "{file}");
    }
    assert!(path.join("exported-scratch/chat_template.jinja").is_file());
}

/// A run with another tokenizer than that of the import: the export names ids of the one that it has read.
#[test]
fn an_export_has_the_special_tokens_of_the_tokenizer_that_was_read() {
    let folder = imported(|_| {});
    let path = folder.path();
    let mut other = read(&fixture().join("tokenizer.json"));
    other["post_processor"] = Value::Null;
    fs::create_dir(path.join("other")).unwrap();
    fs::write(path.join("other/mine.json"), other.to_string()).unwrap();
    let names = json!({ "bos_token": "<|im_start|>", "eos_token": "<|im_end|>" });
    fs::write(path.join("other/tokenizer_config.json"), names.to_string()).unwrap();
    fs::write(path.join("a.txt"), "a model of tokens and of texts ".repeat(40)).unwrap();
    for line in [
        "train --from ours --tokenizer other/mine.json --threads 1 --grid x=1 --steps 1 --seq-len 16 --global-batch 2 \
         --data a.txt --out run",
        "convert --to-hf exported run",
    ] {
        let output = run(path, &line.split_whitespace().collect::<Vec<_>>().join(" "));
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    }
    for file in ["config.json", "generation_config.json"] {
        let written = read(&path.join("exported").join(file));
        assert_eq!((&written["bos_token_id"], &written["eos_token_id"]), (&json!(302), &json!(303)), "{file}");
        assert!(written["pad_token_id"].is_null(), "{file}");
    }
    // Files that cannot be copied are found before a checkpoint is written.
    fs::remove_file(path.join("ours/tokenizer_config.json")).unwrap();
    fs::create_dir(path.join("ours/tokenizer_config.json")).unwrap();
    for (line, out) in
        [("checkpoint merge ours --out merged", "merged"), ("prune --from ours --sparsity 0.5 --out pruned", "pruned")]
    {
        let output = run(path, line);
        assert!(!output.status.success() && !path.join(out).exists(), "{line}");
    }
}

/// Refusals name the file without a template; a named tokenizer has the template of its folder.
#[test]
fn a_model_without_a_chat_template_is_refused_with_the_file_that_has_none() {
    let folder = imported(|folder| fs::remove_file(folder.join("chat_template.jinja")).unwrap());
    for (line, words) in [
        ("generate --from ours --prompt a --chat", ["tokenizer_config.json has no chat_template", "--chat"]),
        ("generate --from ours --prompt a --system b", ["--chat", "--system"]),
    ] {
        let output = run(folder.path(), line);
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.code() == Some(2) && words.iter().all(|word| message.contains(word)),
            "{line}: {message}"
        );
    }
    let named = fixture().join("tokenizer.json");
    let (tokens, _) = generated(folder.path(), &["--prompt=a", "--chat", "--tokenizer", named.to_str().unwrap()]);
    assert_eq!(&tokens.as_array().unwrap()[..2], [300, 302]);
    run(
        folder.path(),
        "train --model gpt-tiny --set vocab=256 --tokenizer bytes --threads 1 --grid x=1 --steps 1 --out run",
    );
    let output = run(folder.path(), "generate --from run --prompt a --chat");
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && message.contains("`bytes` has no chat template"), "{message}");
}

/// Tokens of `data prepare`, `train` and `eval` of the same documents; a resumed run keeps its rule.
#[test]
fn documents_begin_with_bos_where_the_rule_of_the_tokenizer_says_so() {
    let folder = imported(|_| {});
    let path = folder.path();
    let texts: Vec<Value> = (0..40).map(|at| json!({ "text": format!("a model {at} <|im_end|>") })).collect();
    fs::write(path.join("wiki.jsonl"), texts.iter().map(|text| format!("{text}\n")).collect::<String>()).unwrap();
    let prepared = |more: &[&str]| {
        let words = [
            "data",
            "prepare",
            "wiki.jsonl",
            "--tokenizer",
            "hf/tokenizer.json",
            "--out",
            "own",
            "--format",
            "megatron",
        ];
        document(path, &[&words[..], more, &["--json"]].concat());
        let bytes = fs::read(path.join("own.bin")).unwrap();
        let tokens: Vec<u16> = bytes.as_chunks().0.iter().map(|pair| u16::from_le_bytes(*pair)).collect();
        tokens
    };
    let tokens = prepared(&[]);
    let count = |tokens: &[u16], token| tokens.iter().filter(|other| **other == token).count();
    assert_eq!((count(&tokens, 300), count(&tokens, 301), count(&tokens, 303)), (40, 40, 0));
    assert!(tokens.windows(2).all(|pair| (pair[0] == 301) == (pair[1] == 300)) && tokens[0] == 300);
    let parsed = prepared(&["--parse-special"]);
    assert_eq!((count(&parsed, 300), count(&parsed, 301), count(&parsed, 303)), (40, 40, 40));
    assert!(parsed.len() < tokens.len());

    let said = |line: &str| {
        let output = run(path, line);
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{line}: {text}");
        text
    };
    let train = "train --from ours --threads 1 --grid x=1 --steps 2 --seq-len 16 --global-batch 2 --data wiki.jsonl";
    let line = "tokenizer.json, of the checkpoint's folder; documents begin with BOS <|begin|> [300]";
    let text = said(&format!("{train} --out run"));
    assert!(text.contains(&format!("{} tokens", tokens.len())) && text.contains(&format!("{line}\n")), "{text}");
    assert!(said("eval --from run --data wiki.jsonl --samples 2").contains(line));
    let text = said(&format!("{train} --parse-special --out parsed"));
    assert!(text.contains(&format!("{line}; special tokens in text are parsed")), "{text}");
    assert!(text.contains(&format!("{} tokens", parsed.len())), "{text}");

    let text = said("eval --from parsed --data wiki.jsonl --samples 2");
    assert!(text.contains(&format!("{line}; special tokens in text are parsed")), "{text}");

    // A resumed run keeps its rule, which its description must have.
    let spec = read(&path.join("parsed/run.json"))["spec"]["data"]["special"].clone();
    assert_eq!(spec, json!({ "added": true, "parsed": true }));
    assert!(said("train --resume parsed --steps 3").contains("special tokens in text are parsed"));
    edit(&path.join("run/run.json"), |run| {
        run["spec"]["data"].as_object_mut().unwrap().remove("special").unwrap();
    });
    let output = run(path, "train --resume run --steps 3");
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && message.contains("missing field `special`"), "{message}");
}
