//! Layouts over processes equal the serial model, and their ledgers the prediction.

use serde_json::Value;

use crate::mpirun::Case;
use crate::under_mpirun;

/// 55 layouts: mixed axes, schedules, recomputation, ZeRO, SUMMA, overlap chunks; every algorithm on nodes of 2 or 4 ranks.
pub const CASES: &[Case] = &[
    ("layouts_ring", || {
        verify(4, 10, "--all-grids --collectives ring --per-node 2 --global-batch 4");
    }),
    ("layouts_recursive", || {
        let switches = "--schedule zb-h1 --recompute full --collectives recursive --per-node 2";
        verify(4, 6, &format!("--all-grids --axes x,context,pipe --set layers=4 {switches}"));
    }),
    ("layouts_hierarchical", || {
        let switches = "--zero 1 --overlap-chunks 2 --collectives hierarchical --per-node 4";
        verify(8, 19, &format!("--all-grids --axes y,z,data,pipe {switches}"));
    }),
    ("layouts_native", || {
        let switches = "--recompute selective --cac --zero 2 --collectives native --per-node 4";
        verify(8, 9, &format!("--all-grids --axes x,z,context {switches}"));
    }),
    ("layouts_auto", || {
        verify(4, 6, "--all-grids --axes y,z,data --linear summa --collectives auto --per-node 2");
    }),
    ("layouts_summa", || {
        verify(4, 3, "--all-grids --axes x,y --linear summa --collectives hierarchical --per-node 2");
    }),
    ("layouts_interleaved", || {
        let switches = "--schedule interleaved --chunks 2 --collectives auto --per-node 4 --cluster perlmutter";
        verify(8, 1, &format!("--grid x=2,context=2,pipe=2 --set layers=4 {switches}"));
    }),
    ("layouts_message_driven", || {
        let switches = "--schedule message-driven --keep-weights step --collectives ring --per-node 2";
        verify(4, 1, &format!("--grid z=2,pipe=2 {switches}"));
    }),
];

/// `verify` of so many layouts on so many ranks.
fn verify(ranks: usize, layouts: usize, flags: &str) {
    let folder = tempfile::tempdir().unwrap();
    let which = if flags.contains("--all-grids") { format!("--ranks {ranks}") } else { String::new() };
    let line = format!("verify --model gpt-tiny --steps 1 --threads 1 --json {which} {flags}");
    let outcome = under_mpirun(folder.path(), ranks, &line);
    let document: Value = serde_json::from_str(outcome.succeeded()).expect("one document, by one rank");
    let reports = document["grids"].as_array().unwrap();
    for report in reports {
        assert_eq!((&report["ok"], &report["ledger_equal"]), (&true.into(), &true.into()), "{line}: {report}");
    }
    let skipped = &document["skipped"];
    assert_eq!(reports.len(), layouts, "{line}: of the grids were skipped {skipped}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is written");
}
