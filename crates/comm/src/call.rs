//! One rank's call of a collective: what must agree between the members, and what each must respect.

use std::any::type_name;
use std::fmt;

use quadrille_spec::CollectiveKind;

use crate::activity::Activity;
use crate::element::{Element, ElementKind, Reduction};

/// Tags of messages are less: those from here on are left to the letters of carriers.
pub const MESSAGE_TAGS: u32 = u32::MAX / 4;

/// A collective as one rank called it; equal calls can be executed together.
#[derive(Debug, Clone, Copy)]
pub struct Call {
    /// The kind of communication.
    pub operation: CollectiveKind,
    /// How elements are combined; `None` where nothing is reduced.
    pub reduction: Option<Reduction>,
    /// The other side: the root of a broadcast or reduce, a send's receiver, a receive's sender (member indices).
    pub peer: Option<usize>,
    /// A message's tag.
    pub tag: Option<u32>,
    /// Name of the element type.
    pub element: &'static str,
    /// Elements of the input; in place, of the buffer or the chunk of it that is the input.
    pub input: usize,
    /// Elements of the output; in place, of the buffer or the chunk of it that is the output.
    pub output: usize,
    /// Where chunks have different lengths: what all members' tables have in common, as a number. Of an all-to-all, whose
    /// members have tables of their own, 0.
    pub chunks: Option<u64>,
    /// What the rank was doing when it issued the call.
    pub activity: Activity,
    /// What elements are. Of a call of another process, which is known by its element's name, `None`.
    pub kind: Option<ElementKind>,
    /// Bytes of an element.
    pub element_bytes: usize,
}

impl Call {
    /// A call without buffers, of elements of this type.
    pub fn new<T: Element>(operation: CollectiveKind, activity: Activity) -> Self {
        Self {
            operation,
            reduction: None,
            peer: None,
            tag: None,
            element: type_name::<T>(),
            input: 0,
            output: 0,
            chunks: None,
            activity,
            kind: Some(T::KIND),
            element_bytes: T::KIND.bytes(),
        }
    }

    /// Elements of the full logical buffer on this rank.
    pub(crate) fn payload_elements(&self) -> usize {
        match self.operation {
            CollectiveKind::AllGather => self.output,
            _ => self.input,
        }
    }

    /// Bytes of the full logical buffer on this rank.
    pub(crate) fn payload_bytes(&self) -> u64 {
        self.bytes(self.payload_elements())
    }

    /// Bytes of so many elements.
    pub fn bytes(&self, elements: usize) -> u64 {
        (elements * self.element_bytes) as u64
    }

    /// Whether two members' calls can be executed together.
    pub(crate) fn agrees_with(&self, other: &Call) -> bool {
        let key = |c: &Call| (c.operation, c.reduction, c.peer, c.kind, c.common_lengths(), c.chunks);
        key(self) == key(other)
    }

    /// As `agrees_with`, for a call of another process, whose element type is known by name.
    pub fn looks_like(&self, other: &Call) -> bool {
        let key = |c: &Call| (c.operation, c.reduction, c.peer, c.element, c.common_lengths(), c.chunks);
        key(self) == key(other)
    }

    /// Elements of the input and of the output, which all members have in common; `None` where chunks have different
    /// lengths, and `chunks` says what they have in common.
    pub fn common_lengths(&self) -> Option<(usize, usize)> {
        self.chunks.is_none().then_some((self.input, self.output))
    }

    /// The rule that this call breaks by itself in a group of `ranks`, if any; `index` is the caller's. Calls on chunks of
    /// different lengths have [rules of their own](crate::chunks::Chunks::broken_rule).
    pub(crate) fn broken_rule(&self, ranks: usize, index: usize) -> Option<String> {
        let input = self.input;
        let output = self.output;
        let message = matches!(self.operation, CollectiveKind::Send | CollectiveKind::Receive);
        match self.operation {
            _ if self.peer.is_some_and(|peer| peer >= ranks) => {
                Some(format!("the other side must be a member index below {ranks}"))
            }
            _ if self.tag.is_some_and(|tag| tag >= MESSAGE_TAGS) => Some(format!("tags are less than {MESSAGE_TAGS}")),
            _ if message && self.peer == Some(index) => Some("a rank has no messages for itself".into()),
            CollectiveKind::ReduceScatter | CollectiveKind::AllToAll if !input.is_multiple_of(ranks) => {
                Some(format!("the input must be a multiple of {ranks} elements; pad it"))
            }
            CollectiveKind::ReduceScatter if output != input / ranks => {
                Some(format!("the output must have {} elements", input / ranks))
            }
            CollectiveKind::AllGather if output != input * ranks => {
                Some(format!("the output must have {} elements, {ranks} chunks of {input}", input * ranks))
            }
            CollectiveKind::AllToAll if output != input => Some(format!("the output must have {input} elements")),
            _ => None,
        }
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.operation.name())?;
        if let Some(reduction) = self.reduction {
            write!(f, " ({reduction})")?;
        }
        match (self.operation, self.peer) {
            (CollectiveKind::Broadcast, Some(root)) => write!(f, " from member {root}")?,
            (CollectiveKind::Reduce, Some(root)) => write!(f, " to member {root}")?,
            (CollectiveKind::Send, Some(to)) => write!(f, " to member {to}")?,
            (CollectiveKind::Receive, Some(from)) => write!(f, " from member {from}")?,
            _ => {}
        }
        if let Some(tag) = self.tag {
            write!(f, " with tag {tag}")?;
        }
        match self.operation {
            CollectiveKind::Barrier => {}
            CollectiveKind::ReduceScatter | CollectiveKind::AllGather | CollectiveKind::AllToAll => {
                write!(f, " of {} into {} {}", self.input, self.output, self.element)?;
            }
            _ => write!(f, " of {} {}", self.input, self.element)?,
        }
        match self.chunks {
            None => {}
            Some(0) => f.write_str(" in chunks")?,
            Some(table) => write!(f, " in chunks by table {table:016x}")?,
        }
        write!(f, " [{}]", self.activity)
    }
}
