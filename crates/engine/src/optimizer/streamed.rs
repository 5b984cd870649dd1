//! Optimizer states that lie in the tier below the device and come to the device a bucket at a time (dissertation, chapter 3).

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex};

use bytemuck::{Zeroable, cast_slice, cast_slice_mut};
use quadrille_files::ScratchError;
use quadrille_spec::{CollectiveKind, Transfer};
use quadrille_step::{BucketId, BucketRun, ParameterId, ShardRun, StageProgram};

use super::copies::{Copies, Room, locked};
use super::states::StatesMut;
use super::tier::{Place, State, Tier, places};
use crate::backend::Kind;
use crate::{Backend, EngineError};

/// The states of all that a rank updates, and room for two buckets of them on the device.
pub(crate) struct Streamed<'a, B: Backend> {
    program: &'a StageProgram,
    rooms: Vec<Arc<Mutex<Room<B>>>>,
    tier: Arc<Mutex<Tier>>,
    /// By bucket, in the first version.
    places: Vec<Place>,
    /// Bytes of a version.
    bytes: usize,
    /// The version that is fetched.
    version: usize,
    copies: Copies<B>,
}

impl<'a, B: Backend> Streamed<'a, B> {
    /// All zeros; in the host's memory, or in the file of a rank in a folder.
    ///
    /// # Errors
    /// The device or the disk has no room, or the system no thread.
    pub fn new(
        backend: &B,
        program: &'a StageProgram,
        folder: Option<&Path>,
        rank: usize,
    ) -> Result<Self, EngineError> {
        let (count, [masters, elements]) = program.bucket_room();
        let allocate = |elements: usize| backend.allocate((elements * size_of::<B::Real>()) as u64);
        let room = |_| Ok([allocate(masters)?, allocate(elements)?, allocate(elements)?]);
        let rooms = (0..count).map(room).collect::<Result<Vec<Room<B>>, EngineError>>()?;
        let places = places(program, size_of::<B::Real>());
        let bytes = places.last().map_or(0, |[.., last]| last.end);
        let tier = Arc::new(Mutex::new(Tier::new(program.versions() * bytes, folder, rank)?));
        let copies = Copies::new(tier.clone())?;
        let rooms = rooms.into_iter().map(|room| Arc::new(Mutex::new(room))).collect();
        Ok(Self { program, rooms, tier, places, bytes, version: 0, copies })
    }

    /// Bytes on the device.
    pub fn device_bytes(&self) -> u64 {
        self.rooms.iter().map(|room| locked(room).iter().map(B::bytes).sum::<u64>()).sum()
    }

    /// Bytes in the tier.
    pub fn host_bytes(&self) -> u64 {
        locked(&self.tier).bytes()
    }

    /// The room that a bucket comes to: they take turns.
    fn room(&self, bucket: BucketId) -> &Arc<Mutex<Room<B>>> {
        &self.rooms[bucket.0 % self.rooms.len()]
    }

    /// Begins to bring the states of a bucket, or its masters alone, to the device.
    ///
    /// # Errors
    /// The thread that copies has ended.
    pub fn fetch(&mut self, bucket: BucketId, masters: bool) -> Result<(), EngineError> {
        let [of_masters, mean, squares] = self.place(bucket, self.version);
        let place = if masters {
            [of_masters, mean.start..mean.start, squares.start..squares.start]
        } else {
            [of_masters, mean, squares]
        };
        self.copies.begin((CollectiveKind::Fetch, bucket), self.room(bucket).clone(), place)
    }

    /// Begins to bring the states of a bucket back: where there are two versions, to the one that is not fetched.
    ///
    /// # Errors
    /// The thread that copies has ended.
    pub fn store(&mut self, bucket: BucketId) -> Result<(), EngineError> {
        let place = self.place(bucket, self.other_version());
        self.copies.begin((CollectiveKind::Store, bucket), self.room(bucket).clone(), place)
    }

    /// What was stored last is fetched from now on.
    pub fn adopt(&mut self) {
        self.version = self.other_version();
    }

    fn other_version(&self) -> usize {
        (self.version + 1) % self.program.versions()
    }

    /// Where a bucket lies in a version.
    fn place(&self, bucket: BucketId, version: usize) -> Place {
        let first = version * self.bytes;
        self.places[bucket.0].clone().map(|Range { start, end }| first + start..first + end)
    }

    /// Waits until they are there.
    ///
    /// # Errors
    /// They were not on their way; the thread that copies has ended.
    pub fn wait(&mut self, kind: CollectiveKind, bucket: BucketId) -> Result<(), EngineError> {
        self.copies.wait((kind, bucket))
    }

    /// What has moved since the last call.
    pub fn take_moved(&mut self) -> BTreeMap<CollectiveKind, Transfer> {
        self.copies.take_moved()
    }

    /// Gives the first so many masters of a run on the device to `restore`.
    pub fn with_masters<R>(
        &self,
        run: BucketRun,
        elements: usize,
        restore: impl FnOnce(B::View<'_>) -> R,
    ) -> Option<R> {
        let room = locked(self.room(run.bucket));
        let at = self.program.run(run).master_at?;
        Some(restore(B::view(&room[State::Master as usize], Kind::Real, at..at + elements)))
    }

    /// Gives the first so many states of a run on the device to `update`.
    pub fn with<R>(&self, run: BucketRun, elements: usize, update: impl FnOnce(StatesMut<'_, B>) -> R) -> R {
        let mut room = locked(self.room(run.bucket));
        let [masters, mean, squares] = &mut *room;
        let ShardRun { at, master_at, .. } = *self.program.run(run);
        let moments = [mean, squares].map(|moment| B::view_mut(moment, Kind::Real, at..at + elements));
        let master = master_at.map(|at| B::view_mut(masters, Kind::Real, at..at + elements));
        update(StatesMut { master, moments })
    }

    /// The states of one kind of a parameter's shard; `None`: it has none of the kind. Between steps only.
    ///
    /// # Errors
    /// The disk's.
    pub fn read(&self, parameter: ParameterId, state: State) -> Result<Option<Vec<B::Real>>, ScratchError> {
        let tier = locked(&self.tier);
        let mut numbers = Vec::new();
        let Some(runs) = self.runs(parameter, state) else { return Ok(None) };
        for (from, run) in runs {
            let first = numbers.len();
            numbers.resize(first + run.elements, B::Real::zeroed());
            tier.read(from, cast_slice_mut(&mut numbers[first..]))?;
        }
        Ok(Some(numbers))
    }

    /// Puts the states of one kind of a parameter's shard in their place. Between steps only.
    ///
    /// # Errors
    /// The disk's.
    pub fn write(&mut self, parameter: ParameterId, state: State, numbers: &[B::Real]) -> Result<(), ScratchError> {
        let mut tier = locked(&self.tier);
        let mut runs = self.runs(parameter, state).into_iter().flatten();
        runs.try_for_each(|(to, run)| tier.write(to, cast_slice(&numbers[run.range()])))
    }

    /// The runs of a parameter with where their states of a kind begin in the tier; `None`: there are none of the kind.
    fn runs(&self, parameter: ParameterId, state: State) -> Option<Vec<(usize, ShardRun)>> {
        let first = self.version * self.bytes;
        let runs = self.program.buckets.iter().zip(&self.places).flat_map(|(bucket, place)| {
            let own = bucket.runs.iter().filter(move |run| run.parameter == parameter);
            own.map(move |run| {
                let at = if state == State::Master { run.master_at } else { Some(run.at) };
                Some((first + place[state as usize].start + at? * size_of::<B::Real>(), *run))
            })
        });
        runs.collect()
    }
}
