//! Every barrier of every kernel, and every wait for copies, is left out in turn: the kernel's own tests must fail then.

use std::process::Command;

use quadrille_cuda::SOURCES;

use crate::support::{WITHOUT, is_real};

/// Which tests run the kernels of a file.
const TESTS: [(&str, &str); 7] = [
    ("attention_forward.cu", "attention::in_f32::"),
    ("attention_backward.cu", "attention::in_f32::"),
    ("cached.cu", "attention::in_f32::"),
    ("route.cu", "experts::in_f32::"),
    ("mixed_attention_forward.cu", "attention_tiles::"),
    ("mixed_attention_queries.cu", "attention_tiles::"),
    ("mixed_attention_keys.cu", "attention_tiles::"),
];

/// Whether the tests of a file's kernels pass where a line of it does not wait.
fn pass_without(file: &str, line: usize) -> bool {
    let Some((_, tests)) = TESTS.iter().find(|(of, _)| *of == file) else { panic!("no test is named for {file}") };
    let mut child = Command::new(std::env::current_exe().unwrap());
    let output = child.arg(tests).env(WITHOUT, format!("{file}:{line}")).output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(told.contains("test result") && !told.contains("running 0 tests"), "{tests}: {told}");
    output.status.success()
}

#[test]
fn no_barrier_can_be_left_out() {
    if is_real() {
        return;
    }
    let waits =
        |line: &&str| ["__syncthreads()", "__syncwarp()", "wait_for_copies<"].iter().any(|wait| line.contains(wait));
    let mut left_out = 0;
    for source in SOURCES {
        let lines = source.text.lines().zip(1..).filter(|(line, _)| waits(line)).map(|(_, number)| number);
        for line in lines {
            assert!(!pass_without(source.name, line), "{}:{line} is not missed", source.name);
            left_out += 1;
        }
    }
    assert!(left_out >= 28, "{left_out}");
    assert!(pass_without("route.cu", 1), "tests fail whatever is left out");
}
