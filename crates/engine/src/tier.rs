//! Where the states of buckets lie between updates: the lower tier of memory.

use std::ops::Range;

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

/// The places of all buckets: one after the other, in each the masters, the means, the squares.
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

/// A second arena, in the host's memory.
pub(crate) struct Tier {
    bytes: Vec<u8>,
}

impl Tier {
    /// So many bytes, all zero.
    pub fn new(bytes: usize) -> Self {
        Self { bytes: vec![0; bytes] }
    }

    /// How many bytes it has.
    pub fn bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Copies bytes out, from a place on.
    pub fn read(&self, from: usize, to: &mut [u8]) {
        to.copy_from_slice(&self.bytes[from..from + to.len()]);
    }

    /// Copies bytes in, to a place on.
    pub fn write(&mut self, to: usize, from: &[u8]) {
        self.bytes[to..to + from.len()].copy_from_slice(from);
    }
}
