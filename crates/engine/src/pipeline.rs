//! The passes of a step over microbatches: in the order of the schedule, or as messages arrive.

use std::thread::sleep;
use std::time::Instant;

use quadrille_comm::{Label, Pending};
use quadrille_spec::Axis;
use quadrille_step::schedule::{Action, Pass, Step};
use quadrille_step::{Message, decision_axes};

use crate::rank::label;
use crate::slots::Block;
use crate::{Backend, BatchSource, EngineError, RankEngine};

type Done = Result<(), EngineError>;

impl<B: Backend> RankEngine<'_, B> {
    /// All passes of a step.
    pub(crate) fn run_passes(&mut self, batch: &BatchSource) -> Done {
        let program = self.program;
        if program.is_message_driven() {
            return self.run_as_messages_arrive(batch);
        }
        for step in &program.steps {
            match *step {
                Step::Post(action) => self.post(action)?,
                Step::Run(action) => self.run_action(action, batch)?,
                Step::Release(action) => self.release(action)?,
            }
        }
        Ok(())
    }

    /// Receives what has been posted, computes, and sends.
    fn run_action(&mut self, action: Action, batch: &BatchSource) -> Done {
        let program = self.program;
        let section = program.section(action);
        self.select(action.microbatch);
        for message in &section.receives {
            self.finish(message, "receive", action)?;
        }
        let start = Instant::now();
        self.load_samples(section, batch)?;
        self.run(section, Some(action))?;
        if let Some(pace) = &self.pace {
            sleep(pace(action).saturating_sub(start.elapsed()));
        }
        for message in &section.sends {
            self.context.enter(label(message.layer), "send")?;
            let storage = program.value(message.value).storage;
            let block = self.slots.take(storage)?;
            let pending =
                self.context.send::<B::Stored, _>(&self.groups[&Axis::Pipe.only()], message.peer, message.tag, block);
            self.messages.insert((storage, self.slots.copy(storage)), pending);
        }
        Ok(())
    }

    fn select(&mut self, microbatch: usize) {
        self.microbatch = microbatch;
        self.slots.select(microbatch);
    }

    /// Posts the receives of an action; in a message-driven stage once their buffers are free.
    fn post(&mut self, action: Action) -> Done {
        let program = self.program;
        self.slots.select(action.microbatch);
        for message in &program.section(action).receives {
            self.context.enter(label(message.layer), "receive")?;
            let storage = program.value(message.value).storage;
            if program.is_message_driven() {
                // What was received for an earlier microbatch may still be on its way to the next stage.
                self.finish(message, "release", action)?;
            } else {
                self.slots.begin(storage)?;
            }
            let block = self.slots.take(storage)?;
            let pending = self.context.receive::<B::Stored, _>(
                &self.groups[&Axis::Pipe.only()],
                message.peer,
                message.tag,
                block,
            );
            self.messages.insert((storage, self.slots.copy(storage)), pending);
        }
        self.slots.select(self.microbatch);
        Ok(())
    }

    /// Waits until the sends of an action are done, and gives their buffers back.
    fn release(&mut self, action: Action) -> Done {
        let program = self.program;
        self.slots.select(action.microbatch);
        for message in &program.section(action).sends {
            self.finish(message, "release", action)?;
            self.slots.end(program.value(message.value).storage)?;
        }
        self.slots.select(self.microbatch);
        Ok(())
    }

    /// Waits for a message of the selected microbatch, if it is under way.
    fn finish(&mut self, message: &Message, what: &'static str, action: Action) -> Done {
        let storage = self.program.value(message.value).storage;
        if let Some(pending) = self.messages.remove(&(storage, self.slots.copy(storage))) {
            self.context.enter(label(message.layer), what)?;
            let block = self.timed(what, message.layer, Some(action), |_| Ok(pending.wait()?))?;
            self.slots.put(storage, block);
        }
        Ok(())
    }

    /// AxoNN's message-driven order: whatever has arrived is run, backward first, with at most as many microbatches in
    /// flight as there are stages. The first rank of a stage decides, the others follow.
    fn run_as_messages_arrive(&mut self, batch: &BatchSource) -> Done {
        let microbatches = self.program.layout.microbatches();
        let limit = self.program.grid().size(Axis::Pipe).min(microbatches);
        let [mut forward, mut backward] = [Pass::Forward, Pass::Backward].map(|pass| Turn { pass, next: 0, posted: 0 });
        while backward.next < microbatches {
            let may_forward = forward.next < microbatches && forward.next < backward.next + limit;
            let may_backward = backward.next < forward.next;
            for (turn, may) in [(&mut forward, may_forward), (&mut backward, may_backward)] {
                if may && turn.posted == turn.next {
                    self.post(turn.action())?;
                    turn.posted += 1;
                }
            }
            let choice = self.choose(may_forward.then(|| forward.action()), may_backward.then(|| backward.action()))?;
            let turn = if choice == Pass::Forward { &mut forward } else { &mut backward };
            // The buffers that this pass sends may still be on their way from an earlier microbatch.
            let action = turn.action();
            self.select(action.microbatch);
            for message in &self.program.section(action).sends {
                self.finish(message, "release", action)?;
            }
            self.run_action(action, batch)?;
            turn.next += 1;
        }
        while let Some(((storage, copy), pending)) = self.messages.pop_first() {
            let block = pending.wait()?;
            self.slots.select(copy);
            self.slots.put(storage, block);
        }
        self.slots.select(self.microbatch);
        Ok(())
    }

    /// The next pass, equal on all ranks of the stage.
    fn choose(&mut self, forward: Option<Action>, backward: Option<Action>) -> Result<Pass, EngineError> {
        let program = self.program;
        let axes = decision_axes(program);
        let leads = program.grid().group_index(self.place, axes) == 0;
        self.context.enter(Label::new("step"), "choose pass")?;
        let mut choice = 0.0;
        if leads {
            choice = if self.first_to_arrive(forward, backward)? == Pass::Forward { 1.0 } else { 0.0 };
        }
        if program.grid().size_of(axes) > 1 {
            choice = self.context.broadcast::<f64, _>(&self.groups[&axes], 0, vec![choice]).wait()?[0];
        }
        Ok(if choice > 0.5 { Pass::Forward } else { Pass::Backward })
    }

    /// Waits until the messages of an action are here; backward first if both are.
    fn first_to_arrive(&self, forward: Option<Action>, backward: Option<Action>) -> Result<Pass, EngineError> {
        loop {
            let mut missing = Vec::new();
            for action in [backward, forward].into_iter().flatten() {
                match self.missing_message(action) {
                    Some(pending) => missing.push(pending),
                    None => return Ok(action.pass),
                }
            }
            Pending::wait_for_any(&missing);
            self.context.enter(Label::new("step"), "choose pass")?;
        }
    }

    /// A message that an action waits for.
    fn missing_message(&self, action: Action) -> Option<&Pending<Block<B>>> {
        let messages = self.program.section(action).receives.iter().filter_map(|message| {
            let storage = self.program.value(message.value).storage;
            let copy = action.microbatch % self.program.storages[storage.0].instances;
            self.messages.get(&(storage, copy))
        });
        messages.into_iter().find(|pending| !pending.is_done())
    }
}

/// The passes of one kind, in the order of microbatches.
struct Turn {
    pass: Pass,
    /// The next microbatch.
    next: usize,
    /// Microbatches whose messages have been asked for.
    posted: usize,
}

impl Turn {
    fn action(&self) -> Action {
        Action { pass: self.pass, microbatch: self.next, chunk: 0 }
    }
}
