//! What earlier runs have found out, in a file of the target folder: it makes the next run faster.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use quadrille_proofs::Mutant;
use serde::{Deserialize, Serialize};

use crate::binaries::TestBinary;

/// What is known, and the file that keeps it.
pub struct Memory {
    path: PathBuf,
    known: Known,
}

#[derive(Default, Serialize, Deserialize)]
struct Known {
    /// By mutant: the test binary that found it last.
    found: BTreeMap<String, String>,
    /// By test binary: when it was built, and what it took without a mutant, having passed.
    whole: BTreeMap<String, (SystemTime, Duration)>,
}

impl Memory {
    /// Of the last runs; empty if it cannot be read.
    pub fn read(target: &Path) -> Self {
        let path = target.join("memory.json");
        let known = std::fs::read(&path).ok().and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default();
        Self { path, known }
    }

    /// The test binary that found a mutant last.
    pub fn finder(&self, mutant: &Mutant) -> Option<&str> {
        self.known.found.get(&mutant.name).map(String::as_str)
    }

    /// Keeps who has found a mutant now.
    pub fn note_finder(&mut self, mutant: &Mutant, finder: Option<&TestBinary>) -> Result<(), String> {
        match finder {
            Some(test) => self.known.found.insert(mutant.name.clone(), test.name()),
            None => self.known.found.remove(&mutant.name),
        };
        self.write()
    }

    /// What a binary took without a mutant, if it has not been built again since.
    pub fn time(&self, test: &TestBinary) -> Option<Duration> {
        let (built, time) = self.known.whole.get(&test.name())?;
        (Some(*built) == test.built()).then_some(*time)
    }

    /// Keeps what a binary has taken without a mutant.
    pub fn note_time(&mut self, test: &TestBinary, time: Duration) -> Result<(), String> {
        self.known.whole.extend(test.built().map(|built| (test.name(), (built, time))));
        self.write()
    }

    fn write(&self) -> Result<(), String> {
        let text = serde_json::to_string_pretty(&self.known).map_err(|error| error.to_string())?;
        std::fs::write(&self.path, text).map_err(|error| format!("{}: {error}", self.path.display()))
    }
}
