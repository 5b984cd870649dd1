//! Buckets of optimizer states that lie in the host's memory.
//!
//! The shards that a rank updates follow each other in the order of the parameters, padding included. A bucket is so many
//! consecutive elements of them: a list of runs, since weight decay and masters differ by parameter. Buckets change no bit,
//! for each element is updated from its own states alone. The device has room for two, so that one is updated while another
//! one moves (dissertation, chapter 3).

use std::ops::Range;

use crate::{ParameterId, StageProgram};

/// The number of a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BucketId(pub usize);

/// A run of a bucket, by their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BucketRun {
    /// The bucket.
    pub bucket: BucketId,
    /// Among its runs.
    pub run: usize,
}

/// Neighbouring elements of a parameter's shard in a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShardRun {
    /// The parameter.
    pub parameter: ParameterId,
    /// The first of them in the shard that the optimizer updates.
    pub first: usize,
    /// How many there are.
    pub elements: usize,
    /// Where their moments begin among those of the bucket, in elements.
    pub at: usize,
    /// Where their masters begin among those of the bucket, in elements; `None`: each is its own master.
    pub master_at: Option<usize>,
}

impl ShardRun {
    /// Which elements of the shard they are.
    pub fn range(&self) -> Range<usize> {
        self.first..self.first + self.elements
    }
}

/// Elements whose states are on the device together.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Bucket {
    /// In the order of parameters.
    pub runs: Vec<ShardRun>,
}

impl Bucket {
    /// How many elements have moments here.
    pub fn elements(&self) -> usize {
        self.runs.iter().map(|run| run.elements).sum()
    }

    /// Whether nothing of it belongs to a parameter behind this one.
    pub(crate) fn ends_with(&self, parameter: ParameterId) -> bool {
        self.runs.last().is_none_or(|run| run.parameter <= parameter)
    }

    /// How many elements have masters here.
    pub fn masters(&self) -> usize {
        self.runs.iter().filter(|run| run.master_at.is_some()).map(|run| run.elements).sum()
    }
}

/// Cuts the updated shards of parameters, of so many elements and with a master or without, into buckets of `size` elements.
pub(crate) fn buckets(shards: impl IntoIterator<Item = (ParameterId, usize, bool)>, size: usize) -> Vec<Bucket> {
    let mut buckets = vec![Bucket::default()];
    let mut room = size;
    let mut open = 0;
    for (parameter, elements, has_master) in shards {
        let mut first = 0;
        while first < elements {
            if room == 0 {
                buckets.push(Bucket::default());
                (room, open) = (size, open + 1);
            }
            let bucket = &mut buckets[open];
            let at = bucket.elements();
            let masters = bucket.masters();
            let taken = room.min(elements - first);
            bucket.runs.push(ShardRun {
                parameter,
                first,
                elements: taken,
                at,
                master_at: has_master.then_some(masters),
            });
            (first, room) = (first + taken, room - taken);
        }
    }
    buckets.retain(|bucket| !bucket.runs.is_empty());
    buckets
}

impl StageProgram {
    /// The run of a number.
    pub fn run(&self, BucketRun { bucket, run }: BucketRun) -> &ShardRun {
        &self.bucket(bucket).runs[run]
    }

    /// The bucket of a number.
    pub fn bucket(&self, id: BucketId) -> &Bucket {
        &self.buckets[id.0]
    }

    /// Whether states lie in the host's memory.
    pub fn offloads(&self) -> bool {
        !self.buckets.is_empty()
    }

    /// Whether an update is begun before the norm of the gradient is known, and waits for a [`Verdict`](crate::Verdict).
    pub fn attempts(&self) -> bool {
        self.trains() && self.layout.optimizer_overlap
    }

    /// Bytes of a bucket's states: what is fetched of it, and stored again.
    pub fn bucket_bytes(&self, id: BucketId) -> u64 {
        self.bucket_masters(id) + self.bucket(id).elements() as u64 * self.practice.formats.moments
    }

    /// Bytes of a bucket's masters.
    pub fn bucket_masters(&self, id: BucketId) -> u64 {
        self.bucket(id).masters() as u64 * self.bucket_master_bytes()
    }

    /// Bytes of an element's master in a bucket that has it: also of a weight that is stored as it is computed, where an update
    /// may be taken back.
    pub fn bucket_master_bytes(&self) -> u64 {
        let own = if self.attempts() { self.layout.dtype.real().bytes() } else { 0 };
        self.practice.formats.masters.max(own)
    }

    /// How many versions of the states there are: the one before the step is kept until the verdict.
    pub fn versions(&self) -> usize {
        if self.attempts() { 2 } else { 1 }
    }

    /// Bytes of the states in the host's memory.
    pub fn host_bytes(&self) -> u64 {
        let version: u64 = (0..self.buckets.len()).map(|bucket| self.bucket_bytes(BucketId(bucket))).sum();
        self.versions() as u64 * version
    }

    /// How many buckets fit on the device together, with how many masters and how many elements each has room for.
    pub fn bucket_room(&self) -> (usize, [usize; 2]) {
        let most = |of: fn(&Bucket) -> usize| self.buckets.iter().map(of).max().unwrap_or(0);
        (self.buckets.len().min(2), [most(Bucket::masters), most(Bucket::elements)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_cover_every_element_once() {
        let shards = [(ParameterId(0), 5, true), (ParameterId(1), 1, false), (ParameterId(2), 7, true)];
        for size in [1, 3, 4, 13, 100] {
            let buckets = buckets(shards, size);
            assert!(buckets.iter().rev().skip(1).all(|bucket| bucket.elements() == size));
            let mut next = [0; 3];
            for bucket in &buckets {
                let mut at = 0;
                let mut masters = 0;
                for run in &bucket.runs {
                    assert_eq!((run.first, run.at), (next[run.parameter.0], at));
                    assert_eq!(run.master_at, shards[run.parameter.0].2.then_some(masters));
                    next[run.parameter.0] += run.elements;
                    at += run.elements;
                    masters += run.master_at.map_or(0, |_| run.elements);
                }
                assert_eq!((bucket.elements(), bucket.masters()), (at, masters));
            }
            assert_eq!(next, [5, 1, 7]);
        }
        assert!(buckets([], 4).is_empty());
    }
}
