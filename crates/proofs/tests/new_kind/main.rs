//! A kind of operations that is added to the table in one file is printed, counted, priced and simulated; and whoever executes
//! programs has to execute it too: the engine does not compile without.
//!
//! Builds a copy of the workspace in the target folder, with a row more in the table:
//! `cargo test --release -p quadrille-proofs --features long --test new_kind`, some minutes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use quadrille_proofs::{copied_workspace, workspace};

/// The table of operations.
const TABLE: &str = "crates/step/src/operation/kind.rs";

/// What its rows begin behind.
const BEGIN: &str = "\nkinds! {\n";

/// A row more.
const ROW: &str = r#"    /// Looks at a value.
    Probe ["probe"] ElementWise {} reads { input: ValueId } writes { output: ValueId },
        work |op, at| at.sweeps(op, op.output, 7.0);

"#;

/// What is held of it, in the copy.
const TEST: &str = include_str!("probe.rs");

fn copy() -> (PathBuf, PathBuf) {
    let table = std::fs::read_to_string(workspace().join(TABLE)).unwrap();
    assert_eq!(table.matches(BEGIN).count(), 1, "{TABLE} has one table");
    let changed = BTreeMap::from([
        (PathBuf::from(TABLE), table.replace(BEGIN, &format!("{BEGIN}{ROW}"))),
        (PathBuf::from("crates/cost/tests/probe.rs"), TEST.to_owned()),
    ]);
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("new_kind");
    (copied_workspace(&changed, &target).unwrap(), target)
}

fn cargo(arguments: &[&str], copy: &Path, target: &Path) -> Output {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    Command::new(cargo).args(arguments).current_dir(copy).env("CARGO_TARGET_DIR", target).output().unwrap()
}

#[test]
fn a_kind_in_the_table_is_printed_counted_priced_and_simulated_and_must_be_executed() {
    let (copy, target) = copy();
    let held = cargo(&["test", "--release", "-p", "quadrille-cost", "--test", "probe"], &copy, &target);
    let text = String::from_utf8_lossy(&held.stdout).into_owned() + &String::from_utf8_lossy(&held.stderr);
    assert!(held.status.success() && text.contains("1 passed"), "{text}");

    let engine = cargo(&["check", "--release", "-p", "quadrille-engine"], &copy, &target);
    let errors = String::from_utf8_lossy(&engine.stderr);
    assert!(!engine.status.success(), "the engine compiles, although it does not execute the new kind");
    assert!(errors.contains("non-exhaustive patterns") && errors.contains("Probe"), "{errors}");
}
