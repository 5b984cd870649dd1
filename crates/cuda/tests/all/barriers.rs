//! Every barrier of every kernel, and all that orders copies and products, is left out in turn: a test of the kernel must fail then.

use std::process::Command;

use quadrille_cuda::{HEADERS, SOURCES};

use crate::support::{WITHOUT, is_real};

/// A test of the kernels of a file.
const TESTS: [(&str, &str); 11] = [
    ("attention_forward.cu", "attention::in_f32::wide_heads"),
    ("attention_backward.cu", "attention::in_f32::wide_heads"),
    ("cached.cu", "attention::in_f32::generation"),
    ("route.cu", "experts::in_f32::groups_of_experts"),
    ("mixed_attention_forward.cu", "attention_tiles::by_warps::parts_of_sequences"),
    ("mixed_attention_queries.cu", "attention_tiles::by_warps::parts_of_sequences"),
    ("mixed_attention_keys.cu", "attention_tiles::by_warps::parts_of_sequences"),
    ("mixed_attention_forward_wgmma.cu", "attention_tiles::by_groups::parts_of_sequences"),
    ("mixed_attention_queries_wgmma.cu", "attention_tiles::by_groups::parts_of_sequences"),
    ("mixed_attention_keys_wgmma.cu", "attention_tiles::by_groups::windows_and_caps"),
    ("mixed_product_wgmma.cu", "warpgroups::by_rows"),
];

/// Barriers of a warp, by their number in the file, that lanes which run one after another do not miss: they exchange numbers
/// between the same reads and writes, which on a GPU orders no memory, or each lane reads what it wrote itself.
const NOT_MISSED: [(&str, &[usize]); 3] =
    [("attention_forward.cu", &[0, 1]), ("cached.cu", &[0, 1]), ("route.cu", &[0, 1, 5])];

/// Whether the test of a file's kernels passes where a line of it does not wait.
fn passes_without(file: &str, line: usize) -> bool {
    let Some((_, test)) = TESTS.iter().find(|(of, _)| *of == file) else { panic!("no test is named for {file}") };
    let mut child = Command::new(std::env::current_exe().unwrap());
    let output = child.args(["--exact", test]).env(WITHOUT, format!("{file}:{line}")).output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(told.contains("running 1 test"), "{test}: {told}");
    output.status.success()
}

#[test]
fn no_barrier_can_be_left_out() {
    if is_real() {
        return;
    }
    let waits = [
        "__syncthreads()",
        "__syncwarp()",
        "wait_for_copies<",
        "show_copies();",
        "begin_products();",
        "commit_products();",
        "wait_for_products<",
    ];
    let mut left_out = 0;
    for source in SOURCES {
        let exempt = NOT_MISSED.iter().find(|(file, _)| *file == source.name).map_or(&[][..], |(_, numbers)| numbers);
        let lines = source.text.lines().zip(1..).filter(|(line, _)| waits.iter().any(|wait| line.contains(wait)));
        for (number, (_, line)) in lines.enumerate() {
            if !exempt.contains(&number) {
                assert!(!passes_without(source.name, line), "{}:{line} is not missed", source.name);
                left_out += 1;
            }
        }
    }
    assert!(left_out >= 63, "{left_out}");
    let in_headers = HEADERS
        .iter()
        .flat_map(|header| header.text.lines())
        .filter(|line| waits.iter().any(|wait| line.contains(wait)));
    assert_eq!(in_headers.count(), 0, "barriers of headers are never left out");
    TESTS.iter().for_each(|(file, _)| assert!(passes_without(file, 1), "{file}: its test fails whatever is left out"));
}
