//! Starting ranks, watching over them, and collecting what they return.

use std::error::Error;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{Builder, Scope, scope};
use std::time::Duration;

use quadrille_spec::{CollectiveKind, Routing};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::activity::Activity;
use crate::context::RankContext;
use crate::delay::MessageDelay;
use crate::error::{Aborted, Cause, JobFailure};
use crate::job::{Job, lock};
use crate::panics;
use crate::queue::Queue;
use crate::threads::Threads;
use crate::world::World;

/// How often it is looked whether the job is aborted, while a rank's last communication is waited for.
const LOOK: Duration = Duration::from_millis(10);

/// How a job is run.
#[derive(Debug, Clone)]
pub struct JobOptions {
    /// Number of ranks. None is allowed: the job then does nothing.
    pub ranks: usize,
    /// A collective or message that waits longer than this for a rank aborts the job. Choose a multiple of the longest
    /// computation between two collectives.
    pub timeout: Duration,
    /// How long messages are under way; `None`: as long as it takes. For experiments.
    pub message_delay: Option<MessageDelay>,
    /// Which ranks share a node, and by which algorithms their collectives run.
    pub routing: Routing,
    /// Where ranks are processes: [`run_job`] then runs the body as this process's rank. `None`: ranks are threads.
    pub world: Option<World>,
    /// A kind of collective that is carried out twice, which ends the job with an error: for tests of the count of what is
    /// moved.
    pub twice: Option<CollectiveKind>,
}

impl JobOptions {
    /// A job of `ranks` ranks with a timeout of five minutes, no delays, and collectives in shared memory.
    pub fn new(ranks: usize) -> Self {
        Self {
            ranks,
            timeout: Duration::from_secs(300),
            message_delay: None,
            routing: Routing::native(ranks),
            world: None,
            twice: None,
        }
    }
}

/// Runs `body` as every rank, each on a thread of its own with a communication thread beside it, and returns what
/// the ranks return, by rank.
///
/// Collectives that a rank has issued are executed also if it returns without waiting for them.
///
/// # Errors
/// The first failure: a rank's panic or error, a collective that does not fit, a rank that stays away longer than the
/// timeout. Every other rank's waits, and its `enter`, then return [`Aborted`] at once. A rank that computes without
/// calling either cannot be interrupted; this function returns when it does.
pub fn run_ranks<R: Send>(
    options: &JobOptions,
    body: impl Fn(&RankContext) -> Result<R, Box<dyn Error + Send + Sync>> + Sync,
) -> Result<Vec<R>, JobFailure> {
    let job = Arc::new(Job::new(options, 0, Threads::new(options.ranks)));
    let running = Running::default();
    let results: Vec<Mutex<Option<R>>> = (0..options.ranks).map(|_| Mutex::new(None)).collect();
    scope(|threads| {
        for (rank, result) in results.iter().enumerate() {
            let context = RankContext::new(rank, job.clone());
            if !start(threads, &running, context, &body, result) {
                break;
            }
        }
        running.watch(&job);
    });
    let results = results.into_iter().map(|result| result.into_inner().ok().flatten());
    let done = job.check().and_then(|()| (0..options.ranks).try_for_each(|rank| job.compare_rest(rank)));
    match done {
        Err(Aborted(failure)) => Err((*failure).clone()),
        Ok(()) => results.collect::<Option<Vec<R>>>().ok_or_else(|| (*job.abort_abandoned(0).0).clone()),
    }
}

/// As [`run_ranks`] where ranks are threads. Where they are processes ([`JobOptions::world`]), runs `body` once, as this
/// process's rank, and returns what all ranks returned, in every process.
///
/// Results travel in a compact binary form, `f64` bit for bit. It does not describe itself: types must not be flattened,
/// untagged, or leave fields out.
///
/// # Errors
/// As [`run_ranks`]; also a result that cannot be put in that form, a number of ranks that is not the number of processes,
/// and a rank that gives no sign of life. After a failure no further job runs: see [`World::abandon`].
pub fn run_job<R: Serialize + DeserializeOwned + Send>(
    options: &JobOptions,
    body: impl Fn(&RankContext) -> Result<R, Box<dyn Error + Send + Sync>> + Sync,
) -> Result<Vec<R>, JobFailure> {
    match &options.world {
        None => run_ranks(options, body),
        Some(world) => world.run(options, body),
    }
}

/// Starts a rank's two threads; false, and the job aborted, if the system refuses one.
fn start<'scope, R: Send>(
    threads: &'scope Scope<'scope, '_>,
    running: &'scope Running,
    context: RankContext,
    body: &'scope (impl Fn(&RankContext) -> Result<R, Box<dyn Error + Send + Sync>> + Sync),
    result: &'scope Mutex<Option<R>>,
) -> bool {
    let rank = context.rank;
    let job = context.job.clone();
    let queue = context.queue.clone();
    let job_of_rank = job.clone();
    running.add();
    let communication = Builder::new().name(format!("communication {rank}")).spawn_scoped(threads, {
        let queue = queue.clone();
        move || {
            if panics::catch(|| queue.serve()).is_err() {
                job.abort_abandoned(rank);
            }
            job.leave(rank);
            running.remove();
        }
    });
    if let Err(error) = communication {
        job_of_rank.abort(rank, Activity::START, Cause::Spawn(Arc::new(error)));
        running.remove();
        return false;
    }
    let spawned = Builder::new().name(format!("rank {rank}")).spawn_scoped(threads, move || {
        run_body(&context, body, result);
        context.queue.close();
    });
    if let Err(error) = spawned {
        // First the cause: a rank that is missed says only that it is not there.
        job_of_rank.abort(rank, Activity::START, Cause::Spawn(Arc::new(error)));
        queue.close();
        return false;
    }
    true
}

/// Runs the body as one rank; its failure aborts the job.
fn run_body<R>(
    context: &RankContext,
    body: &impl Fn(&RankContext) -> Result<R, Box<dyn Error + Send + Sync>>,
    result: &Mutex<Option<R>>,
) {
    let cause = match panics::catch(|| body(context)) {
        Ok(Ok(value)) => {
            *lock(result) = Some(value);
            return;
        }
        Ok(Err(error)) => Cause::Error(Arc::from(error)),
        Err(text) => Cause::Panic(text),
    };
    context.job.abort(context.rank, context.job.activity(context.rank), cause);
}

/// Runs the body as one rank of a job whose other ranks are elsewhere, with a communication thread beside it. Returns when
/// all that the rank issued is done.
///
/// # Errors
/// The job was aborted. The communication thread may then stay behind.
pub fn run_rank<R>(
    job: &Arc<Job>,
    rank: usize,
    body: impl Fn(&RankContext) -> Result<R, Box<dyn Error + Send + Sync>>,
) -> Result<R, Aborted> {
    let context = RankContext::new(rank, job.clone());
    let done = serve(job, rank, context.queue.clone())?;
    let result = Mutex::new(None);
    run_body(&context, &body, &result);
    context.queue.close();
    while let Err(RecvTimeoutError::Timeout) = done.recv_timeout(LOOK) {
        job.check()?;
    }
    job.check()?;
    job.compare_rest(rank)?;
    let result = lock(&result).take();
    result.ok_or_else(|| job.abort_abandoned(rank))
}

/// Starts a rank's communication thread; what it returns tells when all that was issued is done. After an abort it may
/// never be.
fn serve(job: &Arc<Job>, rank: usize, queue: Arc<Queue>) -> Result<Receiver<()>, Aborted> {
    let (done, told) = channel();
    let of_thread = job.clone();
    let spawned = Builder::new().name(format!("communication {rank}")).spawn(move || {
        if panics::catch(|| queue.serve()).is_err() {
            of_thread.abort_abandoned(rank);
        }
        of_thread.leave(rank);
        drop(done);
    });
    match spawned {
        Ok(_) => Ok(told),
        Err(error) => Err(job.abort(rank, Activity::START, Cause::Spawn(Arc::new(error)))),
    }
}

/// Counts the ranks that are not finished; the caller's thread waits for them and looks for stuck collectives.
#[derive(Default)]
struct Running {
    ranks: Mutex<usize>,
    changed: Condvar,
}

impl Running {
    fn add(&self) {
        *lock(&self.ranks) += 1;
    }

    fn remove(&self) {
        *lock(&self.ranks) -= 1;
        self.changed.notify_all();
    }

    fn watch(&self, job: &Job) {
        let period = (job.timeout / 8).clamp(Duration::from_millis(1), Duration::from_millis(250));
        let mut ranks = lock(&self.ranks);
        while *ranks > 0 {
            let (guard, waited) =
                self.changed.wait_timeout(ranks, period).unwrap_or_else(|poisoned| poisoned.into_inner());
            ranks = guard;
            if waited.timed_out() && job.check().is_ok() {
                drop(ranks);
                job.find_stuck();
                ranks = lock(&self.ranks);
            }
        }
    }
}
