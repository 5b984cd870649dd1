//! Mutants: small faults of the product, each of which some test has to notice.
//!
//! `mutants/*.toml` lists them, a file for a crate. [`MutantList::schemata`] puts all of a source file's mutants into its
//! text, each behind a condition, so that one build holds all of them and a variable of the environment chooses one.

mod schemata;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

/// The variable that holds the number of the mutant to run; without it the product is whole.
pub const VARIABLE: &str = "QUADRILLE_MUTANT";

/// A fault.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mutant {
    /// What is broken, in words.
    pub name: String,
    /// The source file, from the crate's folder on.
    pub file: String,
    /// Text that is in the file exactly once. What is between `«` and `»` is replaced, or all of it.
    pub original: String,
    /// What takes its place.
    pub mutated: String,
    /// Why no test can see it; else some test has to.
    pub equivalent: Option<String>,
    /// The folder of its crate.
    #[serde(skip)]
    pub package: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    mutant: Vec<Mutant>,
}

/// All mutants, in the order of crates and files of the list; a mutant's number is its place, from 1.
pub struct MutantList {
    /// By number, less one.
    pub mutants: Vec<Mutant>,
}

impl MutantList {
    /// The list of this package.
    ///
    /// # Errors
    /// What cannot be read, by its path.
    pub fn read() -> Result<Self, String> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("mutants");
        let entries = std::fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        paths.sort();
        let mut mutants = Vec::new();
        for path in paths {
            let wrong = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
            let text = std::fs::read_to_string(&path).map_err(|error| wrong(&error))?;
            let file: File = toml::from_str(&text).map_err(|error| wrong(&error))?;
            let package = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            mutants.extend(file.mutant.into_iter().map(|mutant| Mutant { package: package.clone(), ..mutant }));
        }
        Ok(Self { mutants })
    }

    /// The text of every file that changes, by its path in `workspace`: with all mutants, and the module that chooses one.
    ///
    /// # Errors
    /// The mutant whose original is not in its file, or more than once, or overlaps with another's.
    pub fn schemata(&self, workspace: &Path) -> Result<BTreeMap<PathBuf, String>, String> {
        let mut files: BTreeMap<PathBuf, Vec<(usize, &Mutant)>> = BTreeMap::new();
        let mut sources: BTreeMap<PathBuf, String> = BTreeMap::new();
        for (index, mutant) in self.mutants.iter().enumerate() {
            let source = Path::new("crates").join(&mutant.package);
            files.entry(source.join(&mutant.file)).or_default().push((index + 1, mutant));
            // A folder may be a library's and a program's: files are of one or the other.
            for root in ["src/lib.rs", "src/main.rs"].map(|root| source.join(root)) {
                if workspace.join(&root).exists() {
                    sources.insert(root.with_file_name("mutation.rs"), schemata::MODULE.replace("VARIABLE", VARIABLE));
                    files.entry(root).or_default();
                }
            }
        }
        for (path, mutants) in files {
            let wrong = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
            let text = std::fs::read_to_string(workspace.join(&path)).map_err(|error| wrong(&error))?;
            let mut text = schemata::with_mutants(&text, &mutants).map_err(|error| wrong(&error))?;
            if sources.contains_key(&path.with_file_name("mutation.rs")) && is_root(&path) {
                text.push_str("\nmod mutation;\n");
            }
            sources.insert(path, text);
        }
        Ok(sources)
    }
}

fn is_root(path: &Path) -> bool {
    path.ends_with("src/lib.rs") || path.ends_with("src/main.rs")
}
