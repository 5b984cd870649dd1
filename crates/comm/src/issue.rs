//! What happens when a rank issues a call: it is checked and counted on the rank's own thread, from the buffers that it
//! moves. Then a collective goes into the rank's queue; one side of a message goes to the group's mailbox.

use std::sync::atomic::Ordering;

use quadrille_spec::Route;

use crate::algorithm::{self, Plan};
use crate::call::Call;
use crate::chunks::Chunks;
use crate::context::RankContext;
use crate::element::Element;
use crate::error::{Aborted, CollectiveError};
use crate::group::Group;
use crate::job::lock;
use crate::ledger::record;
use crate::mover::{Mover, Payload};
use crate::parcel::Side;
use crate::pending::{Pending, pending};
use crate::transfer::Slices;
use crate::transport::Occasion;
use crate::wire;

impl RankContext {
    /// Queues a collective on the buffers that `view` shows, whose memory is the mover's.
    pub(crate) fn issue<S: Send + 'static>(
        &self,
        group: &Group,
        call: Call,
        mover: impl Mover,
        buffers: S,
        view: fn(&mut S) -> Slices<'_>,
    ) -> Pending<S> {
        self.issue_chunks(group, call, None, mover, buffers, view)
    }

    /// As [`issue`](Self::issue), on chunks of these lengths where they differ.
    pub(crate) fn issue_chunks<S: Send + 'static>(
        &self,
        group: &Group,
        call: Call,
        chunks: Option<Chunks<'_>>,
        mover: impl Mover,
        mut buffers: S,
        view: fn(&mut S) -> Slices<'_>,
    ) -> Pending<S> {
        let (pending, completion) = pending(&self.job, self.rank, Some(&self.queue));
        let sequence = group.shared.issued[group.index()].fetch_add(1, Ordering::Relaxed) + 1;
        let counted = self.job.catch(self.rank, || {
            let slices = view(&mut buffers);
            assert_eq!(slices.kind(), call.kind, "a payload has elements of its type");
            let (input, output) = slices.lengths(group.size());
            let call = self.check(group, Call { input, output, ..call }, chunks)?;
            let plan = self.plan(group, &call, chunks);
            let (sent, moved) = match &plan {
                Some(plan) => (plan.elements_sent(), call.bytes(plan.elements_sent())),
                None => (wire::of(group, &call), self.job.carrier(&mover).native_bytes(group, &call, &slices)),
            };
            self.count(group, &call, sent);
            Ok((call, plan, moved))
        });
        let Ok((call, plan, moved)) = counted else { return pending }; // dropping the completion reports the abort
        if group.size() == 1 {
            let outcome = self.job.catch(self.rank, || {
                copy_own(&mover, view(&mut buffers));
                self.job.check()
            });
            completion.complete(outcome.map(|()| buffers));
            return pending;
        }
        let mut span = self.spans.open(&group.shared.name, &call);
        let rank = self.rank;
        let job = self.job.clone();
        let group = group.clone();
        let scratch = self.scratch.clone();
        self.queue.push(Box::new(move || {
            if let Some(span) = &mut span {
                span.begin();
            }
            let outcome = job.catch(rank, || {
                job.set_busy_with(rank, Some((group.shared_name(), call)));
                mover.begin();
                let at = Occasion { group: &group, call: &call, sequence, mover: &mover };
                for _ in 0..job.times(call.operation) {
                    let slices = view(&mut buffers);
                    match &plan {
                        None => job.carrier(&mover).native(&job, at, slices)?,
                        Some(plan) => algorithm::run(&job, at, plan, slices, &mut lock(&scratch))?,
                    }
                }
                job.compare_collective(&at, moved)?;
                job.set_busy_with(rank, None);
                Ok(())
            });
            if let (Ok(()), Some(span)) = (&outcome, span) {
                span.end(None);
            }
            completion.complete(outcome.map(|()| buffers));
        }));
        pending
    }

    /// Posts one side of a message. This never waits for the other side, nor for the rank's collectives.
    pub(crate) fn message<T: Element, P: Payload<T>>(&self, group: &Group, call: Call, mut payload: P) -> Pending<P> {
        let (pending, completion) = pending(&self.job, self.rank, None);
        let counted = self.job.catch(self.rank, || {
            let memory = payload.memory();
            assert_eq!(Some(memory.kind()), call.kind, "a payload has elements of its type");
            let length = memory.elements();
            let call = self.check(group, Call { input: length, output: length, ..call }, None)?;
            let sent = wire::of(group, &call);
            self.count(group, &call, sent);
            self.job.traffic(self.rank).sends_message(call.bytes(sent));
            Ok(call)
        });
        if let Ok(call) = counted {
            let span = self.spans.open(&group.shared.name, &call);
            let parcel = Side::<T, P, P::Mover>::boxed(payload, completion, span);
            self.job.carrier(parcel.mover()).message(&self.job, group, call, parcel);
        } // otherwise dropping the completion reports the abort
        pending
    }

    /// What this rank does for a collective; `None` where the transport has its own way.
    fn plan(&self, group: &Group, call: &Call, chunks: Option<Chunks<'_>>) -> Option<Plan> {
        if let Some(chunks) = chunks {
            // The same on every route: transports know equal chunks only.
            return Some(algorithm::plan_chunks(call, chunks, group.size(), group.index()));
        }
        match self.job.routing.route(call.operation, call.payload_bytes(), &group.shared.formation) {
            Route::Native => None,
            route => Some(algorithm::plan(call, &route, group.size(), group.index())),
        }
    }

    /// Enters a call that sends so many elements in the ledger.
    fn count(&self, group: &Group, call: &Call, sent: usize) {
        if group.size() > 1 {
            record(&mut lock(&self.ledger), group, call, sent);
        }
    }

    /// The call, if it is valid by itself.
    fn check(&self, group: &Group, call: Call, chunks: Option<Chunks<'_>>) -> Result<Call, Aborted> {
        let rank = self.rank;
        let ranks = group.size();
        let index = group.index();
        let rule = match (group.rank(), chunks) {
            (owner, _) if owner != rank => {
                Some(format!("this is the handle of rank {owner}; a rank asks for its own by `RankContext::group`"))
            }
            (_, None) => call.broken_rule(ranks, index),
            (_, Some(chunks)) => chunks.broken_rule(&call, ranks, index),
        };
        if let Some(rule) = rule {
            let group = group.shared_name();
            let call = Box::new(call);
            let activity = call.activity;
            let error = CollectiveError::Arguments { rank, group, ranks, call, rule };
            return Err(self.job.abort_collective(rank, activity, error));
        }
        Ok(call)
    }
}

/// A collective in a group of one.
fn copy_own(mover: &impl Mover, slices: Slices<'_>) {
    if let Slices::Apart(input, output) = slices {
        mover.begin();
        assert_eq!(
            (input.kind(), input.elements()),
            (output.kind(), output.elements()),
            "a call describes its own buffers"
        );
        // SAFETY: two buffers of one length and kind that this function has to itself.
        unsafe { mover.copy(input.kind(), input.address(), output.address(), input.elements(), false) };
        mover.fence();
    }
}
