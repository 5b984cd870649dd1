//! Running a job as one of its processes.

use std::error::Error;
use std::sync::Arc;

use quadrille_comm::transport::{Body, Job, run_rank};
use quadrille_comm::{Aborted, Activity, Cause, JobFailure, JobOptions};

use crate::mpi::link::Link;
use crate::mpi::port::Port;

impl Port {
    /// See [`run_job`](quadrille_comm::run_job); over a link to this port.
    pub(super) fn run(&self, options: &JobOptions, link: Link, body: Body<'_>) -> Result<Vec<Vec<u8>>, JobFailure> {
        let job = Arc::new(Job::new(options, self.next_job(), link));
        self.set_job(Some(job.clone()));
        let outcome = self.run_registered(options, &job, body);
        // After a failure the job stays: what others tell about it still concerns it.
        outcome.inspect(|_| self.set_job(None)).map_err(|Aborted(failure)| (*failure).clone())
    }

    fn run_registered(&self, options: &JobOptions, job: &Arc<Job>, body: Body<'_>) -> Result<Vec<Vec<u8>>, Aborted> {
        if let Some(failure) = self.alarm.failure() {
            job.abort_told(failure);
        }
        job.check()?;
        if let Some(rule) = self.broken_rule(options) {
            return Err(job.abort(self.rank, Activity::BETWEEN_JOBS, Cause::Error(Arc::from(rule))));
        }
        let own = run_rank(job, self.rank, body)?;
        let all = self.gather(own).map_err(|error| match error {
            Some(text) => {
                let error: Box<dyn Error + Send + Sync> = text.into();
                job.abort(self.rank, job.activity(self.rank), Cause::Error(Arc::from(error)))
            }
            None => self.alarm.failure().unwrap_or_else(|| job.abort_abandoned(self.rank)),
        })?;
        {
            let mut desk = self.enter();
            let desk = &mut *desk;
            desk.messages.retire(&mut desk.library, job.number());
        }
        job.check()?;
        Ok(all)
    }

    /// What a job over processes must not ask for.
    fn broken_rule(&self, options: &JobOptions) -> Option<Box<dyn Error + Send + Sync>> {
        let ranks = options.ranks;
        let processes = self.size();
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
