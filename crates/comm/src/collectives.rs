//! The collectives of a [`RankContext`].
//!
//! All are asynchronous, take ownership of their buffers and give them back from [`Pending::wait`]. A call that is wrong
//! by itself, or does not fit the other members' calls, aborts the job with a
//! [`CollectiveError`](crate::CollectiveError); the wait returns it. In a group of one, a collective completes at once
//! and counts nothing. `n` elements, `g` members.

use std::mem::size_of;
use std::sync::atomic::Ordering;

use quadrille_spec::CollectiveKind;

use crate::call::Call;
use crate::context::RankContext;
use crate::element::{Buffer, Element, Reduction};
use crate::error::{Aborted, Cause, CollectiveError};
use crate::group::Group;
use crate::job::{Job, lock};
use crate::ledger::record;
use crate::panics;
use crate::pending::{Pending, pending};
use crate::transfer::{Slices, exchange};

impl RankContext {
    /// Combines the members' buffers of `n` elements, in place, in ascending order of the member index: every member
    /// gets the same bits.
    pub fn all_reduce<T: Element, B: Buffer<T>>(&self, group: &Group, how: Reduction, buffer: B) -> Pending<B> {
        let call = Call { reduction: Some(how), ..self.call::<T>(CollectiveKind::AllReduce) };
        self.issue(group, call, buffer, |buffer| Slices::InPlace(buffer.as_mut()))
    }

    /// Sums the members' inputs of `n` elements; member `i` gets chunk `i` of `n / g` elements in its output.
    pub fn reduce_scatter<T, I, O>(&self, group: &Group, input: I, output: O) -> Pending<(I, O)>
    where
        T: Element,
        I: Buffer<T>,
        O: Buffer<T>,
    {
        let call = Call { reduction: Some(Reduction::Sum), ..self.call::<T>(CollectiveKind::ReduceScatter) };
        self.issue(group, call, (input, output), apart)
    }

    /// Concatenates the members' inputs of `n` elements, in index order, into everyone's output of `g n`.
    pub fn all_gather<T, I, O>(&self, group: &Group, input: I, output: O) -> Pending<(I, O)>
    where
        T: Element,
        I: Buffer<T>,
        O: Buffer<T>,
    {
        self.issue(group, self.call::<T>(CollectiveKind::AllGather), (input, output), apart)
    }

    /// Copies the buffer of the member with index `root` into everyone's.
    pub fn broadcast<T: Element, B: Buffer<T>>(&self, group: &Group, root: usize, buffer: B) -> Pending<B> {
        let call = Call { peer: Some(root), ..self.call::<T>(CollectiveKind::Broadcast) };
        self.issue(group, call, buffer, |buffer| Slices::InPlace(buffer.as_mut()))
    }

    /// Chunk `j` of member `i`'s input becomes chunk `i` of member `j`'s output; all buffers have `n` elements in `g`
    /// equal chunks.
    pub fn all_to_all<T, I, O>(&self, group: &Group, input: I, output: O) -> Pending<(I, O)>
    where
        T: Element,
        I: Buffer<T>,
        O: Buffer<T>,
    {
        self.issue(group, self.call::<T>(CollectiveKind::AllToAll), (input, output), apart)
    }

    /// Returns, after the wait, when every member has issued it.
    pub fn barrier(&self, group: &Group) -> Pending<()> {
        self.issue(group, self.call::<f32>(CollectiveKind::Barrier), (), |()| Slices::<f32>::InPlace(&mut []))
    }

    /// Sends a message to the member with index `to`. Messages between two members arrive in the order of their sends,
    /// independent of the group's collectives.
    pub fn send<T: Element, B: Buffer<T>>(&self, group: &Group, to: usize, buffer: B) -> Pending<B> {
        self.message(group, Call { peer: Some(to), ..self.call::<T>(CollectiveKind::Send) }, buffer)
    }

    /// Receives a message of exactly the buffer's length from the member with index `from`.
    pub fn receive<T: Element, B: Buffer<T>>(&self, group: &Group, from: usize, buffer: B) -> Pending<B> {
        self.message(group, Call { peer: Some(from), ..self.call::<T>(CollectiveKind::Receive) }, buffer)
    }

    fn call<T: Element>(&self, operation: CollectiveKind) -> Call {
        Call::new::<T>(operation, self.job.activity(self.rank))
    }

    /// Queues a collective on the buffers that `view` shows.
    fn issue<T: Element, S: Send + 'static>(
        &self,
        group: &Group,
        call: Call,
        mut buffers: S,
        view: fn(&mut S) -> Slices<'_, T>,
    ) -> Pending<S> {
        let (pending, completion) = pending(&self.job, self.rank, &self.queue);
        let (rank, job, ledger, group) = (self.rank, self.job.clone(), self.ledger.clone(), group.clone());
        let alone = group.size() == 1;
        group.shared.issued[group.index()].fetch_add(1, Ordering::Relaxed);
        let operation = move || {
            let outcome = caught(&job, rank, || {
                let slices = view(&mut buffers);
                let (input, output) = slices.lengths();
                let call = checked(&job, rank, &group, Call { input, output, ..call })?;
                if alone {
                    copy_own(slices);
                    return job.check();
                }
                job.set_busy_with(rank, Some((group.shared_name(), call)));
                exchange(&job, &group, call, slices)?;
                job.set_busy_with(rank, None);
                record(&mut lock(&ledger), &group, &call, size_of::<T>());
                Ok(())
            });
            completion.complete(outcome.map(|()| buffers));
        };
        if alone {
            operation();
        } else {
            self.queue.push(Box::new(operation));
        }
        pending
    }

    /// Queues one side of a message; it never blocks the queue.
    fn message<T: Element, B: Buffer<T>>(&self, group: &Group, call: Call, buffer: B) -> Pending<B> {
        let (pending, completion) = pending(&self.job, self.rank, &self.queue);
        let (rank, job, ledger, group) = (self.rank, self.job.clone(), self.ledger.clone(), group.clone());
        self.queue.push(Box::new(move || {
            let _ = caught(&job, rank, || {
                let length = buffer.as_ref().len();
                let call = checked(&job, rank, &group, Call { input: length, output: length, ..call })?;
                record(&mut lock(&ledger), &group, &call, size_of::<T>());
                group.shared.mailbox.post(&job, &group, call, buffer, completion);
                Ok(())
            }); // an abort drops the completion, which reports it
        }));
        pending
    }
}

/// Runs `body`; a panic in it (of a buffer's or an element's own code) aborts the job.
fn caught(job: &Job, rank: usize, body: impl FnOnce() -> Result<(), Aborted>) -> Result<(), Aborted> {
    let outcome = panics::catch(body);
    outcome.unwrap_or_else(|text| Err(job.abort(rank, job.activity(rank), Cause::Panic(text))))
}

/// The call, if it is valid by itself.
fn checked(job: &Job, rank: usize, group: &Group, call: Call) -> Result<Call, Aborted> {
    let rule = if group.rank() == rank {
        call.broken_rule(group.size(), group.index())
    } else {
        Some(format!("this is the handle of rank {}; a rank asks for its own by `RankContext::group`", group.rank()))
    };
    let Some(rule) = rule else { return Ok(call) };
    let (name, ranks) = (group.shared_name(), group.size());
    let error = CollectiveError::Arguments { rank, group: name, ranks, call: Box::new(call), rule };
    Err(job.abort_collective(rank, call.activity, error))
}

fn apart<T: Element, I: Buffer<T>, O: Buffer<T>>((input, output): &mut (I, O)) -> Slices<'_, T> {
    Slices::Apart((*input).as_ref(), (*output).as_mut())
}

/// A collective in a group of one.
fn copy_own<T: Element>(slices: Slices<'_, T>) {
    if let Slices::Apart(input, output) = slices {
        output.copy_from_slice(input);
    }
}
