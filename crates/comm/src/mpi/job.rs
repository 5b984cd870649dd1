//! Running a job as one of its processes.

use std::error::Error;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::thread::Builder;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::activity::Activity;
use crate::context::RankContext;
use crate::error::{Aborted, Cause, JobFailure};
use crate::job::{Job, lock};
use crate::mpi::port::Port;
use crate::panics;
use crate::queue::Queue;
use crate::run::{JobOptions, run_body};

/// How often it is looked whether the job is aborted, while its last communication is waited for.
const LOOK: Duration = Duration::from_millis(10);

impl Port {
    /// See [`run_job`](crate::run_job).
    pub(crate) fn run<R: Serialize + DeserializeOwned + Send>(
        &self,
        options: &JobOptions,
        body: impl Fn(&RankContext) -> Result<R, Box<dyn Error + Send + Sync>> + Sync,
    ) -> Result<Vec<R>, JobFailure> {
        let job = Arc::new(Job::new(options));
        self.set_job(Some(job.clone()));
        let outcome = self.run_registered(options, &job, body);
        // After a failure the job stays: what others tell about it still concerns it.
        outcome.inspect(|_| self.set_job(None)).map_err(|Aborted(failure)| (*failure).clone())
    }

    fn run_registered<R: Serialize + DeserializeOwned + Send>(
        &self,
        options: &JobOptions,
        job: &Arc<Job>,
        body: impl Fn(&RankContext) -> Result<R, Box<dyn Error + Send + Sync>> + Sync,
    ) -> Result<Vec<R>, Aborted> {
        if let Some(failure) = self.alarm.failure() {
            job.abort_told(failure);
        }
        job.check()?;
        if let Some(rule) = self.broken_rule(options) {
            return Err(job.abort(self.rank, Activity::BETWEEN_JOBS, Cause::Error(Arc::from(rule))));
        }
        let context = RankContext::new(self.rank, job.clone());
        let queue = context.queue.clone();
        let done = serve(job, self.rank, queue.clone())?;
        let result = Mutex::new(None);
        run_body(&context, &body, &result);
        queue.close();
        while let Err(RecvTimeoutError::Timeout) = done.recv_timeout(LOOK) {
            job.check()?;
        }
        job.check()?;
        job.compare_rest(self.rank)?;
        let own = lock(&result).take();
        let fail = |text: String| {
            let error: Box<dyn Error + Send + Sync> = text.into();
            job.abort(self.rank, job.activity(self.rank), Cause::Error(Arc::from(error)))
        };
        let own = postcard::to_stdvec(&own);
        let own = own.map_err(|error| fail(format!("the rank's result could not be written: {error}")))?;
        let all = self.gather(own).map_err(|error| match error {
            Some(text) => fail(text),
            None => self.alarm.failure().unwrap_or_else(|| job.abort_abandoned(self.rank)),
        })?;
        {
            let mut desk = self.enter();
            let desk = &mut *desk;
            desk.messages.retire(&mut desk.library, job.number());
        }
        let read = |bytes: Vec<u8>| {
            postcard::from_bytes::<Option<R>>(&bytes)
                .map_err(|error| fail(format!("a rank's result could not be read: {error}")))
        };
        let all = all.into_iter().map(read).collect::<Result<Option<Vec<R>>, Aborted>>()?;
        job.check()?;
        all.ok_or_else(|| job.abort_abandoned(self.rank))
    }

    /// What a job over processes must not ask for.
    fn broken_rule(&self, options: &JobOptions) -> Option<Box<dyn Error + Send + Sync>> {
        let (ranks, processes) = (options.ranks, self.size());
        if self.is_finished() {
            return Some("this process has left the others; no further job can run".into());
        }
        if ranks != processes {
            let rule = format!(
                "the job has {ranks} ranks, but {processes} processes were started; start {ranks}, or change the layout"
            );
            return Some(rule.into());
        }
        if options.message_delay.is_some() {
            return Some("delays of messages are for ranks that are threads; leave `message_delay` out".into());
        }
        None
    }
}

/// Starts the rank's communication thread; what it returns tells when all that was issued is done. After an abort it may
/// never be: the thread then stays behind.
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
