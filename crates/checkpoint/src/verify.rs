//! Reads every byte of a checkpoint.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::manifest::QUANTITIES;
use crate::number::not_finite;
use crate::{Checkpoint, CheckpointError, Quantity};

/// What a whole checkpoint was found to hold.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Summary {
    /// Tensors, each covered exactly once.
    pub tensors: usize,
    /// Files of tiles.
    pub files: usize,
    /// Tiles whose bytes fit their checksum.
    pub tiles: usize,
    /// Bytes of those tiles.
    pub bytes: u64,
    /// Tensors with infinite numbers or such that are none, in the order of the manifest.
    pub not_finite: Vec<NotFinite>,
}

/// Numbers of a tensor that are infinite or none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NotFinite {
    /// The tensor.
    pub tensor: String,
    /// What of it.
    pub quantity: Quantity,
    /// How many.
    pub numbers: u64,
}

/// A checkpoint, what of it is sound and what is not.
#[derive(Debug)]
pub struct Verdict {
    /// Where it is.
    pub path: PathBuf,
    /// What is sound; `None` where it cannot be opened.
    pub summary: Option<Summary>,
    /// Everything that is not.
    pub faults: Vec<CheckpointError>,
}

impl Verdict {
    /// Of the checkpoint at `path`; one that cannot be opened has that as its fault.
    pub fn at(path: PathBuf) -> Self {
        match Checkpoint::open(&path) {
            Ok(checkpoint) => Self::of(&checkpoint),
            Err(error) => Self { path, summary: None, faults: vec![error] },
        }
    }

    /// Of a checkpoint, read whole.
    pub fn of(checkpoint: &Checkpoint) -> Self {
        let (summary, faults) = checkpoint.faults();
        Self { path: checkpoint.path().to_path_buf(), summary: Some(summary), faults }
    }

    /// Whether nothing is wrong with it.
    pub fn is_sound(&self) -> bool {
        self.faults.is_empty()
    }
}

impl Checkpoint {
    /// Reads every file whole and holds it against its checksums, also what was read before.
    ///
    /// # Errors
    /// The first damaged file or tile.
    pub fn verify(&self) -> Result<Summary, CheckpointError> {
        let (summary, faults) = self.faults();
        faults.into_iter().next().map_or(Ok(summary), Err)
    }

    /// The same, to the end: a summary of what is sound, and everything that is not.
    pub fn faults(&self) -> (Summary, Vec<CheckpointError>) {
        let mut summary = Summary { tensors: self.tensors().len(), files: self.files.len(), ..Summary::default() };
        let mut faults = Vec::new();
        let mut counts = vec![0; QUANTITIES * self.tensors().len()];
        // The file whose tiles cannot be looked at: it is told once.
        let mut unreadable = None;
        let mut reader = self.reader();
        for tile in self.tiles.iter() {
            if unreadable == Some(tile.file) {
                continue;
            }
            let mut strange = 0;
            match reader.checksum(tile, |bytes| strange += not_finite(tile.listed.quantity, self.about().dtype, bytes))
            {
                Err(error) => {
                    unreadable = Some(tile.file);
                    faults.push(error);
                }
                Ok(checksum) if checksum != tile.listed.checksum => faults.push(self.damaged_tile(tile)),
                Ok(_) => {
                    summary.tiles += 1;
                    summary.bytes += tile.bytes.len() as u64;
                    counts[QUANTITIES * tile.listed.tensor + tile.listed.quantity as usize] += strange;
                }
            }
        }
        for (tensor, counts) in self.tensors().iter().zip(counts.as_chunks::<QUANTITIES>().0) {
            for (quantity, numbers) in Quantity::ALL.into_iter().zip(*counts).filter(|(_, numbers)| *numbers > 0) {
                summary.not_finite.push(NotFinite { tensor: tensor.name.clone(), quantity, numbers });
            }
        }
        (summary, faults)
    }
}
