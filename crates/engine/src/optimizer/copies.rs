//! A rank's copies between the device and the tier below it: a thread of their own does one after the other, in the order in
//! which they were begun, as a copy engine of a device does. So a fetch into room that a store still empties comes after it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};

use quadrille_files::ScratchError;
use quadrille_spec::{CollectiveKind, Transfer};
use quadrille_step::BucketId;

use super::tier::{Place, Tier};
use crate::{Backend, EngineError, RankMemory};

/// Room on the device for the states of a bucket, by kind.
pub(crate) type Room<B> = [<B as RankMemory>::Buffer; 3];

/// What a thread that panicked has left is as good as any: the job ends.
pub(crate) fn locked<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Bytes of states that move.
struct Moving<B: Backend> {
    id: CopyId,
    room: Arc<Mutex<Room<B>>>,
    place: Place,
}

/// A direction, and the bucket.
type CopyId = (CollectiveKind, BucketId);

impl<B: Backend> Moving<B> {
    /// Moves them; says how many there were.
    fn perform(&self, tier: &Mutex<Tier>) -> Result<u64, ScratchError> {
        let mut room = locked(&self.room);
        let mut tier = locked(tier);
        let mut bytes = 0;
        for (buffer, place) in room.iter_mut().zip(&self.place) {
            let moved = match self.id.0 {
                CollectiveKind::Fetch => B::fill(buffer, place.len(), |to| {
                    tier.read(place.start, to)?;
                    Ok(to.len())
                }),
                _ => B::look(buffer, place.len(), |from| {
                    tier.write(place.start, from)?;
                    Ok(from.len())
                }),
            }?;
            bytes += moved as u64;
        }
        Ok(bytes)
    }
}

/// The copies of a rank.
pub(crate) struct Copies<B: Backend> {
    /// `None`: the thread is told to end.
    begin: Option<Sender<Moving<B>>>,
    done: Receiver<Result<u64, ScratchError>>,
    thread: Option<JoinHandle<()>>,
    /// Begun and not seen to be done, in their order.
    under_way: VecDeque<CopyId>,
    /// Done, and nobody has waited for them.
    landed: BTreeSet<CopyId>,
    /// What has moved since it was last asked for.
    moved: BTreeMap<CollectiveKind, Transfer>,
}

impl<B: Backend> Copies<B> {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system has no thread left.
    pub fn new(tier: Arc<Mutex<Tier>>) -> Result<Self, EngineError> {
        let (begin, copies) = channel::<Moving<B>>();
        let (tell, done) = channel();
        let work = move || {
            for copy in copies {
                // Whoever began it may have gone.
                if tell.send(copy.perform(&tier)).is_err() {
                    return;
                }
            }
        };
        let thread = Builder::new().name("states".to_owned()).spawn(work).map_err(EngineError::NoThread)?;
        Ok(Self {
            begin: Some(begin),
            done,
            thread: Some(thread),
            under_way: VecDeque::new(),
            landed: BTreeSet::new(),
            moved: BTreeMap::new(),
        })
    }

    /// Begins a copy: [`CollectiveKind::Fetch`] or [`CollectiveKind::Store`].
    ///
    /// # Errors
    /// The thread has ended.
    pub fn begin(&mut self, id: CopyId, room: Arc<Mutex<Room<B>>>, place: Place) -> Result<(), EngineError> {
        let begin = self.begin.as_ref().ok_or(EngineError::StatesLost)?;
        begin.send(Moving { id, room, place }).map_err(|_| EngineError::StatesLost)?;
        self.under_way.push_back(id);
        Ok(())
    }

    /// Waits until a copy is done.
    ///
    /// # Errors
    /// It was not begun; it, or one before it, has failed; the thread has ended.
    pub fn wait(&mut self, id: CopyId) -> Result<(), EngineError> {
        while !self.landed.remove(&id) {
            let first =
                self.under_way.pop_front().ok_or(EngineError::NotMoved { bucket: id.1.0, kind: id.0.name() })?;
            let bytes = self.done.recv().map_err(|_| EngineError::StatesLost)??;
            *self.moved.entry(first.0).or_default() += Transfer { calls: 1, payload_bytes: bytes, wire_bytes: 0 };
            self.landed.insert(first);
        }
        Ok(())
    }

    /// What has moved since the last call, as far as it was waited for.
    pub fn take_moved(&mut self) -> BTreeMap<CollectiveKind, Transfer> {
        std::mem::take(&mut self.moved)
    }
}

impl<B: Backend> Drop for Copies<B> {
    fn drop(&mut self) {
        self.begin = None;
        if let Some(thread) = self.thread.take() {
            // A panic there has been told of as an error.
            _ = thread.join();
        }
    }
}
