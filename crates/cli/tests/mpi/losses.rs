//! Threads and processes compute the same bits, and count the same.

use std::process::Command;

use serde_json::Value;

use crate::mpirun::Case;
use crate::under_mpirun;

pub const CASES: &[Case] = &[
    ("losses_of_tensor_and_data_ranks", || {
        let [ring, recursive, _] = same_bits(4, "--grid x=2,data=2 --zero 1");
        assert_eq!(ring, recursive, "two numbers have one sum, whoever adds them");
    }),
    ("losses_of_one_group", || {
        let [ring, recursive, _] = same_bits(4, "--grid data=4");
        assert_ne!(ring, recursive, "other orders of four numbers round otherwise: equal bits mean something");
    }),
    ("losses_of_a_pipeline", || {
        same_bits(8, "--grid z=2,context=2,pipe=2 --schedule zb-h1 --recompute full");
    }),
];

/// Trains with each algorithm on threads and on processes. Returns the losses of each, as printed: the shortest decimals that
/// give the same number, so that equal text means equal bits.
fn same_bits(ranks: usize, flags: &str) -> [String; 3] {
    ["ring", "recursive", "hierarchical"].map(|algorithm| {
        let line = format!(
            "train --model gpt-tiny --set vocab=256 --steps 4 --threads 1 --json --per-node 2 --collectives {algorithm} {flags}"
        );
        let folder = tempfile::tempdir().unwrap();
        let mut alone = Command::new(env!("CARGO_BIN_EXE_quadrille"));
        let threads = alone.args(line.split_whitespace()).current_dir(folder.path()).output().unwrap();
        assert!(threads.status.success(), "{line}: {}", String::from_utf8_lossy(&threads.stderr));
        let threads = String::from_utf8(threads.stdout).unwrap();
        let processes = under_mpirun(folder.path(), ranks, &line);
        let expected = losses(&threads);
        let got = losses(processes.succeeded());
        assert_eq!(got, expected, "{line}");
        assert_eq!(got.split(',').count(), 4, "a loss for every step: {got}");
        let [threads, processes] =
            [&threads, &processes.output].map(|text| serde_json::from_str::<Value>(text).expect("one document"));
        assert_eq!(processes["ledger"]["equal"], true, "{line}");
        for part in ["counted", "total"] {
            assert!(!processes["ledger"][part].is_null());
            assert_eq!(processes["ledger"][part], threads["ledger"][part], "{part} of {line}");
        }
        got.to_owned()
    })
}

/// The text of the losses.
fn losses(document: &str) -> &str {
    let (_, rest) = document.split_once("\"losses\": [").unwrap_or_else(|| panic!("losses in {document}"));
    rest.split(']').next().unwrap().trim()
}
