//! Rules of the workspace: dependencies between crates, `unsafe`, names of flags, bindings.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Crates that only tests use.
const TEST_CRATES: [&str; 2] = ["draws", "proofs"];

/// Crates with `unsafe` code: transports, kernels, devices, and the macros of pyo3.
const UNSAFE_CRATES: [&str; 5] = ["comm", "comm-mpi", "cuda", "python", "tensor"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Crates of the workspace that a manifest names, without those of its tests and its features.
fn dependencies(manifest: &toml::Table) -> Vec<String> {
    let of = |table: &toml::Table| -> Vec<String> {
        let tables = ["dependencies", "build-dependencies"].into_iter().filter_map(|key| table.get(key)?.as_table());
        let required =
            tables.flatten().filter(|(_, of)| of.get("optional").and_then(toml::Value::as_bool) != Some(true));
        required.filter_map(|(name, _)| Some(name.strip_prefix("quadrille-")?.to_owned())).collect()
    };
    let targets = manifest.get("target").and_then(toml::Value::as_table);
    let of_targets = targets.into_iter().flat_map(toml::Table::values).filter_map(toml::Value::as_table).flat_map(of);
    of(manifest).into_iter().chain(of_targets).collect()
}

/// Folder of every crate with the crates that it depends on.
fn manifests() -> BTreeMap<String, Vec<String>> {
    let folders = fs::read_dir(root().join("crates")).unwrap().map(|entry| entry.unwrap().path());
    let read = |folder: PathBuf| {
        let text = fs::read_to_string(folder.join("Cargo.toml")).ok()?;
        Some((folder.file_name()?.to_str()?.to_owned(), dependencies(&text.parse().unwrap())))
    };
    folders.filter_map(read).collect()
}

/// Crates in the order of the table of ARCHITECTURE.md, which begins with those that no other crate uses.
fn layers() -> Vec<String> {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let rows = text.lines().skip_while(|line| *line != "## Crates").skip(1).take_while(|line| !line.starts_with("## "));
    let first_cells = rows.filter_map(|line| line.strip_prefix("| `")?.split('|').next());
    first_cells.flat_map(|cell| cell.split('`').step_by(2)).map(ToOwned::to_owned).collect()
}

#[test]
fn dependencies_point_downwards_in_the_table_of_the_architecture() {
    let layers = layers();
    let manifests = manifests();
    let mut listed = layers.clone();
    listed.sort();
    assert_eq!(listed, manifests.keys().cloned().collect::<Vec<_>>(), "one row for each crate");
    let layer = |wanted: &str| layers.iter().position(|name| name == wanted);
    for (name, dependencies) in &manifests {
        for other in dependencies {
            assert!(layer(other) > layer(name), "{name} -> {other} points upwards");
        }
    }
}

#[test]
fn product_crates_depend_on_no_test_crate() {
    for (name, dependencies) in manifests().into_iter().filter(|(name, _)| !TEST_CRATES.contains(&name.as_str())) {
        let of_tests = dependencies.iter().find(|other| TEST_CRATES.contains(&other.as_str()));
        assert_eq!(of_tests, None, "{name}");
    }
}

/// Users of the library compile neither a command line nor a server.
#[test]
fn the_library_has_no_command_line_and_no_server() {
    let manifests = manifests();
    let mut open = vec!["quadrille".to_owned()];
    let mut seen = Vec::new();
    while let Some(name) = open.pop() {
        let manifest = fs::read_to_string(root().join("crates").join(&name).join("Cargo.toml")).unwrap();
        let manifest: toml::Table = manifest.parse().unwrap();
        let Some(others) = manifest.get("dependencies").and_then(toml::Value::as_table) else { continue };
        let unwanted = ["clap", "clap_complete", "clap_mangen", "indicatif", "axum", "tokio", "anstream"];
        let found = unwanted.iter().find(|crate_name| others.contains_key(**crate_name));
        assert_eq!(found, None, "{name}");
        let below: Vec<String> = manifests[&name].iter().filter(|other| !seen.contains(*other)).cloned().collect();
        seen.extend(below.iter().cloned());
        open.extend(below);
    }
    assert!(seen.len() > 15 && !seen.contains(&"cli".to_owned()), "{seen:?}");
}

/// The oracle shares nothing with the code that it judges.
#[test]
fn the_oracle_depends_on_descriptions_alone() {
    assert_eq!(manifests()["oracle"], ["spec"]);
}

#[test]
fn all_other_crates_forbid_unsafe_code() {
    for name in manifests().into_keys() {
        for root in ["src/lib.rs", "src/main.rs"].map(|file| root().join("crates").join(&name).join(file)) {
            let Ok(text) = fs::read_to_string(&root) else { continue };
            let forbids = text.lines().any(|line| line == "#![forbid(unsafe_code)]");
            assert_eq!(forbids, !UNSAFE_CRATES.contains(&name.as_str()), "{}", root.display());
        }
    }
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

/// Libraries name choices by keys, which the command line spells as its flags (`cli/src/flags.rs`).
#[test]
fn no_library_names_a_flag() {
    // Flags of other programs, and the words by which a run was asked for.
    let excepted = [
        "crates/plan/src/export",
        "crates/plan/src/frameworks",
        "crates/report/src/run/document.rs",
        // Names of commands.
        "crates/report/src/schemas.rs",
        "crates/cuda/src/gpu/compile.rs",
    ];
    let libraries = manifests().into_keys().filter(|name| !["cli", "proofs"].contains(&name.as_str()));
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

/// One binding a line: a name for each part of a tuple is for values that come as tuples.
#[test]
fn no_statement_binds_the_parts_of_a_tuple_expression() {
    let mut open = vec![root().join("crates")];
    let mut found = Vec::new();
    while let Some(path) = open.pop() {
        if path.is_dir() {
            open.extend(fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            found.extend(tuple_bindings(&text).map(|line| format!("{}:{line}", path.display())));
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// Lines of `let` statements with a tuple on both sides of the equals sign; those with `else` may not match.
fn tuple_bindings(text: &str) -> impl Iterator<Item = usize> {
    let is_binding = |at: usize| {
        let (_, value) = behind_parentheses(&text[at..])?.split_once('=')?;
        behind_parentheses(value.trim_start())?.trim_start().starts_with(';').then_some(at)
    };
    let places = text.match_indices("let (").filter_map(move |(at, found)| is_binding(at + found.len() - 1));
    places.map(|at| text[..at].lines().count())
}

/// Text after the parentheses with which it begins; `None` without them.
fn behind_parentheses(text: &str) -> Option<&str> {
    let mut depth = 0;
    let close = text.char_indices().find(|(_, c)| {
        depth += i32::from(*c == '(') - i32::from(*c == ')');
        depth == 0
    });
    text.starts_with('(').then_some(&text[close?.0 + 1..])
}

#[test]
fn tuple_bindings_are_found() {
    let binding = |pattern: &str, value: &str| format!("fn f() {{\n    let ({pattern} = {value};\n}}");
    for (pattern, value, found) in [
        ("a, b)", "(f(1), 2)", true),
        ("mut a, b): (u8, u8)", "\n        (1, 2)", true),
        ("a, b)", "f(1, 2)", false),
        ("a, b)", "(0..9).partition(f)", false),
        ("a, b)", "if c { (1, 2) } else { (2, 1) }", false),
        ("Some(a), Some(b))", "(f(), g()) else { return }", false),
    ] {
        let lines: Vec<usize> = tuple_bindings(&binding(pattern, value)).collect();
        assert_eq!(lines, if found { vec![2] } else { Vec::new() }, "{pattern} = {value}");
    }
}
