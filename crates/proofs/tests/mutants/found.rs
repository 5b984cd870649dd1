//! Which test binaries found which mutants in earlier runs: a hint for the next.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use quadrille_proofs::Mutant;

use crate::binaries::TestBinary;

/// The hints, by the names of mutants, and the file that keeps them.
pub struct FoundBefore {
    path: PathBuf,
    by: BTreeMap<String, String>,
}

impl FoundBefore {
    /// Those of the last runs; none if they cannot be read.
    pub fn read(target: &Path) -> Self {
        let path = target.join("found.json");
        let by = std::fs::read(&path).ok().and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default();
        Self { path, by }
    }

    pub fn by(&self, mutant: &Mutant) -> Option<&str> {
        self.by.get(&mutant.name).map(String::as_str)
    }

    /// Keeps who has found the mutant now.
    pub fn note(&mut self, mutant: &Mutant, finder: Option<&TestBinary>) -> Result<(), String> {
        match finder {
            Some(test) => self.by.insert(mutant.name.clone(), test.name()),
            None => self.by.remove(&mutant.name),
        };
        let text = serde_json::to_string_pretty(&self.by).map_err(|error| error.to_string())?;
        std::fs::write(&self.path, text).map_err(|error| format!("{}: {error}", self.path.display()))
    }
}
