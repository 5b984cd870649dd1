//! What the ranks of a job share: the first failure, every rank's status, the groups.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

pub(crate) use quadrille_panics::lock;
use quadrille_spec::{CollectiveKind, Routing};

use crate::activity::Activity;
use crate::call::Call;
use crate::delay::MessageDelay;
use crate::error::{Aborted, Cause, CollectiveError, JobFailure};
use crate::group::{Shared, member_index};
use crate::mover::Mover;
use crate::panics;
use crate::run::JobOptions;
use crate::traffic::Traffic;
use crate::transport::{Carrier, Occasion, Transport};

fn fingerprint(routing: &Routing) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    format!("{routing:?}").hash(&mut hasher);
    hasher.finish()
}

/// A job as one process sees it, for the transport that carries it.
pub struct Job {
    pub(crate) timeout: Duration,
    pub(crate) message_delay: Option<MessageDelay>,
    pub(crate) routing: Routing,
    rules: u64,
    number: u64,
    pub(crate) transport: Arc<dyn Transport>,
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
    /// A job that this transport carries. `number` is the job's among those that its processes run, from 1: the same in all
    /// of them. Among threads nobody asks for it.
    pub fn new(options: &JobOptions, number: u64, transport: impl Transport + 'static) -> Self {
        let status = |_| Status {
            activity: Mutex::new(Activity::START),
            busy_with: Mutex::new(None),
            left: AtomicBool::new(false),
            traffic: Traffic::default(),
        };
        Self {
            timeout: options.timeout,
            message_delay: options.message_delay.clone(),
            rules: fingerprint(&options.routing),
            number,
            routing: options.routing.clone(),
            transport: Arc::new(transport),
            twice: options.twice,
            failure: OnceLock::new(),
            statuses: (0..options.ranks).map(status).collect(),
            groups: Mutex::new(BTreeMap::new()),
        }
    }

    /// Number of ranks.
    pub fn ranks(&self) -> usize {
        self.statuses.len()
    }

    /// A collective or message that waits longer than this for a rank aborts the job.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// The job's number among those that its processes run.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The rules by which algorithms are chosen, as a number: processes that have different ones do not fit together.
    pub fn rules(&self) -> u64 {
        self.rules
    }

    /// Fails once the job is aborted.
    ///
    /// # Errors
    /// The first failure.
    pub fn check(&self) -> Result<(), Aborted> {
        self.failure.get().map_or(Ok(()), |aborted| Err(aborted.clone()))
    }

    /// Aborts the job unless it is aborted already; returns the first failure.
    pub fn abort(&self, rank: usize, activity: Activity, cause: Cause) -> Aborted {
        let mut first = false;
        let aborted = self.failure.get_or_init(|| {
            first = true;
            Aborted(Arc::new(JobFailure { rank, activity, cause }))
        });
        let aborted = aborted.clone();
        if first {
            self.wake();
            self.transport.announce(&aborted);
        }
        aborted
    }

    /// Everybody who waits looks again.
    fn wake(&self) {
        self.transport.wake(&self.groups());
    }

    /// As [`abort`](Self::abort), with a failure that another process has told of: nobody else is told of it.
    pub fn abort_told(&self, told: Aborted) {
        let mut first = false;
        self.failure.get_or_init(|| {
            first = true;
            told
        });
        if first {
            self.wake();
        }
    }

    /// Collectives that a rank has issued on the group with this [key](crate::Group::key).
    pub fn issued_on(&self, group: u64, rank: usize) -> u64 {
        let groups = lock(&self.groups);
        let group = groups.values().find(|shared| shared.key() == group);
        let index = group.and_then(|group| group.members.iter().position(|member| *member == rank));
        group.zip(index).map_or(0, |(group, index)| group.issued[index].load(Ordering::Relaxed))
    }

    /// Aborts because of `error`, found in a call that `rank` issued during `activity`.
    pub fn abort_collective(&self, rank: usize, activity: Activity, error: CollectiveError) -> Aborted {
        self.abort(rank, activity, Cause::Collective(Arc::new(error)))
    }

    /// Aborts because a transport or carrier could not carry out a call.
    pub fn abort_carried(&self, at: &Occasion<'_>, error: String) -> Aborted {
        let group = at.group.shared_name();
        let call = Box::new(*at.call);
        let error = CollectiveError::Transport { group, sequence: at.sequence, call, error };
        self.abort_collective(at.group.rank(), at.call.activity, error)
    }

    /// Who carries what this mover moves.
    pub(crate) fn carrier(&self, mover: &dyn Mover) -> Arc<dyn Carrier> {
        mover.carrier(self.transport.shares_memory()).unwrap_or_else(|| self.transport.clone())
    }

    /// See [`Transport::watch`].
    ///
    /// # Errors
    /// As there.
    pub fn watch(&self, at: Occasion<'_>, look: &mut dyn FnMut() -> Result<bool, String>) -> Result<(), Aborted> {
        self.transport.watch(self, at, look)
    }

    /// Aborts because an operation was dropped before its completion; normally the job is aborted already.
    pub fn abort_abandoned(&self, rank: usize) -> Aborted {
        self.abort(rank, self.activity(rank), Cause::Panic("before it completed a collective".into()))
    }

    /// Runs `body` for `rank`; a panic in it (of a buffer's or a delay's own code) aborts the job.
    ///
    /// # Errors
    /// The body's, or its panic.
    pub fn catch<R>(&self, rank: usize, body: impl FnOnce() -> Result<R, Aborted>) -> Result<R, Aborted> {
        let outcome = panics::catch(body);
        outcome.unwrap_or_else(|text| Err(self.abort(rank, self.activity(rank), Cause::Panic(text))))
    }

    /// Marks a rank that has finished all its communication: whoever waits for it fails.
    pub(crate) fn leave(&self, rank: usize) {
        self.statuses[rank].left.store(true, Ordering::SeqCst);
        if self.check().is_ok() {
            self.transport.find_departed(self, &self.groups());
        }
    }

    /// Whether a rank of this process has returned from the job's body, and all that it issued is done.
    pub fn has_left(&self, rank: usize) -> bool {
        self.statuses[rank].left.load(Ordering::SeqCst)
    }

    /// What has been moved for a rank.
    pub fn traffic(&self, rank: usize) -> &Traffic {
        &self.statuses[rank].traffic
    }

    /// How often a collective of this kind is carried out: once, if nobody wants to see that anything else is found.
    pub(crate) fn times(&self, operation: CollectiveKind) -> usize {
        if self.twice == Some(operation) { 2 } else { 1 }
    }

    /// What a rank of this process does.
    pub fn activity(&self, rank: usize) -> Activity {
        *lock(&self.statuses[rank].activity)
    }

    pub(crate) fn set_activity(&self, rank: usize, activity: Activity) {
        *lock(&self.statuses[rank].activity) = activity;
    }

    /// What a rank's communication works on: the group's name and the call.
    pub fn busy_with(&self, rank: usize) -> Option<(Arc<str>, Call)> {
        lock(&self.statuses[rank].busy_with).clone()
    }

    pub(crate) fn set_busy_with(&self, rank: usize, call: Option<(Arc<str>, Call)>) {
        *lock(&self.statuses[rank].busy_with) = call;
    }

    /// Aborts the job if a collective or message has been waiting longer than the timeout.
    pub(crate) fn find_stuck(&self) {
        self.transport.find_stuck(self, &self.groups());
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
            let state = self.transport.group(members.len());
            Arc::new(Shared::new(name.clone(), members.clone(), formation, state))
        });
        Ok((shared.clone(), index))
    }

    /// All groups so far. A copy, so that who visits them does not hold the registry's lock.
    fn groups(&self) -> Vec<Arc<Shared>> {
        lock(&self.groups).values().cloned().collect()
    }
}
