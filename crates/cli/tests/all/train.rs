//! `quadrille train`: the log, determinism, equality over layouts, text files, tuned products.

use std::fs;
use std::path::Path;
use std::process::Command;

use quadrille_engine::{OnDivergence, OnSaveFailure};
use quadrille_run::RunSpec;
use quadrille_spec::{Layout, LayoutRequest, Model};
use serde_json::Value;

use crate::common::{json, run};

/// gpt-tiny with a vocabulary for bytes.
const TINY: &str = "train --model gpt-tiny --set vocab=256 --threads 1";

fn losses(document: &Value) -> Vec<f64> {
    document["losses"].as_array().unwrap().iter().map(|loss| loss.as_f64().unwrap()).collect()
}

/// The document of a run in a folder that stays.
fn json_in(folder: &Path, line: &str) -> Value {
    let output = run(folder, &format!("{line} --json"));
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn assert_close(a: &[f64], b: &[f64], tolerance: f64) {
    assert_eq!(a.len(), b.len());
    let largest = a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(largest <= tolerance, "{largest}: {a:?} and {b:?}");
}

#[test]
fn the_log_has_a_line_per_step_in_full_precision() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("log.jsonl"), "left from an earlier run\n").unwrap();
    let document = json_in(folder.path(), &format!("{TINY} --grid x=2 --steps 6 --lr 2e-3 --log log.jsonl"));
    let log = fs::read_to_string(folder.path().join("log.jsonl")).unwrap();
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(Value::from(lines.clone()), document["steps"]);
    let fields = "step loss grad_norm lr tokens seconds tokens_per_second applied repeated spike loss_scale overflow \
                  router";
    for (line, (step, loss)) in lines.iter().zip((1_u64..).zip(losses(&document))) {
        assert_eq!(line.as_object().unwrap().keys().collect::<Vec<_>>(), fields.split(' ').collect::<Vec<_>>());
        assert_eq!((line["step"].as_u64(), line["loss"].as_f64()), (Some(step), Some(loss)));
        assert_eq!(line["tokens"], 4 * 16 * step, "tokens so far");
        let rate = 64.0 / line["seconds"].as_f64().unwrap();
        assert!((line["tokens_per_second"].as_f64().unwrap() / rate - 1.0).abs() < 1e-9);
        assert!(line["grad_norm"].as_f64().unwrap() > 0.0 && line["lr"].as_f64().unwrap() <= 2e-3);
    }
    // Warm-up of half the steps reaches the peak.
    assert_eq!((lines.len(), lines[2]["lr"].as_f64()), (6, Some(2e-3)));
    // The shortest digits that are read back to the same f64, and more than an f32 needs.
    for line in log.lines() {
        let digits = line.split_once("\"loss\":").unwrap().1.split_once(',').unwrap().0;
        assert_eq!(digits.parse::<f64>().unwrap().to_string(), digits);
        assert!(digits.len() > 12, "{digits}");
    }
}

#[test]
fn runs_repeat_to_the_bit_with_any_number_of_threads_and_seeds_differ() {
    let line = "train --model gpt-tiny --set vocab=256 --set dropout=0.1 --grid x=2,z=2 --steps 4";
    let first = losses(&json(&format!("{line} --threads 1")));
    assert_eq!(losses(&json(&format!("{line} --threads 1"))), first);
    assert_eq!(losses(&json(&format!("{line} --threads 3"))), first);
    assert_ne!(losses(&json(&format!("{line} --threads 1 --seed 2"))), first);
}

#[test]
fn every_layout_trains_as_the_serial_model_does() {
    let line = format!("{TINY} --dtype f64 --steps 4 --global-batch 16 --seed 3 --set dropout=0.1");
    let serial = losses(&json(&format!("{line} --grid x=1")));
    assert_eq!(serial.len(), 4);
    for layout in [
        "--grid x=2,y=2,z=2",
        "--grid data=8",
        "--grid x=2,y=2,z=2 --activations replicated --order data,z,y,x --per-node 2",
        "--grid y=2,data=2 --microbatch 2",
        "--grid x=2,context=2,pipe=2 --schedule message-driven",
        "--grid x=2,y=2 --linear summa --overlap-chunks 2 --recompute selective",
    ] {
        let document = json(&format!("{line} {layout}"));
        assert_eq!(document["ledger"]["equal"], true, "{layout}");
        assert_close(&losses(&document), &serial, 1e-11);
    }
    let overlapped = |passes: &str| losses(&json(&format!("{line} --grid x=2,y=2,z=2 --overlap {passes}")));
    assert_eq!(overlapped("none"), overlapped("oar,oag"), "overlap changes no bit");
}

#[test]
fn what_is_counted_is_what_explain_predicts() {
    let layout = "--model gpt-tiny --set vocab=256 --grid x=2,y=2,data=2 --global-batch 8 --microbatch 2";
    let ledger = &json(&format!("train {layout} --threads 1 --steps 2"))["ledger"];
    assert_eq!(ledger["equal"], true);
    assert_eq!(ledger["counted"]["ranks"].as_array().unwrap().len(), 8);
    assert_eq!(ledger["predicted"], ledger["counted"]);
    assert_eq!(json(&format!("explain {layout}"))["ranks"], ledger["counted"]["ranks"]);
}

#[test]
fn the_demo_corpus_is_learned_towards_its_floor() {
    let document = json(&format!("{TINY} --grid data=2 --global-batch 16 --steps 100"));
    let losses = losses(&document);
    let floor = document["floor"].as_f64().unwrap();
    let tail = losses[90..].iter().sum::<f64>() / 10.0;
    // Untrained: the entropy of a uniform choice of 256 bytes.
    assert!((losses[0] - 256_f64.ln()).abs() < 0.3, "{losses:?}");
    assert!(floor < tail && tail < losses[0] - 2.0, "{tail} over {floor}");
}

#[test]
fn folders_and_files_of_text_are_tokenised_once() {
    let folder = tempfile::tempdir().unwrap();
    for (tokenizer, vocabulary) in [("bytes", 256), ("gpt2", 50_257)] {
        fs::create_dir_all(folder.path().join("texts/deep")).unwrap();
        let text = "It was a bright cold day in April, and the clocks were striking thirteen. ".repeat(40);
        for name in ["texts/one.txt", "texts/deep/two.txt", "three.md"] {
            fs::write(folder.path().join(name), format!("{name}: {text}")).unwrap();
        }
        let line = format!(
            "train --model gpt-tiny --set vocab={vocabulary} --set layers=1 --grid x=2 --threads 1 --steps 2 \
             --tokenizer {tokenizer} --cache cache-{tokenizer} --data texts three.md"
        );
        let cached = || {
            let entries = fs::read_dir(folder.path().join(format!("cache-{tokenizer}"))).unwrap();
            let entries =
                entries.map(Result::unwrap).filter(|entry| entry.path().extension() == Some("tokens".as_ref()));
            let file = |entry: fs::DirEntry| (entry.path(), entry.metadata().unwrap().modified().unwrap());
            entries.map(file).collect::<Vec<_>>()
        };
        let first = json_in(folder.path(), &line);
        let files = cached();
        assert_eq!((files.len(), &first["floor"]), (1, &Value::Null));
        assert!((losses(&first)[0] - f64::from(vocabulary).ln()).abs() < 0.5, "{:?}", losses(&first));
        assert_eq!(losses(&json_in(folder.path(), &line)), losses(&first));
        assert_eq!(cached(), files, "the token file was written again");
        fs::write(folder.path().join("three.md"), "Other text.").unwrap();
        assert_ne!(losses(&json_in(folder.path(), &line)), losses(&first), "the old text was used");
    }
}

/// Without learning a step's loss is that of its samples alone.
#[test]
fn every_step_reads_other_samples_of_a_file_and_every_layout_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let text: String = (0..4000).map(|at| format!("{} ", at * at % 7919)).collect();
    fs::write(folder.path().join("numbers.txt"), text).unwrap();
    let line = format!(
        "{TINY} --global-batch 4 --dtype f64 --steps 3 --lr 1e-30 --tokenizer bytes --data numbers.txt --cache cache"
    );
    let serial = losses(&json_in(folder.path(), &format!("{line} --grid x=1")));
    assert!(serial.windows(2).all(|pair| (pair[0] - pair[1]).abs() > 1e-6), "{serial:?}");
    for grid in ["data=2", "z=2"] {
        assert_close(&serial, &losses(&json_in(folder.path(), &format!("{line} --grid {grid}"))), 1e-11);
    }
}

#[test]
fn a_damaged_token_file_is_named_or_made_again() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("text.txt"), "some words, again and again. ".repeat(20)).unwrap();
    let line = format!("{TINY} --grid x=1 --steps 1 --data text.txt");
    let first = losses(&json_in(folder.path(), &line));
    let mut cached = fs::read_dir(folder.path().join(".quadrille-cache")).unwrap().map(|entry| entry.unwrap().path());
    let token_file = cached.find(|path| path.extension() == Some("tokens".as_ref())).unwrap();
    let mut bytes = fs::read(&token_file).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&token_file, &bytes[..bytes.len() - 3]).unwrap();
    let output = run(folder.path(), &format!("{line} --json"));
    if output.status.success() {
        assert_eq!(losses(&serde_json::from_slice(&output.stdout).unwrap()), first);
    } else {
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0));
        assert!(message.contains(".tokens is damaged") && message.contains("delete it"), "{message}");
    }
}

#[test]
fn tuned_products_are_recorded_and_replayed() {
    let folder = tempfile::tempdir().unwrap();
    let line = format!("{TINY} --grid x=2 --steps 2 --tune-matmul tuned.json");
    let recorded = json_in(folder.path(), &line);
    let text = fs::read_to_string(folder.path().join("tuned.json")).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap()["choices"], recorded["matmul"]);
    assert!(recorded["matmul"]["choices"].as_array().unwrap().len() > 10);
    let replayed = json_in(folder.path(), &line);
    assert_eq!((&replayed["matmul"], &replayed["losses"]), (&recorded["matmul"], &recorded["losses"]));
    assert_eq!(fs::read_to_string(folder.path().join("tuned.json")).unwrap(), text);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");
    // Measured anew for one run only: no file.
    assert!(json(&format!("{TINY} --grid x=1 --steps 1 --tune-matmul"))["matmul"]["choices"].is_array());
}

#[test]
fn people_see_progress_on_standard_error_and_the_report_on_standard_output() {
    let folder = tempfile::tempdir().unwrap();
    let output = run(folder.path(), &format!("{TINY} --grid x=2 --steps 3"));
    let report = String::from_utf8(output.stdout).unwrap();
    let progress = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success());
    assert!(progress.contains("grid    x=2 (2 ranks") && progress.contains("nats per token"), "{progress}");
    assert_eq!(progress.lines().filter(|line| line.starts_with("step ")).count(), 3, "{progress}");
    assert!(report.contains("as predicted, in every step") && report.contains("reduce-scatter"), "{report}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is written that was not asked for");
}

/// `/dev/full` takes no byte: output that was asked for is an error, progress that nobody can read is not.
#[test]
#[cfg(target_os = "linux")]
fn full_disks_are_reported_where_output_was_asked_for() {
    let full = || fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let command = |more: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_quadrille"));
        command.args(format!("{TINY} --grid x=2 --steps 2 {more}").split_whitespace()).current_dir(folder.path());
        command
    };
    let outputs = [
        (command("").stdout(full()).output().unwrap(), "standard output"),
        (command("--json").stdout(full()).output().unwrap(), "standard output"),
        (command("--log /dev/full").output().unwrap(), "the log /dev/full"),
    ];
    let help = ["--help", "train --help", "--version"].map(|words| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_quadrille"));
        (command.args(words.split_whitespace()).stdout(full()).output().unwrap(), "standard output")
    });
    for (output, what) in outputs.into_iter().chain(help) {
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "{message}");
        assert!(
            message.contains(&format!("cannot write {what}")) || message.contains(&format!("to {what}")),
            "{message}"
        );
        assert!(message.contains("No space left") && !message.contains("panicked"), "{message}");
    }
    assert!(command("").stderr(full()).output().unwrap().status.success(), "nobody reads the progress");
}

/// A rate that no model survives: the run fails, with the steps so far in the log.
#[test]
fn divergence_exits_with_one_and_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let reckless = "--lr 1e30 --set clip=none --set warmup_steps=0 --steps 9 --log log.jsonl --json";
    let output = run(folder.path(), &format!("{TINY} --grid x=2 {reckless}"));
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "{message}");
    assert!(message.contains("lower the learning rate") && !message.contains("panicked"), "{message}");
    let log = fs::read_to_string(folder.path().join("log.jsonl")).unwrap();
    assert!(log.lines().count() < 9);
    log.lines().for_each(|line| assert!(serde_json::from_str::<Value>(line).is_ok(), "{line}"));
}

#[test]
fn a_pipelined_run_from_a_layout_file_is_that_of_its_flags() {
    let folder = tempfile::tempdir().unwrap();
    let lines =
        "grid = 'x=2,pipe=2'\nschedule = '1f1b'\nrecompute = 'full'\nzero = 1\nglobal_batch = 8\nmicrobatch = 2\n";
    fs::write(folder.path().join("layout.toml"), lines).unwrap();
    let line = format!("{TINY} --set layers=4 --steps 3");
    let flags = "--grid x=2,pipe=2 --schedule 1f1b --recompute full --zero 1 --global-batch 8 --microbatch 2";
    let from_file = json_in(folder.path(), &format!("{line} --layout layout.toml"));
    let from_flags = json_in(folder.path(), &format!("{line} {flags}"));
    assert_eq!(losses(&from_file), losses(&from_flags));
    assert_eq!((&from_file["layout"], &from_file["ledger"]), (&from_flags["layout"], &from_flags["ledger"]));
    assert_eq!((from_file["ledger"]["equal"].as_bool(), losses(&from_file).len()), (Some(true), 3));
    // Schedules and recomputation change the order of the work and not a bit of the result.
    for other in ["--schedule gpipe --recompute none", "--schedule zb-h1 --recompute none", "--recompute full:2 --cac"]
    {
        let changed = json_in(folder.path(), &format!("{line} --layout layout.toml {other}"));
        assert_eq!(losses(&changed), losses(&from_file), "{other}");
    }
}

/// Options that nobody has typed are told apart from those that were, so help has the defaults in its words.
#[test]
fn help_tells_what_a_run_has_where_nothing_is_said() {
    let model = Model::gpt(1, 8, 2, 256, 8);
    let layout = Layout::new(&model, &LayoutRequest::new("x=1".parse().unwrap(), 1)).unwrap();
    let usual = RunSpec::new(model, layout);
    let folder = tempfile::tempdir().unwrap();
    let help = String::from_utf8(run(folder.path(), "train --help").stdout).unwrap();
    let action = |stops: bool| if stops { "stop" } else { "another" }.to_owned();
    for (flag, usual) in [
        ("steps", usual.steps.to_string()),
        ("seed", usual.seed.to_string()),
        ("timeout", usual.timeout.to_string()),
        ("keep", usual.checkpoints.keep.to_string()),
        ("on-checkpoint-failure", action(usual.checkpoints.on_failure == OnSaveFailure::Stop)),
        ("on-divergence", action(usual.divergence.action == OnDivergence::Stop)),
        ("validate-every", usual.validation.every.to_string()),
        ("validation-batches", usual.validation.batches.to_string()),
        ("collectives", usual.collectives.algorithm.to_string()),
        ("text-field", usual.data.text_field),
        ("format", usual.data.format.to_string()),
        ("documents", usual.data.documents.to_string()),
        ("cache", usual.data.cache.display().to_string()),
        ("cluster", usual.layout.cluster),
        ("model", "gpt-demo".to_owned()),
    ] {
        let flag = format!("      --{flag} ");
        let mut lines = help.lines().skip_while(|line| !line.starts_with(&flag));
        let first = lines.next().unwrap_or_else(|| panic!("{flag}"));
        let rest = lines.take_while(|line| !line.starts_with("      --") && !line.is_empty());
        let words: Vec<&str> = [first].into_iter().chain(rest).flat_map(str::split_whitespace).collect();
        let told = words.join(" ");
        assert!(told.contains(&format!("[default: {usual}]")), "{told}");
    }
}
