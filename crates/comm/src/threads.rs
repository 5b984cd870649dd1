//! Ranks that are threads of this process: members read and write each other's buffers.

use std::any::Any;
use std::sync::Arc;

use crate::call::Call;
use crate::error::Aborted;
use crate::group::{Group, Shared};
use crate::job::Job;
use crate::lanes::Lanes;
use crate::mailbox::Mailbox;
use crate::parcel::Parcel;
use crate::rendezvous::Meeting;
use crate::transfer::{self, Slices};
use crate::transport::{Carrier, Exchange, Occasion, Transport};
use crate::watch::watch;

/// A job whose ranks are threads.
pub(crate) struct Threads {
    lanes: Lanes,
}

/// Where the members of a group meet.
pub(crate) struct Places {
    pub(crate) meeting: Meeting,
    pub(crate) mailbox: Mailbox,
}

impl Places {
    /// Those of a group.
    pub(crate) fn of(shared: &Shared) -> &Self {
        let places = shared.state().downcast_ref();
        places.unwrap_or_else(|| unreachable!("ranks that are threads have groups of this transport"))
    }
}

impl Threads {
    pub(crate) fn new(ranks: usize) -> Self {
        Self { lanes: Lanes::new(ranks) }
    }
}

impl Transport for Threads {
    fn shares_memory(&self) -> bool {
        true
    }

    fn group(&self, members: usize) -> Box<dyn Any + Send + Sync> {
        Box::new(Places { meeting: Meeting::new(members), mailbox: Mailbox::default() })
    }

    fn ends_calls(&self) -> bool {
        true
    }

    fn drive(&self, _done: &dyn Fn() -> bool) {} // whoever comes second completes a message

    fn announce(&self, _aborted: &Aborted) {} // all ranks look at one job

    fn wake(&self, groups: &[Arc<Shared>]) {
        for places in groups.iter().map(|group| Places::of(group)) {
            places.meeting.wake();
            places.mailbox.clear();
        }
        self.lanes.wake();
    }

    fn find_departed(&self, job: &Job, groups: &[Arc<Shared>]) {
        for group in groups {
            let places = Places::of(group);
            places.meeting.find_departed(job, group);
            places.mailbox.find_departed(job, group);
        }
        self.lanes.wake();
    }

    fn find_stuck(&self, job: &Job, groups: &[Arc<Shared>]) {
        for group in groups {
            let places = Places::of(group);
            places.meeting.find_stuck(job, group);
            places.mailbox.find_stuck(job, group);
        }
    }

    fn watch(
        &self,
        job: &Job,
        at: Occasion<'_>,
        look: &mut dyn FnMut() -> Result<bool, String>,
    ) -> Result<(), Aborted> {
        watch(job, &at, look)
    }
}

impl Carrier for Threads {
    fn native(&self, job: &Arc<Job>, at: Occasion<'_>, slices: Slices<'_>) -> Result<(), Aborted> {
        transfer::exchange(job, at, slices)
    }

    fn native_bytes(&self, group: &Group, call: &Call, slices: &Slices<'_>) -> u64 {
        call.bytes(transfer::stored(call, slices, group.size(), group.index()))
    }

    fn message(&self, job: &Arc<Job>, group: &Group, call: Call, parcel: Box<dyn Parcel>) {
        Places::of(&group.shared).mailbox.post(job, group, call, parcel);
    }

    fn exchange(&self, job: &Arc<Job>, at: Occasion<'_>, exchange: Exchange<'_>) -> Result<(), Aborted> {
        self.lanes.exchange(job, at, exchange)
    }
}
