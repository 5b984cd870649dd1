//! Letters: a few words that carriers of two members tell each other beside the job's own messages.

use std::sync::Arc;

use quadrille_spec::CollectiveKind;

use crate::call::{Call, MESSAGE_TAGS};
use crate::error::Aborted;
use crate::group::Group;
use crate::job::Job;
use crate::mover::Host;
use crate::parcel::Side;
use crate::pending::{Pending, pending};
use crate::transport::Occasion;

impl Job {
    /// Sends words to another member; returns at once. No ledger counts them. Tags are those of no message of
    /// the group: not less than [`MESSAGE_TAGS`].
    pub fn send_letter(self: &Arc<Self>, group: &Group, to: usize, tag: u32, words: &[u64]) {
        let numbers: Vec<f64> = words.iter().map(|word| f64::from_bits(*word)).collect();
        self.traffic(group.rank()).sends_message(size_of_val(words) as u64);
        drop(self.letter(group, CollectiveKind::Send, to, tag, numbers));
    }

    /// Receives the words of the next letter with this tag from another member. Waiting for it is waiting in the call for which
    /// it is: that is what is watched and told of.
    ///
    /// # Errors
    /// The job was aborted: also by this, if other ranks do not come to the call within its timeout.
    pub fn receive_letter(
        self: &Arc<Self>,
        at: Occasion<'_>,
        from: usize,
        tag: u32,
        words: usize,
    ) -> Result<Vec<u64>, Aborted> {
        let letter = self.letter(at.group, CollectiveKind::Receive, from, tag, vec![0.0; words]);
        self.watch(at, &mut || Ok(letter.is_done()))?;
        Ok(letter.wait()?.into_iter().map(f64::to_bits).collect())
    }

    fn letter(
        self: &Arc<Self>,
        group: &Group,
        operation: CollectiveKind,
        peer: usize,
        tag: u32,
        numbers: Vec<f64>,
    ) -> Pending<Vec<f64>> {
        assert!(tag >= MESSAGE_TAGS, "tag {tag} is one of messages");
        let rank = group.rank();
        let length = numbers.len();
        let (pending, completion) = pending(self, rank, None);
        let call = Call::new::<f64>(operation, self.activity(rank));
        let call = Call { peer: Some(peer), tag: Some(tag), input: length, output: length, ..call };
        self.transport.message(self, group, call, Side::<f64, _, Host>::boxed(numbers, completion, None));
        pending
    }
}
