//! `quadrille checkpoint`: what is told of checkpoints, what is refused, what is left on disk.

use std::fs;
use std::path::Path;

use quadrille_checkpoint::{About, Checkpoint, Draft, Folder, Quantity, TensorShape, Tile};
use quadrille_spec::{Layout, LayoutRequest, Model, RealType};
use serde_json::{Value, json};

use crate::common::{json as document, run};
use crate::refusals::{folder_with, refused, refused_in};

/// The tensors of two blocks, and one that is not finite at one place.
fn shapes() -> Vec<TensorShape> {
    let names = [("block.0.up.weight", 4), ("block.1.up.weight", 4), ("final_norm.gamma", 1)];
    names.map(|(name, rows)| TensorShape { name: name.to_owned(), rows, cols: 6 }).into()
}

/// A run's folder with checkpoints of these steps, each in the files of two ranks.
fn run_of(steps: &[u64]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    steps.iter().for_each(|step| write(&folder.path().join("checkpoints"), *step));
    folder
}

fn write(folder: &Path, step: u64) {
    write_of(folder, step, Model::gpt(2, 24, 3, 17, 12));
}

fn write_of(folder: &Path, step: u64, model: Model) {
    let layout = Layout::new(&model, &LayoutRequest::new("x=3,data=2".parse().unwrap(), 8)).unwrap();
    let hyper = json!({"learning_rate": 0.003});
    let data = json!({"path": "text"});
    let run = Value::Null;
    let samples = 8 * step;
    let tokens = 96 * step;
    let dtype = RealType::F64;
    let about = About { model, layout, dtype, step, samples, tokens, seed: 5, hyper, data, run, hugging_face: None };
    for (rank, quantities) in [(0, &Quantity::NUMBERS[..1]), (4, &Quantity::NUMBERS[1..])] {
        let parts = quantities.iter().flat_map(|quantity| shapes().into_iter().map(move |shape| (*quantity, shape)));
        let tiles: Vec<_> = parts
            .map(|(quantity, shape)| {
                let mut numbers: Vec<f64> = (0..shape.rows * 6).map(|at| at as f64 / 3.0).collect();
                numbers[0] = if shape.rows == 1 && rank == 4 { f64::NAN } else { 1.0 };
                (Tile { tensor: shape.name, quantity, row: 0, col: 0, rows: shape.rows, cols: 6 }, numbers.into())
            })
            .collect();
        Draft::begin(folder, step).unwrap().write::<f64>(rank, &tiles).unwrap();
    }
    Draft::begin(folder, step).unwrap().commit(&about, &shapes(), &[0, 4]).unwrap();
}

/// Exit code, standard output, standard error.
fn output(folder: &Path, line: &str) -> (Option<i32>, String, String) {
    let output = run(folder, line);
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// Changes the last number of a rank's file.
fn spoil(folder: &Path, step: u64, rank: usize) {
    let file = Folder::of(folder).path_of(step).join(format!("rank-{rank:05}.safetensors"));
    let mut bytes = fs::read(&file).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(file, bytes).unwrap();
}

/// The token to be predicted is in the input, one position later.
#[test]
fn tokens_are_not_learned_or_evaluated_with_attention_to_the_answer() {
    let words =
        ["causal = false", "the next token is predicted", "attention reads it from the input", "use causal = true"];
    for line in [
        "train --model gpt-tiny --steps 1 --set causal=false --set vocab=256",
        "train --model gpt-tiny --steps 1 --set causal=false --set vocab=256 --out run --json",
        "memorize --model gpt-tiny --set causal=false --set vocab=256",
    ] {
        refused(line, &words);
    }
    let one = "name='m'\nlayers=3\nhidden=12\nheads=3\nvocab=256\nseq_len=8\n[[blocks]]\nat=[1]\ncausal=false\n";
    let of_block = ["blocks.1.causal = false", "use blocks.1.causal = true"];
    refused_in(folder_with("m.toml", one).path(), "train --model m.toml --steps 1", &of_block);
    let folder = tempfile::tempdir().unwrap();
    write_of(&folder.path().join("checkpoints"), 1, Model::gpt(2, 24, 3, 17, 12).reshaped(|m| m.causal = false));
    for line in ["eval --from .", "train --from . --steps 1"] {
        refused_in(folder.path(), line, &words);
    }
    // Numbers of patches are predicted from all patches, and layouts of any model are planned and proven.
    let patches = "name='v'\nlayers=1\nhidden=12\nheads=3\nseq_len=4\npatch_values=6\n";
    for (model, line) in [
        (patches, "train --model m.toml --steps 1 --global-batch 2 --grid x=1"),
        (one, "verify --model m.toml --grid x=3"),
        (one, "explain --model m.toml --grid x=3"),
    ] {
        let folder = folder_with("m.toml", model);
        assert_eq!(output(folder.path(), line).0, Some(0), "{line}: {:?}", output(folder.path(), line));
    }
}

#[test]
fn info_tells_what_a_checkpoint_holds() {
    let folder = run_of(&[10, 20]);
    // A run, its checkpoints, and one of them.
    for place in [".", "checkpoints", "checkpoints/step-000000000020"] {
        let (code, text, error) = output(folder.path(), &format!("checkpoint info {place}"));
        assert_eq!((code, error.as_str()), (Some(0), ""));
        for words in [
            "step-000000000020\n",
            "gpt: 2 layers, hidden 24",
            "20, after 160 sequences, 1920 tokens",
            "x=3,y=1,z=1,data=2 (6 ranks)",
            "54 parameters in f64: values, first moments, second moments",
            "block.*.up.weight     4        6        2",
            "optimizer   learning_rate 0.003\n",
        ] {
            assert!(text.contains(words), "'{words}' is not in:\n{text}");
        }
    }
    let document = document(&format!("checkpoint info {}/checkpoints/step-000000000010", folder.path().display()));
    assert_eq!((&document["about"]["step"], &document["about"]["seed"]), (&json!(10), &json!(5)));
    assert_eq!(document["quantities"], json!(["value", "first_moment", "second_moment"]));
    assert_eq!(document["about"]["layout"]["grid"], "x=3,y=1,z=1,data=2");
    assert_eq!((&document["files"][1]["rank"], &document["files"][1]["tiles"]), (&json!(4), &json!(6)));
    assert_eq!(document["tensors"][2], json!({"name": "final_norm.gamma", "rows": 1, "cols": 6}));
}

/// What a run notes of itself is text for people, and as it was written for programs.
#[test]
fn info_tells_notes_in_words_and_documents_them_as_they_are() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("my book.txt"), "to be or not to be, that is the question. ".repeat(100)).unwrap();
    let line = "train --model gpt-tiny --set vocab=256 --tokenizer bytes --threads 1 --grid x=2 --steps 2 --data my*book.txt:0.5 \
                --out run";
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_quadrille"));
    command.args(line.split_whitespace().map(|word| word.replace('*', " "))).current_dir(folder.path());
    let done = command.output().unwrap();
    assert!(done.status.success(), "{done:?}");
    let (_, text, _) = output(folder.path(), "checkpoint info run");
    for words in [
        "\ncommand     quadrille train --model gpt-tiny --set vocab=256",
        "--data 'my book.txt:0.5'",
        "\noptimizer   learning_rate 0.003, final_fraction 0.1, warmup_steps 1, steps 2,",
        "\ndata        kind files, vocabulary bytes, documents packed\n",
        "\nsources: path ",
        "\n.quadrille-cache/bytes-",
        "\nrun         version 0.1.0, recent_losses 5.",
    ] {
        assert!(text.contains(words), "'{words}' is not in:\n{text}");
    }
    assert!(!text.contains(['{', '}', '"']), "{text}");
    let told = document(&format!("checkpoint info {}/run", folder.path().display()));
    assert_eq!(told["about"]["data"]["kind"], "files");
    assert_eq!(told["about"]["hyper"]["steps"], 2);
    assert_eq!(told["about"]["run"]["recent_losses"].as_array().unwrap().len(), 2);
}

#[test]
fn verify_reads_everything() {
    let folder = run_of(&[10, 20]);
    let (code, text, _) = output(folder.path(), "checkpoint verify .");
    assert_eq!(code, Some(0));
    assert!(text.contains("all sound: 9 tiles") && text.contains("3 tensors in 2 files"), "{text}");
    assert!(text.contains("not finite: 1 number of final_norm.gamma (first moment)"), "{text}");
    let sound = document(&format!("checkpoint verify {} --all", folder.path().display()));
    assert_eq!((&sound["checkpoints"][1]["sound"], sound["checkpoints"].as_array().unwrap().len()), (&json!(true), 2));
    assert_eq!(sound["checkpoints"][0]["summary"]["not_finite"][0]["tensor"], "final_norm.gamma");
    // Both files of the older one are damaged: the newest is sound, all are not.
    spoil(folder.path(), 10, 0);
    spoil(folder.path(), 10, 4);
    assert_eq!(output(folder.path(), "checkpoint verify .").0, Some(0));
    let (code, text, error) = output(folder.path(), "checkpoint verify checkpoints --all");
    assert_eq!((code, error.as_str()), (Some(1), "error: 1 of 2 checkpoints damaged\n"));
    assert!(text.contains("sound of them: 7 tiles"), "{text}");
    for words in ["rank-00000.safetensors is damaged: the checksum of tile final_norm.gamma@0,0", "#v@0,0 of tensor"] {
        assert!(text.contains(words), "{text}");
    }
    let (code, text, error) = output(folder.path(), "checkpoint verify checkpoints/step-000000000010 --json");
    let found: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((code, found["checkpoints"][0]["faults"].as_array().unwrap().len()), (Some(1), 2), "{error}");
    // One that does not even open; the one before it is named.
    fs::remove_file(folder.path().join("checkpoints/step-000000000020/rank-00004.safetensors")).unwrap();
    let (code, _, error) = output(folder.path(), "checkpoint verify .");
    assert_eq!(code, Some(1));
    assert!(error.contains("step-000000000010, which opens") && error.contains("rank-00004.safetensors"), "{error}");
    let (code, text, _) = output(folder.path(), "checkpoint verify . --all");
    assert!(code == Some(1) && text.contains("it is missing"), "{text}");
}

#[test]
fn merge_writes_whole_tensors_in_one_file() {
    let folder = run_of(&[10, 20]);
    let (code, text, error) = output(folder.path(), "checkpoint merge . --out a/merged");
    assert_eq!(code, Some(0), "{error}");
    assert!(text.contains("3 whole tensors in f64") && text.contains("written to a/merged"), "{text}");
    let merged = Checkpoint::open(&folder.path().join("a/merged")).unwrap();
    assert_eq!((merged.about().step, merged.files().count()), (20, 1));
    let place = folder.path().display();
    let told = document(&format!("checkpoint merge {place} --out {place}/small --dtype f32 --weights-only"));
    assert_eq!(told["dtype"], "f32");
    let small = Checkpoint::open(&folder.path().join("small")).unwrap();
    assert!(!small.has(Quantity::FirstMoment));
    let row = small.whole::<f32>("block.1.up.weight", Quantity::Value).unwrap();
    assert_eq!(row[..3], [1.0, 1.0 / 3.0, 2.0 / 3.0]);
    let (_, text, _) = output(folder.path(), "checkpoint info small");
    assert!(text.contains("f32: values, weights only"), "{text}");
    // A place that is taken, and what an interrupted attempt has left.
    refused_in(folder.path(), "checkpoint merge . --out small", &["small", "exists already", "another place"]);
    fs::create_dir(folder.path().join("b.partial")).unwrap();
    refused_in(folder.path(), "checkpoint merge . --out b", &["b.partial", "remove it"]);
    // Damage ends it, and nothing is left.
    spoil(folder.path(), 20, 4);
    let (code, text, error) = output(folder.path(), "checkpoint merge . --out c");
    assert_eq!((code, text.as_str()), (Some(1), ""));
    assert!(
        error.contains("of tensor final_norm.gamma does not fit") && error.contains("step-000000000010, which opens"),
        "{error}"
    );
    assert!(!folder.path().join("c").exists() && !folder.path().join("c.partial").exists());
}

#[test]
fn prune_keeps_the_newest() {
    let folder = run_of(&[1, 2, 3, 4]);
    Draft::begin(&folder.path().join("checkpoints"), 9).unwrap();
    let (code, text, _) = output(folder.path(), "checkpoint prune . --keep 2");
    assert_eq!((code, text.lines().count()), (Some(0), 5));
    assert!(
        text.contains("removed: ./checkpoints/step-000000000001\nkept: ./checkpoints/step-000000000004\n"),
        "{text}"
    );
    assert!(text.contains("unfinished, kept without --partial: ./checkpoints/step-000000000009.partial"), "{text}");
    // Outside a run nothing says whether someone is writing.
    refused_in(folder.path(), "checkpoint prune . --keep 2 --partial", &["--partial", "run.json"]);
    // What a run may be writing stays.
    fs::write(folder.path().join("run.json"), "{}").unwrap();
    let lock = fs::File::create(folder.path().join("lock")).unwrap();
    lock.lock().unwrap();
    for place in [".", "checkpoints"] {
        refused_in(folder.path(), &format!("checkpoint prune {place} --keep 1 --partial"), &["another run writes"]);
    }
    drop(lock);
    let place = folder.path().join("checkpoints");
    let told = document(&format!("checkpoint prune {} --keep 1 --partial", place.display()));
    assert_eq!(told["removed"], json!([place.join("step-000000000003"), place.join("step-000000000009.partial")]));
    assert_eq!(told["kept"], json!([place.join("step-000000000004")]));
    assert_eq!(fs::read_dir(folder.path().join("checkpoints")).unwrap().count(), 1);
    refused_in(folder.path(), "checkpoint prune . --keep 0", &["--keep", "0"]);
    refused_in(folder.path(), "checkpoint prune checkpoints/step-000000000004 --keep 1", &["no checkpoints step-"]);
}

#[test]
fn folders_that_hold_none() {
    let folder = folder_with("file", "text");
    fs::create_dir(folder.path().join("empty")).unwrap();
    for task in ["info", "verify", "merge --out x"] {
        refused(&format!("checkpoint {task} absent"), &["cannot read absent", "No such file"]);
        refused_in(
            folder.path(),
            &format!("checkpoint {task} empty"),
            &["empty is not a checkpoint", "no manifest.json"],
        );
        refused_in(folder.path(), &format!("checkpoint {task} file"), &["file"]);
    }
    refused_in(folder.path(), "checkpoint verify empty --all", &["--all", "no checkpoints step-"]);
    fs::write(folder.path().join("empty/manifest.json"), "{}").unwrap();
    refused_in(folder.path(), "checkpoint info empty", &["empty/manifest.json", "no manifest of quadrille-checkpoint"]);
}
