//! The version, completions of shells and pages of the manual.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn run(folder: &Path, line: &str) -> Output {
    let quadrille = env!("CARGO_BIN_EXE_quadrille");
    Command::new(quadrille).args(line.split(' ')).current_dir(folder).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn the_version_names_the_commit() {
    let folder = tempfile::tempdir().unwrap();
    let output = run(folder.path(), "--version");
    let version = text(&output.stdout).trim().strip_prefix("quadrille ").unwrap();
    let (number, commit) = version.split_once(' ').unwrap_or((version, ""));
    assert_eq!(number, env!("CARGO_PKG_VERSION"));
    // Built from an archive there is none.
    let commit = commit.trim_matches(['(', ')']);
    assert!(commit.is_empty() || commit.len() >= 10 && commit.chars().all(|c| c.is_ascii_hexdigit()), "{version}");
}

#[test]
fn every_shell_completes_commands_and_flags() {
    let folder = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = run(folder.path(), &format!("completions {shell}"));
        assert!(output.status.success());
        let script = text(&output.stdout);
        for word in ["verify", "overlap-chunks", "all-grids"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
    assert_eq!(run(folder.path(), "completions tcsh").status.code(), Some(2));
}

#[test]
fn the_manual_has_a_page_for_every_command() {
    let folder = tempfile::tempdir().unwrap();
    assert!(run(folder.path(), "man --out pages").status.success());
    let page = |name: &str| fs::read_to_string(folder.path().join("pages").join(name)).unwrap();
    assert!(page("quadrille.1").contains("quadrille\\-train(1)"));
    assert!(page("quadrille-train.1").contains("checkpoint\\-every"));
    assert!(page("quadrille-data-prepare.1").contains("append\\-end"));
    assert!(!folder.path().join("pages/quadrille-help.1").exists());
    let first = run(folder.path(), "man");
    assert_eq!(text(&first.stdout), page("quadrille.1"));
    // A file in the folder's place is named.
    fs::write(folder.path().join("file"), "").unwrap();
    let refused = run(folder.path(), "man --out file");
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("--out file"));
}
