//! What the ranks of a job share: the first failure, every rank's status, the groups.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use quadrille_spec::{CollectiveKind, Routing};

use crate::activity::Activity;
use crate::call::Call;
use crate::delay::MessageDelay;
use crate::error::{Aborted, Cause, CollectiveError, JobFailure};
use crate::group::{Shared, member_index};
use crate::panics;
use crate::run::JobOptions;
use crate::traffic::Traffic;
use crate::transport::Transport;

/// Locks a mutex whose data stay valid when a holder panics: failures travel through `Job::abort`.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

#[cfg(feature = "mpi")]
fn fingerprint(routing: &Routing) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    format!("{routing:?}").hash(&mut hasher);
    hasher.finish()
}

pub(crate) struct Job {
    pub(crate) timeout: Duration,
    pub(crate) message_delay: Option<MessageDelay>,
    pub(crate) routing: Routing,
    /// Of the routing, a number: processes that have read different ones do not fit together.
    #[cfg(feature = "mpi")]
    pub(crate) rules: u64,
    pub(crate) transport: Transport,
    twice: Option<CollectiveKind>,
    failure: OnceLock<Aborted>,
    statuses: Vec<Status>,
    groups: Mutex<BTreeMap<GroupKey, Arc<Shared>>>,
}

/// A group's name and members.
type GroupKey = (Arc<str>, Arc<[usize]>);

struct Status {
    activity: Mutex<Activity>,
    busy_with: Mutex<Option<(Arc<str>, Call)>>,
    left: AtomicBool,
    traffic: Traffic,
}

impl Job {
    pub(crate) fn new(options: &JobOptions) -> Self {
        let status = |_| Status {
            activity: Mutex::new(Activity::START),
            busy_with: Mutex::new(None),
            left: AtomicBool::new(false),
            traffic: Traffic::default(),
        };
        Self {
            timeout: options.timeout,
            message_delay: options.message_delay.clone(),
            #[cfg(feature = "mpi")]
            rules: fingerprint(&options.routing),
            routing: options.routing.clone(),
            transport: Transport::of(options),
            twice: options.twice,
            failure: OnceLock::new(),
            statuses: (0..options.ranks).map(status).collect(),
            groups: Mutex::new(BTreeMap::new()),
        }
    }

    pub(crate) fn ranks(&self) -> usize {
        self.statuses.len()
    }

    /// Fails once the job is aborted.
    pub(crate) fn check(&self) -> Result<(), Aborted> {
        self.failure.get().map_or(Ok(()), |aborted| Err(aborted.clone()))
    }

    /// Aborts the job unless it is aborted already; returns the first failure.
    pub(crate) fn abort(&self, rank: usize, activity: Activity, cause: Cause) -> Aborted {
        let mut first = false;
        let aborted = self.failure.get_or_init(|| {
            first = true;
            Aborted(Arc::new(JobFailure { rank, activity, cause }))
        });
        let aborted = aborted.clone();
        if first {
            self.each_group(Shared::wake);
            self.transport.wake();
            self.transport.announce(&aborted);
        }
        aborted
    }

    /// As `abort`, with a failure that another process has told of.
    #[cfg(feature = "mpi")]
    pub(crate) fn abort_told(&self, told: Aborted) {
        self.failure.get_or_init(|| told);
    }

    /// The job's number in this process, from 1.
    #[cfg(feature = "mpi")]
    pub(crate) fn number(&self) -> u64 {
        self.transport.link().map_or(0, |link| link.job)
    }

    /// Collectives that a rank has issued on the group with this key.
    #[cfg(feature = "mpi")]
    pub(crate) fn issued_on(&self, group: u64, rank: usize) -> u64 {
        let groups = lock(&self.groups);
        let group = groups.values().find(|shared| shared.key == group);
        let index = group.and_then(|group| group.members.iter().position(|member| *member == rank));
        group.zip(index).map_or(0, |(group, index)| group.issued[index].load(Ordering::Relaxed))
    }

    /// Aborts because of `error`, found in a call that `rank` issued during `activity`.
    pub(crate) fn abort_collective(&self, rank: usize, activity: Activity, error: CollectiveError) -> Aborted {
        self.abort(rank, activity, Cause::Collective(Arc::new(error)))
    }

    /// Aborts because an operation was dropped before its completion; normally the job is aborted already.
    pub(crate) fn abort_abandoned(&self, rank: usize) -> Aborted {
        self.abort(rank, self.activity(rank), Cause::Panic("before it completed a collective".into()))
    }

    /// Runs `body` for `rank`; a panic in it (of a buffer's or a delay's own code) aborts the job.
    pub(crate) fn catch<R>(&self, rank: usize, body: impl FnOnce() -> Result<R, Aborted>) -> Result<R, Aborted> {
        let outcome = panics::catch(body);
        outcome.unwrap_or_else(|text| Err(self.abort(rank, self.activity(rank), Cause::Panic(text))))
    }

    /// Marks a rank that has finished all its communication: whoever waits for it fails.
    pub(crate) fn leave(&self, rank: usize) {
        self.statuses[rank].left.store(true, Ordering::SeqCst);
        if self.check().is_ok() {
            self.each_group(|group| group.find_departed(self));
            self.transport.wake();
        }
    }

    pub(crate) fn has_left(&self, rank: usize) -> bool {
        self.statuses[rank].left.load(Ordering::SeqCst)
    }

    /// What has been moved for a rank.
    pub(crate) fn traffic(&self, rank: usize) -> &Traffic {
        &self.statuses[rank].traffic
    }

    /// How often a collective of this kind is carried out: once, if nobody wants to see that anything else is found.
    pub(crate) fn times(&self, operation: CollectiveKind) -> usize {
        if self.twice == Some(operation) { 2 } else { 1 }
    }

    pub(crate) fn activity(&self, rank: usize) -> Activity {
        *lock(&self.statuses[rank].activity)
    }

    pub(crate) fn set_activity(&self, rank: usize, activity: Activity) {
        *lock(&self.statuses[rank].activity) = activity;
    }

    pub(crate) fn busy_with(&self, rank: usize) -> Option<(Arc<str>, Call)> {
        lock(&self.statuses[rank].busy_with).clone()
    }

    pub(crate) fn set_busy_with(&self, rank: usize, call: Option<(Arc<str>, Call)>) {
        *lock(&self.statuses[rank].busy_with) = call;
    }

    /// Aborts the job if a collective or message has been waiting longer than the timeout.
    pub(crate) fn find_stuck(&self) {
        self.each_group(|group| group.find_stuck(self));
    }

    /// The state that the members of a group share, created by the first who asks, and the rank's index among them.
    pub(crate) fn group(&self, rank: usize, name: &str, members: &[usize]) -> Result<(Arc<Shared>, usize), Aborted> {
        self.check()?;
        let mut groups = lock(&self.groups);
        let known = groups.keys().filter(|(other, _)| &**other == name).map(|(_, members)| &**members);
        let index = match member_index(rank, members, self.ranks(), known) {
            Ok(index) => index,
            Err(rule) => {
                drop(groups);
                let error = CollectiveError::Group { group: name.into(), members: members.into(), rule };
                return Err(self.abort_collective(rank, self.activity(rank), error));
            }
        };
        let key = (Arc::from(name), Arc::from(members));
        let shared = groups.entry(key).or_insert_with_key(|(name, members)| {
            let formation = self.routing.formation(members);
            Arc::new(Shared::new(name.clone(), members.clone(), formation))
        });
        Ok((shared.clone(), index))
    }

    /// Visits the groups without holding the registry's lock.
    fn each_group(&self, visit: impl Fn(&Shared)) {
        let groups: Vec<_> = lock(&self.groups).values().cloned().collect();
        groups.iter().for_each(|group| visit(group));
    }
}
