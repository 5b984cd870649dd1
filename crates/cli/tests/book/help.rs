//! The page of commands is what `--help` prints. `UPDATE_DOCS=1 cargo test --release -p quadrille-cli --test book` writes it.

use std::process::{Command, Stdio};
use std::{env, fs};

use crate::page::{Page, root};

const PAGE: &str = "docs/src/reference/commands.md";

const BEGINNING: &str = "\
# Commands

<!-- Written by `UPDATE_DOCS=1 cargo test --release -p quadrille-cli --test book` from what `--help` prints. -->

This page is what `--help` of every command prints: a test writes it and holds it against the program. Words in a special
sense are in the [glossary](../glossary.md).

Exit codes: 0 success, 1 a failed run or proof, 2 input that cannot be used; 130 or 143 for a run that an interruption has
ended with a checkpoint.
";

#[test]
fn the_page_of_commands_is_what_help_prints() {
    let page = page();
    if env::var_os("UPDATE_DOCS").is_some() {
        fs::write(root().join(PAGE), &page).unwrap();
    }
    let written = Page::read(PAGE).text;
    let differing = page.lines().zip(written.lines()).position(|(said, written)| said != written);
    let line = differing.unwrap_or(page.lines().count().min(written.lines().count())) + 1;
    assert!(
        page == written,
        "{PAGE}:{line} is not what --help prints; run\n  UPDATE_DOCS=1 cargo test --release -p quadrille-cli --test book"
    );
}

fn page() -> String {
    let mut text = BEGINNING.to_owned();
    describe(&mut Vec::new(), &mut text);
    text
}

/// Adds what `--help` of a command prints, and that of the commands in it.
fn describe(command: &mut Vec<String>, text: &mut String) {
    let help = help(command);
    let title = ["quadrille"].into_iter().chain(command.iter().map(String::as_str)).collect::<Vec<_>>().join(" ");
    let trimmed: Vec<&str> = help.trim_end().lines().map(str::trim_end).collect();
    *text += &format!("\n## {title}\n\n```text\n{}\n```\n", trimmed.join("\n"));
    for inner in commands_in(&help) {
        command.push(inner);
        describe(command, text);
        command.pop();
    }
}

/// With a width of its own, since a terminal would choose another.
fn help(command: &[String]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_quadrille"))
        .args(command)
        .arg("--help")
        .env("COLUMNS", "100")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "{command:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// What stands under `Commands:`, two columns in; further columns go on with a description.
fn commands_in(help: &str) -> Vec<String> {
    let list = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let names = list.filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    names.filter(|name| !name.is_empty() && *name != "help").map(str::to_owned).collect()
}
