//! The lower tier of memory, in which the states of buckets lie between updates.

use std::ops::Range;
use std::path::Path;

use quadrille_files::{Scratch, ScratchError};
use quadrille_step::{BucketId, StageProgram};

/// States by what they are. A parameter without a master copy has no first kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// The weight before it is rounded.
    Master,
    /// The running mean of the gradient.
    Mean,
    /// The running mean of its squares.
    Squares,
}

impl State {
    /// All kinds, in the order in which a bucket has them.
    pub const ALL: [Self; 3] = [Self::Master, Self::Mean, Self::Squares];
}

/// Which bytes of the tier a bucket has, by kind of states.
pub(crate) type Place = [Range<usize>; 3];

/// The places of all buckets in one version of the states: one after the other, in each the masters, the means, the squares.
pub(crate) fn places(program: &StageProgram, number_bytes: usize) -> Vec<Place> {
    let mut end = 0;
    let mut after = |elements: usize| {
        let start = end;
        end += elements * number_bytes;
        start..end
    };
    let place = |bucket: usize| {
        let bucket = program.bucket(BucketId(bucket));
        [bucket.masters(), bucket.elements(), bucket.elements()].map(&mut after)
    };
    (0..program.buckets.len()).map(place).collect()
}

/// The bytes of a rank's states.
pub(crate) enum Tier {
    /// A second arena, in the host's memory.
    Memory(Vec<u8>),
    /// In a file that is gone with the process.
    File(Scratch),
}

impl Tier {
    /// So many bytes, all zero: in the host's memory, or in a file of the rank in a folder.
    ///
    /// # Errors
    /// The file cannot be created, or the disk has no room for it.
    pub fn new(bytes: usize, folder: Option<&Path>, rank: usize) -> Result<Self, ScratchError> {
        let Some(folder) = folder else { return Ok(Self::Memory(vec![0; bytes])) };
        // The name is there for a moment; in it other runs may open theirs.
        let name = format!("quadrille-states-rank-{rank}-process-{}", std::process::id());
        Scratch::create(folder, &name, bytes as u64).map(Self::File)
    }

    /// How many bytes it has.
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Memory(bytes) => bytes.len() as u64,
            Self::File(file) => file.bytes(),
        }
    }

    /// Copies bytes out, from a place on.
    ///
    /// # Errors
    /// The disk's.
    pub fn read(&self, from: usize, to: &mut [u8]) -> Result<(), ScratchError> {
        match self {
            Self::Memory(bytes) => to.copy_from_slice(&bytes[from..from + to.len()]),
            Self::File(file) => file.read(from as u64, to)?,
        }
        Ok(())
    }

    /// Copies bytes in, to a place on.
    ///
    /// # Errors
    /// The disk's.
    pub fn write(&mut self, to: usize, from: &[u8]) -> Result<(), ScratchError> {
        match self {
            Self::Memory(bytes) => bytes[to..to + from.len()].copy_from_slice(from),
            Self::File(file) => file.write(to as u64, from)?,
        }
        Ok(())
    }
}
