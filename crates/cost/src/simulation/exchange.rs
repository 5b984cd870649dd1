//! Where stages meet: messages over links, and collectives in which several stages take part.

use quadrille_spec::AxisSet;

/// A message of one microbatch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct MessageId {
    pub tag: u32,
    pub position: usize,
    /// Counted over all steps.
    pub microbatch: usize,
}

/// A collective of several stages: every stage counts those of the same axes and members.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct MeetingId {
    pub axes: AxisSet,
    pub ends: bool,
    pub number: usize,
}

/// From when until when a stream or link is taken.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Taken {
    pub start: f64,
    pub end: f64,
}

/// When a message arrived and its receive was posted; not a number: not yet.
#[derive(Clone, Copy)]
struct Transit {
    arrived: f64,
    posted: f64,
}

/// A time, if it is one.
fn known(time: f64) -> Option<f64> {
    (!time.is_nan()).then_some(time)
}

#[derive(Default)]
struct Gathering {
    missing: usize,
    latest: f64,
    seconds: f64,
}

/// What a short list has for a key; `new` if there was nothing.
pub(super) fn entry<K: PartialEq, V>(list: &mut Vec<(K, V)>, key: K, new: V) -> &mut V {
    let at = list.iter().position(|(known, _)| *known == key).unwrap_or_else(|| {
        list.push((key, new));
        list.len() - 1
    });
    &mut list[at].1
}

/// All that stages know of each other.
pub(super) struct Exchange {
    /// By tag; then by microbatch and position.
    transits: Vec<Vec<Transit>>,
    /// Messages of one tag and microbatch, at most.
    positions: usize,
    /// Messages of one tag.
    messages: usize,
    /// By stage that sends: to whom, and when the link is free again.
    links: Vec<Vec<(usize, f64)>>,
    /// There are few in a step.
    gatherings: Vec<(MeetingId, Gathering)>,
}

impl Exchange {
    /// Among so many stages, where each of so many microbatches has at most so many messages of a tag.
    pub fn new(stages: usize, microbatches: usize, positions: usize) -> Self {
        let links = vec![Vec::new(); stages];
        let messages = microbatches * positions;
        Self { transits: Vec::new(), positions, messages, links, gatherings: Vec::new() }
    }

    fn transit(&self, id: MessageId) -> Option<&Transit> {
        self.transits.get(id.tag as usize)?.get(id.microbatch * self.positions + id.position)
    }

    fn transit_mut(&mut self, id: MessageId) -> &mut Transit {
        let tag = id.tag as usize;
        let index = id.microbatch * self.positions + id.position;
        if self.transits.len() <= tag {
            self.transits.resize_with(tag + 1, Vec::new);
        }
        let transits = &mut self.transits[tag];
        if transits.is_empty() {
            transits.resize(self.messages, Transit { arrived: f64::NAN, posted: f64::NAN });
        }
        &mut transits[index]
    }

    pub fn post(&mut self, id: MessageId, at: f64) {
        self.transit_mut(id).posted = at;
    }

    /// Messages of a link travel one after the other.
    pub fn send(&mut self, id: MessageId, [from, to]: [usize; 2], at: f64, seconds: f64) -> Taken {
        let free = entry(&mut self.links[from], to, 0.0);
        let start = free.max(at);
        let end = start + seconds;
        *free = end;
        self.transit_mut(id).arrived = end;
        Taken { start, end }
    }

    /// When the message is there; `None` while it has not been sent.
    pub fn arrival(&self, id: MessageId) -> Option<f64> {
        known(self.transit(id)?.arrived)
    }

    /// When the sender has its buffer back: the message is there and its receive posted.
    pub fn release(&self, id: MessageId) -> Option<f64> {
        let Transit { arrived, posted } = *self.transit(id)?;
        Some(known(arrived)?.max(known(posted)?))
    }

    /// A stage comes to a collective of `stages` stages.
    pub fn meet(&mut self, id: MeetingId, stages: usize, at: f64, seconds: f64) {
        let new = Gathering { missing: stages, ..Gathering::default() };
        let gathering = entry(&mut self.gatherings, id, new);
        gathering.missing = gathering.missing.saturating_sub(1);
        gathering.latest = gathering.latest.max(at);
        gathering.seconds = gathering.seconds.max(seconds);
    }

    /// When the collective runs; `None` while a stage is missing.
    pub fn meeting(&self, id: MeetingId) -> Option<Taken> {
        let known = self.gatherings.iter().rev().find(|(known, _)| *known == id);
        let (_, gathering) = known.filter(|(_, gathering)| gathering.missing == 0)?;
        Some(Taken { start: gathering.latest, end: gathering.latest + gathering.seconds })
    }
}
