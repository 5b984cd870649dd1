//! Ranks on emulated devices, each process with one of its own, where the build has them.

use serde_json::Value;

use crate::mpirun::Case;
use crate::{Outcome, under_mpirun_with};

/// The variable that says how many devices there are.
const DEVICES: &str = "QUADRILLE_EMULATED_DEVICES";

pub const CASES: &[Case] = &[
    ("devices_native", || verify("x=2,data=2", "--collectives native --zero 2")),
    ("devices_ring", || verify("x=2,z=2", "--collectives ring --overlap-chunks 2")),
    ("devices_hierarchical", || verify("data=2,pipe=2", "--collectives hierarchical --per-node 2")),
    ("devices_message_driven", || verify("z=2,pipe=2", "--schedule message-driven --collectives recursive")),
    ("devices_that_are_shared_are_refused", || {
        let line = "verify --model gpt-tiny --grid x=2 --steps 1 --threads 1 --device emulated";
        let Some(Outcome { code, errors, .. }) = on_devices(2, "1", line) else { return };
        assert_eq!(code, Some(1), "{errors}");
        assert!(errors.contains("ranks 0 and 1 compute on one device"), "{errors}");
    }),
];

/// `verify` of a layout on four processes.
fn verify(grid: &str, flags: &str) {
    let line = format!("verify --model gpt-tiny --steps 1 --threads 1 --json --device emulated --grid {grid} {flags}");
    let Some(outcome) = on_devices(4, "4", &line) else { return };
    let document: Value = serde_json::from_str(outcome.succeeded()).expect("one document, by one rank");
    let reports = document["grids"].as_array().unwrap();
    assert_eq!(reports.len(), 1, "{line}: {document}");
    assert_eq!((&reports[0]["ok"], &reports[0]["ledger_equal"]), (&true.into(), &true.into()), "{line}: {document}");
}

/// Runs so many processes with so many devices; `None` where this build has none.
fn on_devices(ranks: usize, devices: &str, line: &str) -> Option<Outcome> {
    let folder = tempfile::tempdir().unwrap();
    let outcome = under_mpirun_with(folder.path(), ranks, &[(DEVICES, devices)], line);
    if outcome.errors.contains("build it with the feature `emulator`") {
        println!("SKIPPED: this build has no emulated device");
        return None;
    }
    Some(outcome)
}
