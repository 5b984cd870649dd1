//! One stage as time passes.

use quadrille_spec::{Axis, AxisSet};
use quadrille_step::schedule::Action;
use quadrille_step::{Layer, Message, StageProgram, Verdict, When};

use super::exchange::{Exchange, MessageId, Taken, entry};
use super::order::{Next, Order};
use super::record::{Begun, Times};
use super::repeat::{Repeat, Repeats};
use super::stages::Place;
use super::stream::{Copies, Flight, FlightId, Streams};
use super::tasks::{PricedMessage, PricedSection, PricedStage, Task, TaskKind};
use super::{Detail, Event, Lane, Machine, PassSpan, STEPS, SimulationError};

/// A pass or update that has begun.
#[derive(Clone, Copy)]
struct Running<'a> {
    action: Option<Action>,
    section: &'a PricedSection,
    /// The next task.
    task: usize,
    begun: f64,
    /// When it began or last went on after waiting for other stages.
    start: f64,
    slowdown: f64,
}

/// What a stage does in a step; passes and events as far as they are reported.
#[derive(Default)]
pub(super) struct Record {
    pub times: Times,
    pub passes: Vec<PassSpan>,
    pub events: Vec<Event>,
}

pub(super) struct Stage<'a> {
    /// The number of its kind.
    pub kind: usize,
    /// Its coordinate on the pipe axis.
    stage: usize,
    /// Of its kind.
    program: &'a StageProgram,
    /// From the stage of that program to this one.
    moved: [usize; 2],
    microbatches: usize,
    priced: &'a PricedStage,
    machine: &'a dyn Machine,
    order: Order<'a>,
    /// The time of the compute stream.
    now: f64,
    /// When the host can begin the next operation of a pass.
    host: f64,
    /// The layer that it is at.
    host_at: Option<Layer>,
    /// Of this step, or the last.
    pub record: Record,
    /// When the steps ended that are over.
    pub ends: Vec<f64>,
    running: Option<Running<'a>>,
    streams: Streams,
    copies: Copies,
    detail: Detail,
}

impl<'a> Stage<'a> {
    pub fn new(place: Place<'a>, priced: &'a PricedStage, machine: &'a dyn Machine, detail: Detail) -> Self {
        let Place { kind, stage, program, steps } = place;
        Self {
            kind,
            stage,
            program,
            moved: [program.stage, stage],
            microbatches: program.layout.microbatches(),
            priced,
            machine,
            order: Order::new(program, steps),
            now: 0.0,
            host: 0.0,
            host_at: None,
            record: Record::default(),
            ends: Vec::with_capacity(STEPS),
            running: None,
            streams: Streams::new(machine.streams_by_group()),
            copies: Copies::default(),
            detail,
        }
    }

    pub fn is_message_driven(&self) -> bool {
        self.program.is_message_driven()
    }

    /// What comes next and when it can be done; `None` as long as that depends on what another stage has not yet done.
    pub fn next(&self, exchange: &Exchange) -> Option<(f64, Next)> {
        if let Some(running) = &self.running {
            let next = running.section.tasks.get(running.task);
            let blocked = next.is_some_and(|task| self.is_blocked(task, running.action, exchange));
            return (!blocked).then_some((self.now, Next::Continue));
        }
        self.order.next(self.now, |next| match next {
            Next::Begin(Some(action)) => self.each(action, &self.section(action).receives, |id| exchange.arrival(id)),
            Next::Release(action) => self.each(action, &self.section(action).sends, |id| exchange.release(id)),
            Next::Post(_) | Next::Begin(None) | Next::Continue => Some(self.now),
        })
    }

    /// Does at time `at` what [`Stage::next`] has said; `repeats` are of its kind.
    pub fn perform(
        &mut self,
        at: f64,
        next: Next,
        exchange: &mut Exchange,
        repeats: &mut Repeats,
    ) -> Result<(), SimulationError> {
        self.record.times.waiting_on_stages_s += at - self.now;
        self.now = at;
        self.order.advance(next);
        match next {
            Next::Post(action) => {
                for message in &self.section(action).receives {
                    exchange.post(self.message(action, message), at);
                }
            }
            Next::Begin(action) => {
                self.running = Some(self.begin(action)?);
                (self.host, self.host_at) = (self.now, None);
            }
            Next::Continue | Next::Release(_) => {}
        }
        self.work(exchange, repeats)
    }

    fn section(&self, action: Action) -> &'a PricedSection {
        self.priced.section(Some(action))
    }

    fn message(&self, action: Action, message: &PricedMessage) -> MessageId {
        let microbatch = self.order.steps * self.microbatches + action.microbatch;
        let tag = message.message.tag_moved(self.moved);
        MessageId { tag, position: message.position, microbatch }
    }

    /// The latest of the messages' times, at least now; `None` if one is not known.
    fn each(&self, action: Action, messages: &[PricedMessage], time: impl Fn(MessageId) -> Option<f64>) -> Option<f64> {
        messages.iter().try_fold(self.now, |latest, message| Some(latest.max(time(self.message(action, message))?)))
    }

    fn begin(&self, action: Option<Action>) -> Result<Running<'a>, SimulationError> {
        let stage = self.stage;
        let factor = self.machine.slowdown(stage, action);
        let slowdown = SimulationError::check_seconds(stage, Layer::Step, "slowdown", factor)?;
        Ok(Running {
            action,
            section: self.priced.section(action),
            task: 0,
            begun: self.now,
            start: self.now,
            slowdown,
        })
    }

    /// Whether a task depends on stages that have not yet come to a common collective.
    fn is_blocked(&self, task: &Task, action: Option<Action>, exchange: &Exchange) -> bool {
        match task.kind {
            TaskKind::Compute { .. } | TaskKind::Copy { .. } | TaskKind::AwaitCopy { .. } => false,
            TaskKind::Issue { axes, .. } => self.streams.is_open(axes, exchange),
            TaskKind::Wait { flight: number, carried, .. } => {
                self.streams.is_pending(flight(action, number, carried), exchange)
            }
        }
    }

    /// Does the running section until it ends or depends on another stage: as it went before, or task by task.
    fn work(&mut self, exchange: &mut Exchange, repeats: &mut Repeats) -> Result<(), SimulationError> {
        if let Some(running) = self.running
            && let Some(action) = running.action
            && self.is_usual(&running, action, exchange)
        {
            let known = repeats.get(action);
            let followed = match known {
                Some(followed) => followed,
                None => known.insert(self.follow(exchange)?),
            };
            if let Some(repeat) = followed {
                repeat.add_to(self.stage, action, self.now, &mut self.record.times, &mut self.record.events);
                self.now += repeat.seconds;
                self.end(running, exchange);
                return Ok(());
            }
        }
        self.do_tasks(exchange)
    }

    /// Whether a pass that begins takes what it takes of any microbatch, if it leaves nothing under way.
    fn is_usual(&self, running: &Running, action: Action, exchange: &Exchange) -> bool {
        let PricedSection { begins, ends, meets, .. } = *running.section;
        running.task == 0
            && running.slowdown == 1.0
            && (action.microbatch > 0 || !begins)
            && (action.microbatch + 1 < self.microbatches || !ends)
            && !meets
            && self.streams.are_free(self.now, exchange)
    }

    /// What the pass that begins takes from a time 0 on, with free streams; `None` if it leaves something under way.
    fn follow(&mut self, exchange: &mut Exchange) -> Result<Option<Repeat>, SimulationError> {
        let streams = Streams::new(self.machine.streams_by_group());
        let streams = std::mem::replace(&mut self.streams, streams);
        let record = std::mem::take(&mut self.record);
        let now = std::mem::take(&mut self.now);
        let host = std::mem::take(&mut self.host);
        let running = self.running;
        let host_at = self.host_at;
        self.go_on(exchange)?;
        let is_free = self.streams.are_free(self.now, exchange);
        let Record { times, events, .. } = std::mem::replace(&mut self.record, record);
        let repeat = Repeat { seconds: self.now, times, events };
        (self.streams, self.now, self.host) = (streams, now, host);
        (self.running, self.host_at) = (running, host_at);
        Ok(is_free.then_some(repeat))
    }

    fn do_tasks(&mut self, exchange: &mut Exchange) -> Result<(), SimulationError> {
        self.go_on(exchange)?;
        match self.running {
            Some(running) if running.task == running.section.tasks.len() => self.end(running, exchange),
            _ => {}
        }
        Ok(())
    }

    /// Does tasks until one depends on another stage, or none is left.
    fn go_on(&mut self, exchange: &mut Exchange) -> Result<(), SimulationError> {
        let Some(mut running) = self.running else { return Ok(()) };
        let action = running.action;
        let tasks = &running.section.tasks;
        while let Some(task) = tasks.get(running.task) {
            if action.is_none_or(|action| task.when.includes(action.microbatch, self.microbatches, Verdict::Kept)) {
                if self.is_blocked(task, action, exchange) {
                    break;
                }
                self.task(task, &mut running, exchange)?;
            }
            running.task += 1;
        }
        self.running = Some(running);
        Ok(())
    }

    /// The host begins so many operations of a pass; of a layer not before the device has come to it.
    fn launch(&mut self, task: &Task, operations: f64, action: Option<Action>) {
        if action.is_none() {
            return;
        }
        if self.host_at.replace(task.layer) != Some(task.layer) {
            self.host = self.host.max(self.now);
        }
        self.host += operations * self.machine.host_seconds();
    }

    /// When an operation of so many seconds is done that begins now. What it takes longer since collectives run beside it is
    /// counted as waiting for them, of several streams for those of the one that is busy longest.
    fn computed(&mut self, seconds: f64, exchange: &Exchange) -> f64 {
        let alone = self.host.max(self.now + seconds);
        self.record.times.busy_s += alone - self.now;
        let share = self.machine.share_beside_collectives();
        if share >= 1.0 {
            return alone;
        }
        let (busy, axes) = self.streams.busy_until();
        let beside = (busy - self.now).max(0.0).min(seconds / share);
        let end = alone.max(self.now + seconds + (1.0 - share) * beside);
        if end > alone {
            // The host may be late by a part of it.
            let lost_share = (end - alone) / beside;
            let waiting = &mut self.record.times.waiting_on_collectives_s;
            let mut left = end - alone;
            self.streams.each_running(axes, [self.now, self.now + beside], exchange, |axes, span| {
                let part = (lost_share * (span.end - span.start)).min(left);
                *entry(waiting, axes, 0.0) += part;
                left -= part;
            });
            *entry(waiting, axes, 0.0) += left;
        }
        end
    }

    fn task(&mut self, task: &Task, running: &mut Running, exchange: &mut Exchange) -> Result<(), SimulationError> {
        let action = running.action;
        let begun = Begun { action, number: task.number };
        match task.kind {
            TaskKind::Compute { seconds, kernels } => {
                self.launch(task, kernels, action);
                let span = Taken { start: self.now, end: self.computed(seconds * running.slowdown, exchange) };
                self.now = span.end;
                self.event(Lane::Compute, task, begun, span);
            }
            TaskKind::Issue { flight: number, axes, seconds, meeting } => {
                self.launch(task, 1.0, action);
                let id = flight(action, number, task.when == When::Last);
                let meeting = meeting.map(|meeting| (meeting, begun));
                if let Flight::Own(span) = self.streams.issue(id, axes, self.now, seconds, meeting, exchange) {
                    self.event(Lane::Axes(axes), task, begun, span);
                }
            }
            TaskKind::Copy { number, seconds } => {
                let span = self.copies.begin(number, self.now, seconds);
                self.event(Lane::Host, task, begun, span);
            }
            TaskKind::AwaitCopy { number } => {
                let end = self.copies.take(number).ok_or(SimulationError::NotIssued {
                    stage: self.stage,
                    layer: task.layer,
                    what: task.name,
                })?;
                self.record.times.waiting_on_host_s += (end - self.now).max(0.0);
                self.now = self.now.max(end);
            }
            TaskKind::Wait { flight: number, axes, carried } => {
                let flight = self.streams.take(flight(action, number, carried));
                self.wait(flight, axes, task, running, exchange)?;
            }
        }
        Ok(())
    }

    /// Waits for a collective. As long as it waits for its stream, which runs others, that is waiting for these. The first step has
    /// no gathers of an update before it.
    fn wait(
        &mut self,
        flight: Option<Flight>,
        axes: AxisSet,
        task: &Task,
        running: &mut Running,
        exchange: &Exchange,
    ) -> Result<(), SimulationError> {
        let Some((flight, span)) = flight.and_then(|flight| Some((flight, flight.taken(exchange)?))) else {
            let carried = matches!(task.kind, TaskKind::Wait { carried: true, .. });
            if carried && self.order.steps == 0 {
                return Ok(());
            }
            return Err(SimulationError::NotIssued { stage: self.stage, layer: task.layer, what: task.name });
        };
        if let Flight::Common(_, begun) = flight {
            self.event(Lane::Axes(axes), task, begun, span);
        }
        if span.end <= self.now {
            return Ok(());
        }
        if span.start <= self.now {
            *entry(&mut self.record.times.waiting_on_collectives_s, axes, 0.0) += span.end - self.now;
            self.now = span.end;
            return Ok(());
        }
        let mut waits = Vec::new();
        self.streams.each_running(axes, [self.now, span.end], exchange, |axes, part| waits.push((axes, part)));
        for (axes, part) in waits {
            if part.start > self.now {
                self.idle(part.start, running);
            }
            *entry(&mut self.record.times.waiting_on_collectives_s, axes, 0.0) += part.end - self.now;
            self.now = part.end;
        }
        // For other stages, where the collective itself takes no time.
        if span.end > self.now {
            self.idle(span.end, running);
        }
        Ok(())
    }

    /// Waits for other stages: the running section goes on as a new span.
    fn idle(&mut self, until: f64, running: &mut Running) {
        if self.now > running.start {
            self.span(*running);
        }
        self.record.times.waiting_on_stages_s += until - self.now;
        self.now = until;
        running.start = until;
    }

    /// Records the running section as far as it has come.
    fn span(&mut self, running: Running) {
        if self.detail >= Detail::Passes && self.ends.len() + 1 == STEPS {
            let stage = self.stage;
            let action = running.action;
            let start_s = running.start;
            self.record.passes.push(PassSpan { stage, action, start_s, end_s: self.now });
        }
    }

    /// Sends what the pass has made; after an update the next step begins.
    fn end(&mut self, running: Running, exchange: &mut Exchange) {
        self.running = None;
        self.span(running);
        let Some(action) = running.action else {
            self.record.times.update_s = self.now - running.begun;
            self.order.next_step();
            self.ends.push(self.now);
            if self.ends.len() < STEPS {
                self.record = Record::default();
            }
            return;
        };
        for message in &running.section.sends {
            let stages = self.program.grid().size(Axis::Pipe);
            let Message { peer, layer, .. } = message.message.moved(self.moved, stages);
            let span = exchange.send(self.message(action, message), [self.stage, peer], self.now, message.seconds);
            let begun = Begun { action: Some(action), number: Some(message.position) };
            self.push(Lane::Link { to: peer }, "message", layer, begun, span);
        }
    }

    fn event(&mut self, lane: Lane, task: &Task, begun: Begun, span: Taken) {
        self.push(lane, task.name, task.layer, begun, span);
    }

    /// What takes no time is no event.
    fn push(&mut self, lane: Lane, name: &'static str, layer: Layer, begun: Begun, span: Taken) {
        let Taken { start: start_s, end: end_s } = span;
        let Begun { action, number } = begun;
        if self.detail == Detail::Events && end_s > start_s {
            self.record.events.push(Event { stage: self.stage, lane, name, layer, action, number, start_s, end_s });
        }
    }
}

/// A collective issued by a pass; by the update if there is none, if it was carried over, or is issued by the last microbatch
/// for it.
fn flight(action: Option<Action>, number: usize, by_update: bool) -> FlightId {
    (number, action.filter(|_| !by_update).map(|action| action.microbatch))
}
