//! The collectives and messages of a [`RankContext`].
//!
//! All are asynchronous, take ownership of their buffers and give them back from [`Pending::wait`]. A call is counted in
//! the ledger when it is issued. A call that is wrong by itself, or does not fit the other members' calls, aborts the job
//! with a [`CollectiveError`](crate::CollectiveError); the wait returns it. In a group of one, a collective completes at
//! once and counts nothing. `n` elements, `g` members.

use quadrille_spec::CollectiveKind;

use crate::call::Call;
use crate::context::RankContext;
use crate::element::{Element, Reduction};
use crate::group::Group;
use crate::mover::{Host, Memory, Payload};
use crate::pending::Pending;
use crate::transfer::Slices;

impl RankContext {
    /// Combines the members' buffers of `n` elements, in place, in an order that the algorithm and the group alone fix (in
    /// shared memory ascending by member index): every member gets the same bits.
    pub fn all_reduce<T: Element, B: Payload<T>>(&self, group: &Group, how: Reduction, buffer: B) -> Pending<B> {
        let call = Call { reduction: Some(how), ..self.call::<T>(CollectiveKind::AllReduce) };
        self.issue(group, call, buffer.mover(), buffer, |buffer| Slices::InPlace(buffer.memory()))
    }

    /// Sums the members' buffers of `n` elements into that of the member with index `root`, in an order that the
    /// algorithm and the group alone fix: in shared memory the bits that [`all_reduce`](Self::all_reduce) gives. The others'
    /// buffers stay as they are.
    pub fn reduce<T: Element, B: Payload<T>>(&self, group: &Group, root: usize, buffer: B) -> Pending<B> {
        let call = Call { reduction: Some(Reduction::Sum), peer: Some(root), ..self.call::<T>(CollectiveKind::Reduce) };
        self.issue(group, call, buffer.mover(), buffer, |buffer| Slices::InPlace(buffer.memory()))
    }

    /// Sums the members' inputs of `n` elements; member `i` gets chunk `i` of `n / g` elements in its output.
    pub fn reduce_scatter<T, I, O>(&self, group: &Group, input: I, output: O) -> Pending<(I, O)>
    where
        T: Element,
        I: Payload<T>,
        O: Payload<T>,
    {
        let call = Call { reduction: Some(Reduction::Sum), ..self.call::<T>(CollectiveKind::ReduceScatter) };
        self.issue(group, call, output.mover(), (input, output), apart::<T, I, O>)
    }

    /// As [`reduce_scatter`](Self::reduce_scatter), in one buffer of `n` elements: member `i`'s chunk `i` of it, at
    /// `i n / g`, becomes that of the sum; the rest stays as it is. The members may mix both forms.
    pub fn reduce_scatter_in_place<T: Element, B: Payload<T>>(&self, group: &Group, buffer: B) -> Pending<B> {
        let call = Call { reduction: Some(Reduction::Sum), ..self.call::<T>(CollectiveKind::ReduceScatter) };
        self.issue(group, call, buffer.mover(), buffer, |buffer| Slices::OutputWithin(buffer.memory()))
    }

    /// Concatenates the members' inputs of `n` elements, in index order, into everyone's output of `g n`.
    pub fn all_gather<T, I, O>(&self, group: &Group, input: I, output: O) -> Pending<(I, O)>
    where
        T: Element,
        I: Payload<T>,
        O: Payload<T>,
    {
        self.issue(group, self.call::<T>(CollectiveKind::AllGather), output.mover(), (input, output), apart::<T, I, O>)
    }

    /// As [`all_gather`](Self::all_gather), in one buffer of `g n` elements: member `i`'s input is its chunk `i`, at
    /// `i n`. Counts what a gather into this buffer counts. The members may mix both forms.
    pub fn all_gather_in_place<T: Element, B: Payload<T>>(&self, group: &Group, buffer: B) -> Pending<B> {
        let call = self.call::<T>(CollectiveKind::AllGather);
        self.issue(group, call, buffer.mover(), buffer, |buffer| Slices::InputWithin(buffer.memory()))
    }

    /// Copies the buffer of the member with index `root` into everyone's.
    pub fn broadcast<T: Element, B: Payload<T>>(&self, group: &Group, root: usize, buffer: B) -> Pending<B> {
        let call = Call { peer: Some(root), ..self.call::<T>(CollectiveKind::Broadcast) };
        self.issue(group, call, buffer.mover(), buffer, |buffer| Slices::InPlace(buffer.memory()))
    }

    /// Chunk `j` of member `i`'s input becomes chunk `i` of member `j`'s output; all buffers have `n` elements in `g`
    /// equal chunks.
    pub fn all_to_all<T, I, O>(&self, group: &Group, input: I, output: O) -> Pending<(I, O)>
    where
        T: Element,
        I: Payload<T>,
        O: Payload<T>,
    {
        self.issue(group, self.call::<T>(CollectiveKind::AllToAll), output.mover(), (input, output), apart::<T, I, O>)
    }

    /// Returns, after the wait, when every member has issued it.
    pub fn barrier(&self, group: &Group) -> Pending<()> {
        self.issue(group, self.call::<f32>(CollectiveKind::Barrier), Host, (), |()| {
            Slices::InPlace(Memory::of::<f32>(&mut []))
        })
    }

    /// Sends a message to the member with index `to`. Messages of one tag between two members arrive in the order of their
    /// sends, independent of other tags and of the group's collectives. The send is done when the buffer has been read:
    /// between threads after the receive has been issued, between processes possibly before. Tags are
    /// meant to be few, each is remembered until the job ends; they are less than [`transport::MESSAGE_TAGS`](crate::transport::MESSAGE_TAGS).
    pub fn send<T: Element, B: Payload<T>>(&self, group: &Group, to: usize, tag: u32, buffer: B) -> Pending<B> {
        let call = Call { peer: Some(to), tag: Some(tag), ..self.call::<T>(CollectiveKind::Send) };
        self.message::<T, B>(group, call, buffer)
    }

    /// Receives the next message with this tag, of exactly the buffer's length, from the member with index `from`.
    pub fn receive<T: Element, B: Payload<T>>(&self, group: &Group, from: usize, tag: u32, buffer: B) -> Pending<B> {
        let call = Call { peer: Some(from), tag: Some(tag), ..self.call::<T>(CollectiveKind::Receive) };
        self.message::<T, B>(group, call, buffer)
    }

    pub(crate) fn call<T: Element>(&self, operation: CollectiveKind) -> Call {
        Call::new::<T>(operation, self.job.activity(self.rank))
    }
}

/// The view of an input and an output.
pub(crate) fn apart<T: Element, I: Payload<T>, O: Payload<T>>((input, output): &mut (I, O)) -> Slices<'_> {
    Slices::Apart(input.memory(), output.memory())
}
