//! What was really moved for a rank's calls, held against what they come to.
//!
//! The transport counts bytes where it copies them or hands them over, so that it shares nothing with what says how many
//! there are to be. What counts as moved is chosen such that both are equal as integers:
//!
//! | | counted | is to be |
//! |---|---|---|
//! | an algorithm between threads | what receivers have read of the rank's slices | what the rank's plan sends |
//! | an algorithm between processes | what was handed to the library's sends | what the rank's plan sends |
//! | native between threads | what kernels stored in the member's part | [`stored`](crate::transfer::stored) |
//! | native between processes | what the rank handed in for the library's collective | the call's input |
//! | between devices of processes | what was handed to their library, sent or for its collective | as between processes |
//! | messages | of the sender: what was copied, or handed to the library | the sent buffers |
//!
//! A collective is compared when the rank's part of it is done, messages when the job is. What a comparison misses, since it
//! is moved later, is found by the next one, and by that at the end of the job.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{Aborted, CollectiveError};
use crate::job::Job;
use crate::transport::Occasion;

/// Bytes of one rank. Where another thread counts, the transport orders that before the comparison: nobody leaves a
/// collective, or the job, before all of its part is done.
#[derive(Default)]
pub struct Traffic {
    /// Moved for collectives since the last comparison.
    collectives: AtomicU64,
    /// Of the messages that the rank sends.
    messages: AtomicU64,
    /// Moved for them.
    messages_moved: AtomicU64,
}

impl Traffic {
    /// Bytes have been moved for the collective that the rank takes part in.
    pub fn moved(&self, bytes: usize) {
        self.collectives.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// The rank sends a message of so many bytes.
    pub(crate) fn sends_message(&self, bytes: u64) {
        self.messages.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Bytes of a message of the rank have been moved.
    pub fn moved_message(&self, bytes: usize) {
        self.messages_moved.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

impl Job {
    /// Aborts if other than so many bytes were moved for the collective that the member has just carried out.
    pub(crate) fn compare_collective(&self, at: &Occasion<'_>, planned: u64) -> Result<(), Aborted> {
        let rank = at.group.rank();
        let moved = self.traffic(rank).collectives.swap(0, Ordering::Relaxed);
        let what = || format!("{} #{} on group {:?}", at.call, at.sequence, at.group.shared.name);
        self.compare(rank, what, planned, moved)
    }

    /// As [`compare_collective`](Self::compare_collective), for all else that a rank has moved in a job that is done.
    pub(crate) fn compare_rest(&self, rank: usize) -> Result<(), Aborted> {
        let Traffic { collectives, messages, messages_moved } = self.traffic(rank);
        let [beyond, planned, moved] =
            [collectives, messages, messages_moved].map(|bytes| bytes.load(Ordering::Relaxed));
        self.compare(rank, || "collectives after they were done".to_owned(), 0, beyond)?;
        self.compare(rank, || "messages".to_owned(), planned, moved)
    }

    fn compare(&self, rank: usize, what: impl Fn() -> String, planned: u64, moved: u64) -> Result<(), Aborted> {
        if planned == moved {
            return Ok(());
        }
        let error = CollectiveError::Moved { rank, what: what(), planned, moved };
        Err(self.abort_collective(rank, self.activity(rank), error))
    }
}

#[cfg(test)]
mod tests {
    use crate::context::RankContext;
    use crate::error::JobFailure;
    use crate::run::{JobOptions, run_ranks};

    /// Two ranks that pass a message round and add numbers; then `fault`.
    fn run(fault: fn(&RankContext)) -> Result<Vec<()>, JobFailure> {
        run_ranks(&JobOptions::new(2), |context| {
            let world = context.group("world", &[0, 1])?;
            let rank = context.rank();
            let sent = context.send(&world, 1 - rank, 0, vec![1f32; 5]);
            context.receive(&world, 1 - rank, 0, vec![0f32; 5]).wait()?;
            sent.wait()?;
            context.all_reduce(&world, crate::Reduction::Sum, vec![1f32; 9]).wait()?;
            fault(context);
            Ok(())
        })
    }

    #[test]
    fn bytes_after_the_last_comparison_end_the_job() {
        run(|_| {}).expect("nothing is wrong");
        let error = |fault| run(fault).expect_err("more was moved").to_string();
        let of_messages = error(|context| context.job.traffic(1).moved_message(2 * context.rank()));
        assert!(of_messages.contains("rank 1: 22 bytes were moved for messages where 20 were to be"), "{of_messages}");
        let late = error(|context| context.job.traffic(1).moved(3 * context.rank()));
        assert!(late.contains("rank 1: 3 bytes were moved for collectives after they were done where 0"), "{late}");
    }
}
