//! `quadrille eval` and `quadrille generate`: what training has written, evaluated and continued in other layouts.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::common::{json, run};

/// A folder with a text and a run of some steps on it.
fn trained() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let text: String = (0..600).map(|n| format!("{n} and {} make {}.\n", n % 7, n + n % 7)).collect();
    let [text_file, out] = ["sums.txt", "run"].map(|name| folder.path().join(name));
    fs::write(&text_file, text).unwrap();
    let document = json(&format!(
        "train --model gpt-tiny --set vocab=256 --set seq_len=32 --tokenizer bytes --validation 0.2 --threads 1 \
         --grid x=2,data=2 --global-batch 8 --steps 30 --lr 1e-2 --validate-every 12 --data {} --out {}",
        text_file.display(),
        out.display()
    ));
    assert_eq!(document["ledger"]["equal"], true, "training around validations");
    folder
}

/// The document of a command.
fn json_in(folder: &Path, line: &str) -> Value {
    let output = run(folder, &format!("{line} --json"));
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// What a command says that cannot be done, with exit code 2.
fn refused(folder: &Path, line: &str) -> String {
    let output = run(folder, line);
    assert_eq!(output.status.code(), Some(2), "{line}");
    String::from_utf8(output.stderr).unwrap()
}

const DATA: &str = "--data sums.txt --tokenizer bytes --validation 0.2";

#[test]
fn every_layout_has_the_loss_that_training_has_validated() {
    let folder = trained();
    let mut losses = Vec::new();
    for grid in ["x=1", "x=4", "z=2,data=2", "pipe=2", "context=2"] {
        let line = format!("eval --from run {DATA} --grid {grid} --global-batch 8 --steps 4");
        let document = json_in(folder.path(), &line);
        assert_eq!(document["ledger"]["equal"], true, "{grid}");
        assert_eq!((&document["step"], &document["targets"]), (&Value::from(30), &Value::from(4 * 8 * 32)));
        let loss = document["loss"].as_f64().unwrap();
        let perplexity = document["perplexity"].as_f64().unwrap();
        assert!((loss.exp() - perplexity).abs() < 1e-9);
        losses.push(loss);
    }
    assert!(losses[0] < 3.5, "learned something: {losses:?}");
    assert!(losses.iter().all(|loss| (loss - losses[0]).abs() < 1e-5), "{losses:?}");
    // All that was kept apart, as at the end of training; a folder of checkpoints will do.
    let events = fs::read_to_string(folder.path().join("run/events.jsonl")).unwrap();
    let mut events = events.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let validated = events.rfind(|event| event["kind"] == "validation").unwrap();
    let document = json_in(folder.path(), &format!("eval --from run/checkpoints {DATA} --samples 1000"));
    let [found, expected] = [&document, &validated].map(|each| each["loss"].as_f64().unwrap());
    assert!((found - expected).abs() < 1e-5, "{found} and {expected}");
    let text = run(folder.path(), &format!("eval --from run/checkpoints {DATA} --global-batch 8 --steps 1"));
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.contains("perplexity") && text.contains("8 validation samples"), "{text}");
}

/// The loss must not depend on how many samples fill a batch, nor leave out those that fill none.
#[test]
fn an_incomplete_last_batch_is_evaluated() {
    let folder = trained();
    let all = json_in(folder.path(), &format!("eval --from run {DATA} --samples 1000000"));
    let kept = all["sequences"].as_u64().unwrap();
    let whole = [7, 16, 8].iter().any(|batch| kept.is_multiple_of(*batch));
    assert!(kept > 64 && !whole, "no batch below or of training divides {kept}");
    for (samples, expected) in [("--samples 1000000", kept), ("--steps 1000000", kept), ("--samples 13", 13), ("", 64)]
    {
        let mut losses = Vec::new();
        for layout in
            ["--grid x=1 --global-batch 7", "--grid data=4 --global-batch 16", "--grid z=2,pipe=2", "--grid y=2"]
        {
            let document = json_in(folder.path(), &format!("eval --from run {DATA} --dtype f64 {layout} {samples}"));
            let found = [&document["sequences"], &document["targets"]].map(|count| count.as_u64().unwrap());
            assert_eq!(found, [expected, expected * 32], "{layout} {samples}");
            losses.push(document["loss"].as_f64().unwrap());
        }
        assert!(losses.iter().all(|loss| (loss - losses[0]).abs() < 1e-11 * losses[0]), "{samples}: {losses:?}");
    }
    // Training has validated all of them too, though its batch of 8 does not divide them.
    let events = fs::read_to_string(folder.path().join("run/events.jsonl")).unwrap();
    assert!(events.contains(&format!("over {} targets", kept * 32)), "{events}");
}

/// Files that are read as for training go on from their beginning; the report says so.
#[test]
fn samples_that_are_read_again_are_told() {
    let folder = trained();
    let line = "eval --from run --data sums.txt --tokenizer bytes";
    let all = json_in(folder.path(), line)["available"].as_u64().unwrap();
    assert!(all > 64);
    for (samples, told) in [(all, None), (all + 3, Some(format!("3 samples: the data has {all}")))] {
        let text = run(folder.path(), &format!("{line} --samples {samples}"));
        let text = String::from_utf8(text.stdout).unwrap();
        assert!(text.contains(&format!("{samples} training samples")), "{text}");
        assert_eq!(text.contains("read again"), told.is_some(), "{text}");
        assert!(told.is_none_or(|told| text.contains(&told)), "{text}");
    }
}

/// What is drawn by step is what the run has read, whatever batch it is evaluated in.
#[test]
fn built_in_samples_are_those_of_the_run_in_every_batch() {
    for model in ["--model gpt-tiny --set vocab=256", "--model vit-tiny"] {
        let folder = tempfile::tempdir().unwrap();
        let line = format!("train {model} --grid x=2 --global-batch 6 --steps 3 --threads 1 --dtype f64 --out run");
        assert!(run(folder.path(), &line).status.success());
        for validation in ["", "--validation 0.5"] {
            let losses: Vec<f64> =
                ["--grid x=1 --global-batch 5", "--grid data=2,z=2 --global-batch 8", "--grid pipe=2"]
                    .map(|layout| {
                        let line = format!("eval --from run --samples 13 {validation} {layout}");
                        let document = json_in(folder.path(), &line);
                        assert_eq!(document["sequences"], 13, "{line}");
                        document["loss"].as_f64().unwrap()
                    })
                    .to_vec();
            assert!(losses.iter().all(|loss| (loss - losses[0]).abs() < 1e-11 * losses[0]), "{model}: {losses:?}");
        }
    }
}

#[test]
fn every_layout_continues_a_text_alike() {
    let folder = trained();
    let line = "generate --from run --prompt 7 --max-tokens 20 --temperature 0.3";
    let generated = |grid: &str| json_in(folder.path(), &format!("{line} --grid {grid}"));
    let one = generated("x=1");
    let sequence = |document: &Value| document["sequences"][0].clone();
    assert_eq!(sequence(&one)["tokens"].as_array().unwrap().len(), 20);
    assert_eq!(sequence(&one)["finish"], "max_tokens");
    for grid in ["x=2,y=2", "z=2", "context=2,pipe=2", "data=4"] {
        let other = generated(grid);
        assert_eq!(other["ledger"]["equal"], true);
        assert_eq!(sequence(&other), sequence(&one), "{grid}");
    }
    // As it comes, with what it took on standard error.
    let output = run(folder.path(), line);
    let shown = String::from_utf8(output.stdout).unwrap();
    assert_eq!(
        shown,
        format!("{}{}\n", sequence(&one)["prompt"].as_str().unwrap(), sequence(&one)["text"].as_str().unwrap())
    );
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(told.contains("first token after") && told.contains("tokens/s"), "{told}");
}

#[test]
fn several_prompts_and_files_are_continued_at_once() {
    let folder = trained();
    fs::write(folder.path().join("prompt.txt"), "12 and ").unwrap();
    let line = "generate --from run --prompt 3 --prompt-file prompt.txt --max-tokens 100 --top-k 5 --top-p 0.9 --stop";
    let document = json_in(folder.path(), line);
    let sequences = document["sequences"].as_array().unwrap();
    assert_eq!(sequences.len(), 2);
    for (sequence, prompt) in sequences.iter().zip(["3", "12 and "]) {
        assert_eq!(sequence["prompt"], prompt);
        let tokens = sequence["tokens"].as_array().unwrap().len();
        match sequence["finish"].as_str().unwrap() {
            "model_length" => assert_eq!(tokens + prompt.len(), 32),
            finish => assert_eq!(finish, "stop"),
        }
    }
    let output = run(folder.path(), line);
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(shown.starts_with("== 1 ==\n3") && shown.contains("== 2 ==\n12 and "), "{shown}");
}

#[test]
fn what_cannot_be_done_is_said() {
    let folder = trained();
    let has = |line: &str, part: &str| {
        let message = refused(folder.path(), line);
        assert!(message.contains(part), "{line}: {message}");
    };
    has("eval --from nowhere", "nowhere");
    has("eval --from run", "name what is to be evaluated with --data");
    has(&format!("eval --from run {DATA} --grid x=5"), "x=5");
    has(&format!("eval --from run {DATA} --samples 9 --steps 2"), "cannot be used with");
    has("generate --from run", "--prompt");
    has("generate --from run --prompt-file nothing.txt", "cannot read nothing.txt");
    has("generate --from run --prompt a --temperature -1", "use 0 for the likeliest token");
    has("generate --from run --prompt a --top-p 2", "it is a probability");
    has("generate --from run --prompt a --max-tokens 0", "use 1 or more");
    has("generate --from run --prompt a --tokenizer gpt2", "50257 ids");
    has(
        "generate --from run --prompt aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        "leave no room in the model's 32 positions",
    );
}
