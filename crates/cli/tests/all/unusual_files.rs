//! Every small file that a command reads, with a device, a pipe, a folder or far too much in its place: refused at once and
//! by name, without waiting and in little memory.

#![cfg(unix)]

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rayon::prelude::*;

/// Commands that are given the file `./odd`.
const NAMED: [&str; 34] = [
    "explain --model ./odd",
    "train --model ./odd",
    "verify --model ./odd",
    "plan --model ./odd",
    "paper axonn plan --model ./odd",
    "paper megatron plan --gpus 8 --global-batch 8 --cluster selene --model ./odd",
    "sweep --model ./odd --vary gpus=8,16",
    "export --to megatron --model ./odd",
    "memorize --model ./odd",
    "bench step --model ./odd",
    "explain --from-hf ./odd",
    "train --from-hf ./odd",
    "explain --layout ./odd",
    "train --layout ./odd",
    "export --to megatron --layout ./odd",
    "eval --from run --layout ./odd",
    "generate --from run --prompt a --layout ./odd",
    "explain --cluster ./odd",
    "plan --cluster ./odd",
    "train --cluster ./odd --ranks 2",
    "report run --cluster ./odd",
    "bench collectives --cluster ./odd",
    "calibrate --out o.toml --cluster ./odd --from-osu text.txt",
    "calibrate --out o.toml --cluster selene --from-nccl-tests ./odd",
    "calibrate --out o.toml --cluster selene --from-osu ./odd",
    "calibrate --out o.toml --cluster selene --from-step ./odd layout.toml 1",
    "calibrate --out o.toml --cluster selene --from-step gpt2-124m ./odd 1",
    "paper atp plan --interconnect ./odd",
    "paper lbnl estimate --csv ./odd",
    "validate published --csv ./odd",
    "train --model gpt-tiny --set vocab=256 --tune-matmul ./odd",
    "train --data text.txt --tokenizer ./odd",
    "data prepare --out o.tokens text.txt --tokenizer ./odd",
    "generate --from run --prompt-file ./odd",
];

/// Commands that read a file in a folder.
const INSIDE: [(&str, &str); 19] = [
    ("report run", "run/run.json"),
    ("report run", "run/steps.jsonl"),
    ("report run", "run/events.jsonl"),
    ("report run", "run/summary.json"),
    ("explain --from run", "run/run.json"),
    ("train --resume run --steps 4", "run/run.json"),
    ("train --resume run --steps 4", "run/steps.jsonl"),
    ("train --resume run --steps 4", "run/events.jsonl"),
    ("eval --from run", "run/checkpoints/step-000000000001/manifest.json"),
    ("generate --from run --prompt a", "run/checkpoints/step-000000000001/manifest.json"),
    ("checkpoint info run", "run/checkpoints/step-000000000001/manifest.json"),
    ("checkpoint merge run --out merged", "run/checkpoints/step-000000000001/manifest.json"),
    ("checkpoint info run", "run/checkpoints/step-000000000001/rank-00000.safetensors"),
    ("convert --from-hf hf ours", "hf/config.json"),
    ("convert --from-hf hf ours", "hf/model.safetensors.index.json"),
    ("convert --from-hf hf ours", "hf/model-00001-of-00003.safetensors"),
    ("convert --from-hf hf ours", "hf/tokenizer.json"),
    ("train --data text.txt --tokenizer words", "words/tokenizer.json"),
    ("train --data text.txt --tokenizer words", "words/tokenizer_config.json"),
];

/// What is in a file's place.
const KINDS: [&str; 4] = ["a device", "a pipe", "a directory", "ten gigabytes"];

fn put(kind: &str, path: &Path) {
    match kind {
        "a device" => symlink("/dev/zero", path).unwrap(),
        "a pipe" => assert!(Command::new("mkfifo").arg(path).status().unwrap().success()),
        "a directory" => fs::create_dir(path).unwrap(),
        _ => File::create(path).unwrap().set_len(10 << 30).unwrap(),
    }
}

/// A run, a model of Hugging Face, a tokenizer and files beside them.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let line = "train --model gpt-tiny --set vocab=256 --threads 1 --grid x=1 --steps 1 --out run";
    assert!(limited(folder.path(), line).unwrap().status.success());
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../hugging-face/tests/data/llama-sharded");
    assert!(Command::new("cp").arg("-r").arg(model).arg(at("hf")).status().unwrap().success());
    fs::write(at("hf/tokenizer.json"), "{}").unwrap();
    fs::create_dir(at("words")).unwrap();
    let words = r#"{"version":"1.0","truncation":null,"padding":null,"normalizer":null,"post_processor":null,
        "added_tokens":[],"decoder":null,"pre_tokenizer":{"type":"WhitespaceSplit"},
        "model":{"type":"WordLevel","vocab":{"a":0,"b":1},"unk_token":"a"}}"#;
    fs::write(at("words/tokenizer.json"), words).unwrap();
    fs::write(at("words/tokenizer_config.json"), r#"{"eos_token":"b"}"#).unwrap();
    fs::write(at("text.txt"), "a b ".repeat(100)).unwrap();
    fs::write(at("layout.toml"), "grid = \"x=1\"\nglobal_batch = 2\n").unwrap();
    folder
}

/// The output of a command that has two gigabytes of addresses, and a minute: on a full machine it may wait for its turn.
fn limited(folder: &Path, line: &str) -> Option<Output> {
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -v 2000000; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_quadrille")]);
    command.args(line.split_whitespace()).current_dir(folder);
    // Addresses that threads reserve would count.
    command.env("RAYON_NUM_THREADS", "2").env("MALLOC_ARENA_MAX", "2");
    let mut child: Child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let start = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if start.elapsed() > Duration::from_secs(60) {
            child.kill().unwrap();
            child.wait().unwrap();
            return None;
        }
        sleep(Duration::from_millis(5));
    }
    Some(child.wait_with_output().unwrap())
}

/// What is wrong with the refusal of `line`, for which `file` is of this kind.
fn fault(whole: &Path, line: &str, file: &str, kind: &str) -> Option<String> {
    let folder = tempfile::tempdir().unwrap();
    let copied = Command::new("cp").arg("-r").arg(whole.join(".")).arg(folder.path()).status().unwrap();
    assert!(copied.success());
    // Where nothing was, the command names a file of its own.
    let path = folder.path().join(file);
    assert!(fs::remove_file(&path).is_ok() || file == "odd", "{file} is not there");
    put(kind, &path);
    let fault = |what: &str| Some(format!("{line}, where {file} is {kind}: {what}"));
    let Some(output) = limited(folder.path(), line) else { return fault("no end after a minute") };
    let message = String::from_utf8_lossy(&output.stderr);
    let name = path.file_name().unwrap().to_str().unwrap();
    match output.status.code() {
        Some(2) if message.starts_with("error: ") && message.contains(name) => None,
        code => fault(&format!("{code:?} {message}")),
    }
}

#[test]
fn devices_pipes_folders_and_endless_files_are_refused_by_name() {
    let whole = folder();
    let lines: Vec<(&str, &str)> = NAMED.into_iter().map(|line| (line, "odd")).chain(INSIDE).collect();
    // One is told: all together would take an hour if every command hung.
    let first = KINDS
        .par_iter()
        .find_map_any(|kind| lines.par_iter().find_map_any(|(line, file)| fault(whole.path(), line, file, kind)));
    assert_eq!(first, None);
}

/// A log that is no file has no lines that a run could keep.
#[test]
fn a_run_goes_on_with_a_log_that_is_a_device() {
    let folder = tempfile::tempdir().unwrap();
    let line = "train --model gpt-tiny --set vocab=256 --threads 1 --grid x=1 --steps 1 --out run --log /dev/null";
    for line in [line, "train --resume run --steps 2"] {
        let output = limited(folder.path(), line).unwrap();
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    }
}
