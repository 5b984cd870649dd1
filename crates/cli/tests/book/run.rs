//! Commands of the pages, run by a shell in a folder of each page's own.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;
use std::{env, fs};

use rayon::prelude::*;

use crate::page::{Block, Page};

/// Blocks that a page marks `not-tested`: they need an MPI library, the network, a model or data that is not here, or more
/// than a few seconds.
pub const NOT_TESTED: &[(&str, usize)] = &[
    ("CONTRIBUTING.md", 3),
    ("README.md", 3),
    ("docs/src/reference/gpu.md", 3),
    ("docs/src/extending/choice.md", 1),
    ("docs/src/extending/model.md", 1),
    ("docs/src/extending/operation.md", 1),
    ("docs/src/extending/schedule.md", 1),
    ("docs/src/extending/transport.md", 1),
    ("docs/src/introduction.md", 1),
    ("docs/src/python.md", 1),
    ("docs/src/reference/clusters.md", 1),
    ("docs/src/reference/library.md", 1),
    ("docs/src/reference/mpi.md", 1),
    ("docs/src/reference/overview.md", 1),
    ("docs/src/reference/planning.md", 2),
    ("docs/src/reference/runs.md", 1),
    ("docs/src/tests.md", 2),
    ("docs/src/tutorials/train.md", 1),
];

/// What a command is to do.
struct Task {
    line: usize,
    command: String,
    code: i32,
    /// What it is to print, if the page says it.
    output: Option<String>,
}

#[test]
fn commands_run_and_print_what_the_pages_say() {
    let mut pages = Page::book();
    pages.push(Page::read("README.md"));
    let failures: Vec<String> = pages.par_iter().flat_map(|page| run_page(page).err()).collect();
    assert!(failures.is_empty(), "{} page(s)\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn blocks_that_are_not_run_are_counted() {
    let mut found = BTreeMap::new();
    for page in Page::all() {
        let skipped = page.blocks().iter().filter(|block| block.language == "sh" && is_skipped(block)).count();
        if skipped > 0 {
            found.insert(page.name, skipped);
        }
    }
    let counted = NOT_TESTED.iter().map(|(page, blocks)| ((*page).to_owned(), *blocks)).collect();
    assert_eq!(found, counted, "`sh,not-tested` is for what cannot run here; count it in NOT_TESTED");
}

/// A block that is called otherwise would not be run, and nobody would see it.
#[test]
fn blocks_are_of_known_kinds() {
    for page in Page::book().iter().chain([&Page::read("README.md")]) {
        for block in page.blocks() {
            let marks: Vec<&str> = block.marks.iter().map(|mark| mark.split('=').next().unwrap()).collect();
            let known = matches!(
                (block.language.as_str(), marks.as_slice()),
                ("sh", [] | ["not-tested"])
                    | ("console", [])
                    | ("text", [] | ["file"])
                    | ("toml", ["file"])
                    | ("rust", [] | ["ignore"])
                    // The tests of the Python package run them.
                    | ("python", [])
            );
            assert!(known, "{}:{}: {} {:?}", page.name, block.line, block.language, block.marks);
        }
    }
}

#[test]
fn dots_stand_for_any_text_and_any_lines() {
    let printed = "a 1 b\nc\nd\n\ne";
    for page in ["a 1 b\nc\nd\n\ne\n", "a ... b\n...\ne", "...", "a 1 b\n...\nd\n\ne"] {
        assert_eq!(missing(page, printed), None, "{page}");
    }
    for page in
        ["a 1 b", "a 2 b\n...", "...\nd", "a 1 b\n...\nc\n...\nc\n...", "a 1 ...c\n...", "a 1 b\nc\nd\n\ne\n...\ne"]
    {
        assert!(missing(page, printed).is_some(), "{page}");
    }
}

fn is_skipped(block: &Block) -> bool {
    block.marks.iter().any(|mark| mark == "not-tested")
}

/// Runs a page's commands in their order, until one does something else than the page says.
fn run_page(page: &Page) -> Result<(), String> {
    let folder = tempfile::tempdir().unwrap();
    let start = Instant::now();
    for block in page.blocks() {
        if let Some(name) = block.marks.iter().find_map(|mark| mark.strip_prefix("file=")) {
            fs::write(folder.path().join(name), &block.text).unwrap();
        }
        let tasks = match block.language.as_str() {
            "sh" if !is_skipped(&block) => commands(&block),
            "console" => sessions(&block),
            _ => Vec::new(),
        };
        for task in tasks {
            run(folder.path(), &task)
                .map_err(|what| format!("{}:{}: {}\n{what}", page.name, task.line, task.command))?;
        }
    }
    eprintln!("{}: {:.1} s", page.name, start.elapsed().as_secs_f64());
    Ok(())
}

/// The lines of a block, those that end in a backslash joined with the next.
fn commands(block: &Block) -> Vec<Task> {
    let mut tasks: Vec<Task> = Vec::new();
    let mut open = false;
    for (index, line) in block.text.lines().enumerate().filter(|(_, line)| !is_comment(line)) {
        let part = line.strip_suffix('\\');
        match tasks.last_mut().filter(|_| open) {
            Some(task) => task.command += part.unwrap_or(line).trim(),
            None => tasks.push(Task::new(block.line + index, part.unwrap_or(line))),
        }
        open = part.is_some();
    }
    tasks
}

fn is_comment(line: &str) -> bool {
    line.trim().is_empty() || line.starts_with('#')
}

/// The commands after `$ ` with the lines that follow each.
fn sessions(block: &Block) -> Vec<Task> {
    let mut tasks: Vec<Task> = Vec::new();
    for (index, line) in block.text.lines().enumerate() {
        if let Some(command) = line.strip_prefix("$ ") {
            tasks.push(Task { output: Some(String::new()), ..Task::new(block.line + index, command) });
        } else {
            let task = tasks.last_mut().expect("a block `console` begins with `$ `");
            task.output.as_mut().unwrap().extend([line, "\n"]);
        }
    }
    tasks
}

impl Task {
    fn new(line: usize, command: &str) -> Self {
        let code = command.split_once("# exit code ").map_or(0, |(_, code)| code.trim().parse().unwrap());
        Self { line, command: command.to_owned(), code, output: None }
    }
}

fn run(folder: &Path, task: &Task) -> Result<(), String> {
    if !task.command.starts_with("quadrille ") {
        return Err("only commands of quadrille are run; others belong into a block `sh,not-tested`".to_owned());
    }
    let binaries = Path::new(env!("CARGO_BIN_EXE_quadrille")).parent().unwrap().to_owned();
    let path = env::join_paths([binaries].into_iter().chain(env::split_paths(&env::var_os("PATH").unwrap()))).unwrap();
    let output = Command::new("sh")
        .args(["-c", &format!("exec 2>&1\n{}", task.command)])
        .current_dir(folder)
        .stdin(Stdio::null())
        .env("PATH", path)
        .env("HOME", folder)
        .env("COLUMNS", "100")
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    if output.status.code() != Some(task.code) {
        return Err(format!("ended with {}, not {}:\n{printed}", output.status, task.code));
    }
    match task.output.as_ref().and_then(|shown| missing(shown, &printed)) {
        Some(part) => {
            Err(format!("the page shows\n{part}\nwhich is not, or not there, in what it printed:\n{printed}"))
        }
        None => Ok(()),
    }
}

/// The first part between lines of dots that was not printed in its place. Space at the ends of lines and empty lines at both
/// ends do not count.
fn missing(shown: &str, printed: &str) -> Option<String> {
    let shown = lines(shown);
    let printed = lines(printed);
    let parts: Vec<&[&str]> = shown.split(|line| *line == "...").collect();
    let mut from = 0;
    for (index, part) in parts.iter().enumerate() {
        let at = |start: usize| {
            let found = printed.get(start..start + part.len());
            found.is_some_and(|found| part.iter().zip(found).all(|(shown, printed)| line_matches(shown, printed)))
        };
        let last = printed.len().saturating_sub(part.len());
        let mut places = match (index == 0, index + 1 == parts.len()) {
            (true, true) if printed.len() != part.len() => 0..0,
            (true, _) => 0..1,
            (false, true) => last.max(from)..last + 1,
            (false, false) => from..last + 1,
        };
        match places.find(|start| at(*start)) {
            Some(start) => from = start + part.len(),
            None => return Some(part.join("\n")),
        }
    }
    None
}

fn lines(text: &str) -> Vec<&str> {
    text.trim_matches('\n').lines().map(str::trim_end).collect()
}

/// Whether the parts between dots stand in the line in their order, the first at its beginning and the last at its end.
fn line_matches(shown: &str, printed: &str) -> bool {
    let Some((first, rest)) = shown.split_once("...") else { return shown == printed };
    let Some(mut printed) = printed.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = rest.split("...").collect();
    let last = parts.pop().unwrap_or_default();
    for part in parts {
        let Some((_, after)) = printed.split_once(part) else { return false };
        printed = after;
    }
    printed.ends_with(last)
}
