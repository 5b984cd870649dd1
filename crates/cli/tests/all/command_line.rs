//! The words of the command line, asked from within a process.

use std::process::{Command, Stdio};

use quadrille_cli::command_line::{Failure, Flag, document, flags, train};
use std::ops::ControlFlow;

use quadrille_engine::RunEvent;
use serde_json::Value;

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

fn program(line: &str) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_quadrille"));
    let output = command.args(line.split_whitespace()).stdin(Stdio::null()).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn documents_are_those_that_are_printed() {
    for line in [
        "explain --model gpt-tiny --grid x=2,data=2",
        "explain --model gpt-tiny --grid x=2 --price --cluster selene",
        "verify --model gpt-tiny --grid x=2 --steps 1",
        "plan --model gpt2-124m --gpus 4 --cluster dgx-a100 --global-batch 16 --fix x=2 --explain",
    ] {
        let printed = program(&format!("{line} --json")).1;
        let [mut told, mut printed] =
            [document(&words(line)).unwrap(), serde_json::from_str::<Value>(&printed).unwrap()];
        // Of the search itself, which nobody's clock knows.
        for found in [&mut told, &mut printed] {
            found.as_object_mut().unwrap().remove("seconds");
        }
        assert_eq!(told, printed, "{line}");
    }
}

#[test]
fn failures_are_those_that_are_printed() {
    for line in [
        "plan --model lama3-8b",
        "plan --gpu 8",
        "plan --top 0",
        "sweep --model gpt-tiny",
        "plan --model gpt3-175b --gpus 8 --global-batch 8",
        "explain --price --grid x=2",
        "report nowhere",
    ] {
        let failure = document(&words(line)).unwrap_err();
        let (code, _, told) = program(line);
        assert!(told.starts_with(&format!("error: {}", failure.message())), "{line}: {} {told}", failure.message());
        assert_eq!(Some(i32::from(failure.exit_code())), code, "{line}");
    }
    for line in ["train --steps 1", "validate local", "paper axonn plan", "paper all reproduce"] {
        assert!(matches!(document(&words(line)), Err(Failure::Usage(_))), "{line}");
    }
}

#[test]
fn a_run_is_told_and_stopped() {
    let line = words("--model gpt-tiny --set vocab=256 --grid x=2 --global-batch 4 --threads 1 --steps 5");
    let mut seen = Vec::new();
    let whole = train(&line, &mut |event| {
        if let RunEvent::Step(record) = event {
            seen.push(record.loss);
        }
        ControlFlow::Continue(())
    });
    let whole = whole.unwrap();
    assert_eq!((seen.len(), whole.stopped), (5, None));
    assert_eq!(whole.summary["losses"], serde_json::json!(seen));
    let stopped = train(&line, &mut |_| ControlFlow::Break(())).unwrap();
    assert!(stopped.stopped.is_some_and(|step| step < 5), "{:?}", stopped.stopped);
}

#[test]
fn flags_say_how_they_are_said() {
    let of = |command: &str, name: &str| {
        let found = flags(&words(command)).into_iter().find(|flag| flag.name == name);
        found.map(|Flag { takes_value, repeats, .. }| (takes_value, repeats))
    };
    assert_eq!(of("plan", "gpus"), Some((true, false)));
    assert_eq!(of("plan", "fix"), Some((true, true)));
    assert_eq!(of("plan", "explain"), Some((false, false)));
    assert_eq!(of("validate published", "csv"), Some((true, false)));
    assert_eq!((of("plan", "vary"), of("planned", "gpus")), (None, None));
}
