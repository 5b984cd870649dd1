//! Memory that passes hold while they are measured, from three points of view.

use super::footprint::Footprint;

/// What is held, as it is told.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Holdings {
    held: Held,
    /// Whether several overlap chunks share weights and their gradients.
    is_shared: bool,
    /// Bytes that wait for the last overlap chunk: for the next collective on tokens; and of gradients of weights.
    shared: u64,
    shared_gradients: u64,
}

/// What a part of the passes has held.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Held {
    pub all: Footprint,
    /// The same where gradients of weights are put off: without them, with all that they need.
    pub apart: Footprint,
    /// The same as `all` where what other passes have taken is not given back.
    pub beside: Footprint,
    /// Bytes that are held until the pass ends, since all overlap chunks pass all of this before the next.
    pub shared: i64,
    /// Bytes that are left for the next collective on tokens to give back; not part of the footprints in the end.
    pub carried: i64,
    /// Whether there was a collective on tokens.
    pub has_issued: bool,
}

impl Holdings {
    /// Of passes with so many overlap chunks.
    pub fn new(chunks: usize) -> Self {
        Self { is_shared: chunks > 1, ..Self::default() }
    }

    /// Ends a part of the passes and begins the next.
    pub fn lap(&mut self) -> Held {
        let mut told = std::mem::take(&mut self.held);
        // Where nothing has been issued, all of the pass comes before the next overlap chunk; else what is left is given
        // back soon, and is there at both ends.
        if !told.has_issued {
            told.shared = std::mem::take(&mut self.shared) as i64;
            self.shared_gradients = 0;
        }
        let (all, apart) = (self.shared + self.shared_gradients, self.shared);
        told.carried = all as i64;
        let next = &mut self.held;
        let now = [(&mut told.all, &mut next.all, all), (&mut told.apart, &mut next.apart, apart)];
        for (before, next, bytes) in now.into_iter().chain([(&mut told.beside, &mut next.beside, all)]) {
            before.give(bytes);
            *next = Footprint::held(bytes as i64);
        }
        told
    }

    pub fn take(&mut self, bytes: u64) {
        self.held.all.take(bytes);
        self.held.apart.take(bytes);
        self.held.beside.take(bytes);
    }

    pub fn give(&mut self, bytes: u64) {
        self.held.all.give(bytes);
        self.held.apart.give(bytes);
        self.held.beside.give(bytes);
    }

    /// Gives back what another pass has taken.
    pub fn give_kept(&mut self, bytes: u64) {
        self.held.all.give(bytes);
        self.held.apart.give(bytes);
    }

    /// Gives back what gradients of weights need; `kept`: another pass has taken it.
    pub fn give_needed(&mut self, kept: bool, bytes: u64) {
        self.held.all.give(bytes);
        if !kept {
            self.held.beside.give(bytes);
        }
    }

    /// Gradients of weights need a copy where they are put off.
    pub fn copy_needed(&mut self, bytes: u64) {
        self.held.apart.take(bytes);
    }

    /// Gives back what overlap chunks share: at once, or after the last of them.
    pub fn give_shared(&mut self, bytes: u64) {
        if self.is_shared { self.shared += bytes } else { self.give(bytes) }
    }

    /// Takes a gradient of a weight.
    pub fn take_gradient(&mut self, bytes: u64) {
        self.held.all.take(bytes);
        self.held.beside.take(bytes);
    }

    pub fn give_gradient(&mut self, bytes: u64) {
        self.held.all.give(bytes);
        self.held.beside.give(bytes);
    }

    /// Gives back a gradient that overlap chunks share.
    pub fn give_shared_gradient(&mut self, bytes: u64) {
        if self.is_shared { self.shared_gradients += bytes } else { self.give_gradient(bytes) }
    }

    /// A collective on tokens has been issued: the overlap chunks have taken turns.
    pub fn issued(&mut self) {
        self.held.has_issued = true;
        self.give(self.shared);
        self.give_gradient(self.shared_gradients);
        (self.shared, self.shared_gradients) = (0, 0);
    }
}
