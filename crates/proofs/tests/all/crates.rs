//! Which crates use which: arrows between crates of the workspace point downwards in one table.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Every crate of the workspace with the crates that it uses, as the documents order them: from those that nothing uses
/// downwards. What only tests use does not count.
const CRATES: [(&str, &[&str]); 28] = [
    ("python", &["draws", "cuda"]),
    (
        "quadrille",
        &[
            "serve",
            "verify",
            "study",
            "report",
            "run",
            "measure",
            "cuda",
            "engine",
            "hugging-face",
            "papers",
            "evidence",
            "plan",
            "cost",
            "data",
            "checkpoint",
            "comm-mpi",
            "comm",
            "step",
            "files",
            "pages",
            "spec",
        ],
    ),
    ("proofs", &["draws", "verify", "engine", "comm", "step", "spec"]),
    ("draws", &["spec"]),
    ("serve", &["report", "run", "plan", "cost", "pages", "spec"]),
    ("study", &["report", "run", "engine", "data", "checkpoint", "step", "files", "spec"]),
    (
        "report",
        &[
            "verify",
            "measure",
            "run",
            "engine",
            "hugging-face",
            "papers",
            "evidence",
            "plan",
            "cost",
            "data",
            "checkpoint",
            "step",
            "spec",
        ],
    ),
    ("verify", &["engine", "oracle", "comm", "step", "spec"]),
    ("measure", &["run", "engine", "papers", "plan", "cost", "comm", "tensor", "step", "files", "spec"]),
    ("run", &["engine", "hugging-face", "plan", "cost", "data", "checkpoint", "comm", "step", "files", "spec"]),
    ("cuda", &["engine", "comm", "tensor", "step", "files", "spec"]),
    ("engine", &["checkpoint", "comm", "tensor", "step", "files", "spec"]),
    ("hugging-face", &["checkpoint", "files", "spec"]),
    ("papers", &["cost", "step", "spec"]),
    ("evidence", &["plan", "cost", "step", "spec"]),
    ("plan", &["cost", "spec"]),
    ("cost", &["step", "spec"]),
    ("oracle", &["spec"]),
    ("data", &["files", "panics", "spec"]),
    ("checkpoint", &["files", "spec"]),
    ("comm-mpi", &["comm", "panics", "spec"]),
    ("comm", &["panics", "spec"]),
    ("tensor", &[]),
    ("step", &["spec"]),
    ("files", &[]),
    ("panics", &[]),
    ("pages", &[]),
    ("spec", &[]),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The crates of the workspace that a manifest names, but for those of tests.
fn used(manifest: &toml::Table) -> Vec<String> {
    let of = |table: &toml::Table| -> Vec<String> {
        let tables = ["dependencies", "build-dependencies"].into_iter().filter_map(|key| table.get(key)?.as_table());
        tables
            .flat_map(toml::Table::keys)
            .filter_map(|name| Some(name.strip_prefix("quadrille-")?.to_owned()))
            .collect()
    };
    let targets = manifest.get("target").and_then(toml::Value::as_table);
    let of_targets = targets.into_iter().flat_map(toml::Table::values).filter_map(toml::Value::as_table).flat_map(of);
    of(manifest).into_iter().chain(of_targets).collect()
}

/// Every crate's folder with the crates that its manifest names.
fn manifests() -> BTreeMap<String, Vec<String>> {
    let folders = fs::read_dir(root().join("crates")).unwrap().map(|entry| entry.unwrap().path());
    let read = |folder: PathBuf| {
        let text = fs::read_to_string(folder.join("Cargo.toml")).ok()?;
        Some((folder.file_name()?.to_str()?.to_owned(), used(&text.parse().unwrap())))
    };
    folders.filter_map(read).collect()
}

#[test]
fn arrows_between_crates_are_those_of_the_table() {
    let manifests = manifests();
    let named: Vec<&str> = CRATES.iter().map(|(name, _)| *name).collect();
    let unknown: Vec<_> = manifests.keys().filter(|name| !named.contains(&name.as_str())).collect();
    assert!(unknown.is_empty(), "crates that the table does not have: {unknown:?}");
    for (name, allowed) in CRATES {
        let used = manifests.get(name).unwrap_or_else(|| panic!("there is no crate {name}"));
        for other in used {
            assert!(allowed.contains(&other.as_str()), "{name} -> {other} is not among the arrows between crates");
        }
        for other in allowed {
            assert!(used.iter().any(|used| used == other), "{name} -> {other} is not needed: take it from the table");
        }
    }
}

#[test]
fn arrows_point_downwards() {
    let place = |wanted: &str| CRATES.iter().position(|(name, _)| *name == wanted);
    for (at, (name, used)) in CRATES.iter().enumerate() {
        for other in *used {
            assert!(place(other) > Some(at), "{name} -> {other} points upwards");
        }
    }
}

#[test]
fn the_documents_have_the_crates_in_this_order() {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let rows = text.lines().skip_while(|line| *line != "## Crates").skip(1).take_while(|line| !line.starts_with("## "));
    let named: Vec<&str> = rows.filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
    assert_eq!(named, CRATES.map(|(name, _)| name));
}

/// The published models share nothing with the native one.
#[test]
fn of_the_papers_only_figures_of_our_programs_know_step_programs() {
    let mut open = vec![root().join("crates/papers/src")];
    let mut knowing = Vec::new();
    while let Some(path) = open.pop() {
        if path.is_dir() {
            open.extend(fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
        } else if ["quadrille_step", "quadrille_cost"]
            .iter()
            .any(|name| fs::read_to_string(&path).unwrap().contains(name))
        {
            knowing.push(path.file_name().unwrap().to_owned());
        }
    }
    knowing.sort();
    assert_eq!(knowing, ["bubble.rs", "experts.rs", "memory.rs"]);
}

/// Libraries name choices by keys, which the command line spells as its flags (`quadrille/src/flags.rs`).
#[test]
fn no_library_names_a_flag() {
    // Flags of other programs, and the words by which a run was asked for.
    let excepted = [
        "crates/plan/src/export",
        "crates/plan/src/frameworks",
        "crates/report/src/run/document.rs",
        "crates/cuda/src/gpu/compile.rs",
    ];
    let libraries = CRATES.iter().map(|(name, _)| *name).filter(|name| !["quadrille", "proofs"].contains(name));
    let mut open: Vec<PathBuf> = libraries.map(|name| root().join("crates").join(name).join("src")).collect();
    let mut naming = Vec::new();
    while let Some(path) = open.pop() {
        if excepted.iter().any(|excepted| path.ends_with(excepted)) || path.ends_with("tests.rs") {
            continue;
        }
        if path.is_dir() {
            open.extend(fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        let product = text.split("#[cfg(test)]").next().unwrap_or_default();
        let lines = product.lines().filter(|line| !line.trim_start().starts_with("//"));
        naming.extend(lines.filter(|line| names_a_flag(line)).map(|line| format!("{}: {line}", path.display())));
    }
    assert!(naming.is_empty(), "{}", naming.join("\n"));
}

/// Whether a word of a line of source begins with `--` and a letter, or a place for one.
fn names_a_flag(line: &str) -> bool {
    line.match_indices("--").any(|(at, _)| {
        let begins = at == 0 || line[..at].ends_with(['"', ' ']);
        begins && line[at + 2..].starts_with(|next: char| next.is_ascii_lowercase() || next == '{')
    })
}
