//! Collectives on chunks of different lengths, which tables give: what each member has, where nothing makes them equal.
//!
//! They are rings, and pairwise exchanges for the all-to-all, on every route and transport: sums are taken in one order, and
//! what a member sends follows from the table alone. `g` members; a table has a length for each, any of them 0.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

use quadrille_spec::CollectiveKind;

use crate::call::Call;
use crate::collectives::apart;
use crate::context::RankContext;
use crate::element::{Element, Reduction};
use crate::group::Group;
use crate::mover::Payload;
use crate::pending::Pending;

/// Elements of the chunks of one call, by member. All members of a gather or scatter have the same table, which is both.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Chunks<'a> {
    /// Of those that the member sends to each.
    pub(crate) sent: &'a [usize],
    /// Of those that it receives from each.
    pub(crate) received: &'a [usize],
}

impl RankContext {
    /// Concatenates the members' inputs, in index order, into everyone's output: member `i`'s input has `lengths[i]`
    /// elements, the output the sum of them. All members give the same table. Counted on the wire: all but the chunk of the
    /// member after this one.
    pub fn all_gather_chunks<T, I, O>(&self, group: &Group, lengths: &[usize], input: I, output: O) -> Pending<(I, O)>
    where
        T: Element,
        I: Payload<T>,
        O: Payload<T>,
    {
        let call = Call { chunks: Some(digest(lengths)), ..self.call::<T>(CollectiveKind::AllGather) };
        let chunks = Some(Chunks { sent: lengths, received: lengths });
        self.issue_chunks(group, call, chunks, output.mover(), (input, output), apart::<T, I, O>)
    }

    /// Sums the members' inputs, which have the sum of `lengths` elements; member `i` gets chunk `i`, of `lengths[i]`
    /// elements, in its output. Chunk `i` is summed from member `i + 1` on, round to member `i`. All members give the same
    /// table. Counted on the wire: all but the own chunk.
    pub fn reduce_scatter_chunks<T, I, O>(
        &self,
        group: &Group,
        lengths: &[usize],
        input: I,
        output: O,
    ) -> Pending<(I, O)>
    where
        T: Element,
        I: Payload<T>,
        O: Payload<T>,
    {
        let reduction = Some(Reduction::Sum);
        let digest = Some(digest(lengths));
        let call = Call { reduction, chunks: digest, ..self.call::<T>(CollectiveKind::ReduceScatter) };
        let chunks = Some(Chunks { sent: lengths, received: lengths });
        self.issue_chunks(group, call, chunks, output.mover(), (input, output), apart::<T, I, O>)
    }

    /// Chunk `j` of member `i`'s input becomes chunk `i` of member `j`'s output. The chunk for member `j` has `sent[j]`
    /// elements and follows that for `j - 1`; the chunk from member `j` has `received[j]` and follows that from `j - 1`.
    /// Members have tables of their own: what `i` sends to `j` must be what `j` receives from `i`. Counted: as payload the
    /// input, on the wire all of it but the own chunk.
    pub fn all_to_all_chunks<T, I, O>(
        &self,
        group: &Group,
        sent: &[usize],
        received: &[usize],
        input: I,
        output: O,
    ) -> Pending<(I, O)>
    where
        T: Element,
        I: Payload<T>,
        O: Payload<T>,
    {
        let call = Call { chunks: Some(0), ..self.call::<T>(CollectiveKind::AllToAll) };
        let chunks = Some(Chunks { sent, received });
        self.issue_chunks(group, call, chunks, output.mover(), (input, output), apart::<T, I, O>)
    }
}

impl Chunks<'_> {
    /// The rule that a call with these chunks breaks by itself in a group of `ranks`, if any; `index` is the caller's.
    pub(crate) fn broken_rule(&self, call: &Call, ranks: usize, index: usize) -> Option<String> {
        let tables = [self.sent, self.received];
        if let Some(table) = tables.iter().find(|table| table.len() != ranks) {
            return Some(format!("a table of {} chunks in a group of {ranks}; one for each member", table.len()));
        }
        let sum = |table: &[usize]| table.iter().try_fold(0usize, |sum, length| sum.checked_add(*length));
        let [Some(sent), Some(received)] = tables.map(sum) else {
            return Some("the chunks have more elements than can be counted".into());
        };
        let (input, output) = match call.operation {
            CollectiveKind::AllGather => (self.sent[index], received),
            CollectiveKind::ReduceScatter => (sent, self.received[index]),
            _ => (sent, received),
        };
        if call.input != input {
            return Some(format!("by the table the input must have {input} elements"));
        }
        if call.output != output {
            return Some(format!("by the table the output must have {output} elements"));
        }
        // These are one, but of an all-to-all.
        let to_itself = self.sent[index];
        let from_itself = self.received[index];
        (to_itself != from_itself)
            .then(|| format!("it sends itself {to_itself} elements, but receives {from_itself} from itself"))
    }
}

/// A table as a number: the same in every process, and not 0.
fn digest(lengths: &[usize]) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(lengths).max(1)
}
