//! The communication streams of a stage's rank and the collectives under way on them: one after the other in the order of
//! their issue, as the communicator runs them; of all groups on one stream, or each group's on its own.

use std::collections::{HashMap, VecDeque};

use quadrille_spec::AxisSet;

use super::exchange::{Exchange, MeetingId, Taken, entry};
use super::record::Begun;
use super::tasks::Meeting;

/// A collective under way.
#[derive(Debug, Clone, Copy)]
pub(super) enum Flight {
    /// Of this stage alone.
    Own(Taken),
    /// Of several stages; its time is known when all have come to it.
    Common(MeetingId, Begun),
}

impl Flight {
    /// When it has its stream; `None` as long as other stages have not come to it.
    pub fn taken(self, exchange: &Exchange) -> Option<Taken> {
        match self {
            Self::Own(span) => Some(span),
            Self::Common(id, _) => exchange.meeting(id),
        }
    }
}

/// Connects a wait with its issue: the collective's number and the microbatch that issued it, none for the update.
pub(super) type FlightId = (usize, Option<usize>);

#[derive(Default)]
pub(super) struct Streams {
    /// Whether each group has a stream of its own.
    by_group: bool,
    /// The last collective of each stream: there are few.
    last: Vec<(AxisSet, Flight)>,
    /// The collectives of each stream that may not have ended, with their axes, in the order in which they run.
    queued: Vec<(AxisSet, VecDeque<(AxisSet, Flight)>)>,
    /// The end of the collective of this stage alone that ends last, and its axes.
    busy: (f64, AxisSet),
    flights: Flights,
    /// How often this stage has met others, by axes and whether only the ends meet.
    meetings: Vec<((AxisSet, bool), usize)>,
}

impl Streams {
    pub fn new(by_group: bool) -> Self {
        Self { by_group, ..Self::default() }
    }

    /// The stream of a group.
    fn of(&self, axes: AxisSet) -> AxisSet {
        if self.by_group { axes } else { AxisSet::EMPTY }
    }

    /// Whether nothing is under way from a time on.
    pub fn are_free(&self, now: f64, exchange: &Exchange) -> bool {
        let ended = |last: &Flight| last.taken(exchange).is_some_and(|last| last.end <= now);
        self.flights.count == 0 && self.last.iter().all(|(_, last)| ended(last))
    }

    /// The last collective of a group's stream.
    fn last(&self, axes: AxisSet) -> Option<&Flight> {
        let stream = self.of(axes);
        self.last.iter().find(|(known, _)| *known == stream).map(|(_, last)| last)
    }

    /// Whether it is not yet known when the stream of a group is free.
    pub fn is_open(&self, axes: AxisSet, exchange: &Exchange) -> bool {
        self.last(axes).is_some_and(|flight| flight.taken(exchange).is_none())
    }

    /// Whether it is not yet known when the collective is done.
    pub fn is_pending(&self, id: FlightId, exchange: &Exchange) -> bool {
        self.flights.get(id).is_some_and(|flight| flight.taken(exchange).is_none())
    }

    /// Until when collectives of this stage alone are under way, and over which axes the last of them is.
    pub fn busy_until(&self) -> (f64, AxisSet) {
        self.busy
    }

    /// Calls `part` with the collectives that run on the stream of a group between two times, in order: their axes, and how much of
    /// each lies between. They follow each other but where one waits for other stages.
    pub fn each_running(
        &self,
        axes: AxisSet,
        [from, to]: [f64; 2],
        exchange: &Exchange,
        mut part: impl FnMut(AxisSet, Taken),
    ) {
        let stream = self.of(axes);
        let queued = self.queued.iter().find(|(known, _)| *known == stream);
        for (axes, flight) in queued.into_iter().flat_map(|(_, queued)| queued) {
            let Some(Taken { start, end }) = flight.taken(exchange) else { return };
            let start = start.max(from);
            let end = end.min(to);
            if end > start {
                part(*axes, Taken { start, end });
            }
        }
    }

    /// Puts a collective at the end of the stream.
    pub fn issue(
        &mut self,
        id: FlightId,
        axes: AxisSet,
        at: f64,
        seconds: f64,
        meeting: Option<(Meeting, Begun)>,
        exchange: &mut Exchange,
    ) -> Flight {
        let free = self.last(axes).and_then(|last| last.taken(exchange)).map_or(0.0, |last| last.end);
        let start = free.max(at);
        let flight = match meeting {
            None => {
                let end = start + seconds;
                if end > self.busy.0 {
                    self.busy = (end, axes);
                }
                Flight::Own(Taken { start, end })
            }
            Some((Meeting { ends, stages }, begun)) => {
                let count = entry(&mut self.meetings, (axes, ends), 0);
                let id = MeetingId { axes, ends, number: *count };
                *count += 1;
                exchange.meet(id, stages, start, seconds);
                Flight::Common(id, begun)
            }
        };
        let stream = self.of(axes);
        *entry(&mut self.last, stream, flight) = flight;
        let queued = entry(&mut self.queued, stream, VecDeque::new());
        let has_ended = |(_, flight): &(AxisSet, Flight)| flight.taken(exchange).is_some_and(|it| it.end <= at);
        while queued.front().is_some_and(has_ended) {
            queued.pop_front();
        }
        queued.push_back((axes, flight));
        self.flights.insert(id, flight);
        flight
    }

    /// The collective that is waited for.
    pub fn take(&mut self, id: FlightId) -> Option<Flight> {
        self.flights.take(id)
    }
}

/// The stream of copies between the device and the memory of its host: one after the other in the order of their begin.
#[derive(Default)]
pub(super) struct Copies {
    free: f64,
    /// Those that nobody has waited for, by number, with their ends.
    under_way: HashMap<usize, f64>,
}

impl Copies {
    /// Puts a copy at the end of the stream.
    pub fn begin(&mut self, number: usize, at: f64, seconds: f64) -> Taken {
        let start = self.free.max(at);
        self.free = start + seconds;
        self.under_way.insert(number, self.free);
        Taken { start, end: self.free }
    }

    /// When a copy is done that is waited for; `None`: it was not begun.
    pub fn take(&mut self, number: usize) -> Option<f64> {
        self.under_way.remove(&number)
    }
}

/// The collectives under way: many where the gradients of a whole step are reduced at its end.
#[derive(Default)]
struct Flights {
    /// By the collective's number: those of a few microbatches.
    all: Vec<Vec<(Option<usize>, Flight)>>,
    count: usize,
}

impl Flights {
    fn get(&self, (number, microbatch): FlightId) -> Option<&Flight> {
        let of_number = self.all.get(number)?;
        of_number.iter().find(|(known, _)| *known == microbatch).map(|(_, flight)| flight)
    }

    fn insert(&mut self, (number, microbatch): FlightId, flight: Flight) {
        if self.all.len() <= number {
            self.all.resize_with(number + 1, Vec::new);
        }
        let of_number = &mut self.all[number];
        match of_number.iter_mut().find(|(known, _)| *known == microbatch) {
            Some((_, known)) => *known = flight,
            None => {
                of_number.push((microbatch, flight));
                self.count += 1;
            }
        }
    }

    fn take(&mut self, (number, microbatch): FlightId) -> Option<Flight> {
        let of_number = self.all.get_mut(number)?;
        let at = of_number.iter().position(|(known, _)| *known == microbatch)?;
        self.count -= 1;
        Some(of_number.remove(at).1)
    }
}
