//! What cannot be done is told once, and only the first process speaks.

use std::fs;

use crate::mpirun::Case;
use crate::{Outcome, under_mpirun};

pub const CASES: &[Case] = &[
    ("usage_ranks_that_do_not_match", || {
        refused(3, "verify --model gpt-tiny --grid x=2", &["the layout has 2 ranks and 3 processes", "start 2"]);
    }),
    ("usage_an_unknown_flag", || {
        refused(3, "train --nonsense", &["unexpected argument '--nonsense'"]);
    }),
    ("usage_a_command_of_one_process", || {
        let words = ["plan: mpirun has started 2 processes", "runs in one"];
        refused(2, "plan --model gpt-20b --ranks 32 --cluster perlmutter", &words);
    }),
    ("usage_a_grid_that_is_not_legal", || {
        refused(5, "verify --model gpt-tiny --grid x=5", &["x=5", "heads"]);
    }),
    ("usage_a_file_that_is_missing", || {
        refused(2, "train --set vocab=256 --grid data=2 --data missing.txt", &["missing.txt", "No such file"]);
    }),
    ("usage_one_process_speaks", || {
        let folder = tempfile::tempdir().unwrap();
        let line = "train --model gpt-tiny --set vocab=256 --grid data=3 --steps 2 --threads 1 --log log.jsonl";
        let outcome = under_mpirun(folder.path(), 3, line);
        assert_eq!(outcome.succeeded().matches("ledger: ").count(), 1, "{}", outcome.output);
        assert_eq!(outcome.errors.matches("step     1").count(), 1, "{}", outcome.errors);
        assert_eq!(fs::read_to_string(folder.path().join("log.jsonl")).unwrap().lines().count(), 2);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "the log only");
    }),
];

/// All processes end with code 2; one of them, the first, tells what is wrong.
fn refused(ranks: usize, line: &str, words: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let Outcome { code, output, errors, .. } = under_mpirun(folder.path(), ranks, line);
    assert_eq!((code, output.contains("grid")), (Some(2), false), "{line}:\n{output}{errors}");
    assert_eq!(errors.matches("error: ").count(), 1, "{line}:\n{errors}");
    assert!(!errors.contains("panicked"), "{errors}");
    for word in words {
        assert!(errors.contains(word), "'{word}' is not in {errors}");
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is written");
}
