//! What one member does in a collective, as data: exchanges and copies, in order.

/// Where elements lie on a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Space {
    /// The call's input; it is only read.
    Input,
    /// The call's output; in place, the same buffer as the input.
    Output,
    /// Memory of the algorithm.
    Scratch,
}

/// Consecutive elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) space: Space,
    pub(crate) start: usize,
    pub(crate) len: usize,
}

impl Piece {
    pub(crate) fn input(range: std::ops::Range<usize>) -> Self {
        Self { space: Space::Input, start: range.start, len: range.len() }
    }

    pub(crate) fn output(range: std::ops::Range<usize>) -> Self {
        Self { space: Space::Output, start: range.start, len: range.len() }
    }

    pub(crate) fn scratch(start: usize, len: usize) -> Self {
        Self { space: Space::Scratch, start, len }
    }
}

/// What arrives, and what becomes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Arrival {
    /// The member that sends it.
    pub(crate) from: usize,
    /// Where it goes.
    pub(crate) into: Piece,
    /// What it is combined with on the way: `into = arriving + with`.
    pub(crate) with: Option<Piece>,
}

/// One step of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// Sends a piece to a member and receives one from another, both under way at once.
    Exchange { send: Option<(usize, Piece)>, receive: Option<Arrival> },
    /// Copies on the rank.
    Copy { from: Piece, to: Piece },
}

/// All that a member does in a collective.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Elements of scratch memory.
    pub(crate) scratch: usize,
    pub(crate) actions: Vec<Action>,
}

impl Plan {
    /// Elements that the member sends.
    pub(crate) fn elements_sent(&self) -> usize {
        let sent = |action: &Action| match action {
            Action::Exchange { send: Some((_, piece)), .. } => piece.len,
            _ => 0,
        };
        self.actions.iter().map(sent).sum()
    }

    /// Reserves scratch memory and returns where it begins.
    pub(crate) fn reserve(&mut self, elements: usize) -> usize {
        let start = self.scratch;
        self.scratch += elements;
        start
    }

    pub(crate) fn copy(&mut self, from: Piece, to: Piece) {
        self.actions.push(Action::Copy { from, to });
    }

    pub(crate) fn exchange(&mut self, send: Option<(usize, Piece)>, receive: Option<Arrival>) {
        self.actions.push(Action::Exchange { send, receive });
    }
}

/// The members that take part in a phase of a collective, in order, and this member's position among them.
#[derive(Debug, Clone)]
pub(crate) struct Circle {
    members: Vec<usize>,
    pub(crate) me: usize,
}

impl Circle {
    pub(crate) fn new(members: Vec<usize>, me: usize) -> Self {
        Self { members, me }
    }

    pub(crate) fn size(&self) -> usize {
        self.members.len()
    }

    /// The member so many places after this one.
    pub(crate) fn after(&self, distance: usize) -> usize {
        self.members[(self.me + distance) % self.size()]
    }

    /// The member so many places before this one; `distance` is at most the size.
    pub(crate) fn before(&self, distance: usize) -> usize {
        self.after(self.size() - distance)
    }
}
