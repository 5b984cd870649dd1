//! The passes of a step over microbatches, and the messages between stages: in the order of the schedule, or in the order in
//! which messages arrive.

mod message_driven;

use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::{Duration, Instant};

use quadrille_comm::Pending;
use quadrille_spec::Axis;
use quadrille_step::schedule::{Action, Step};
use quadrille_step::{Message, StorageId};

use crate::interpreter::Interpreter;
use crate::state::storages::Block;
use crate::{Backend, BatchSource, EngineError};

type Done = Result<(), EngineError>;

/// Shortest duration of a pass.
pub type Pace<'a> = Box<dyn Fn(Action) -> Duration + Send + 'a>;

/// A stage's part of the pipeline.
pub(crate) struct Pipeline<'a, B: Backend> {
    /// Messages in flight, by storage and copy.
    messages: BTreeMap<(StorageId, usize), Pending<Block<B>>>,
    /// Shortest duration of each pass.
    pub pace: Option<Pace<'a>>,
}

impl<B: Backend> Default for Pipeline<'_, B> {
    fn default() -> Self {
        Self { messages: BTreeMap::new(), pace: None }
    }
}

impl<B: Backend> Pipeline<'_, B> {
    /// Runs all passes of a step.
    pub fn run_passes(&mut self, interpreter: &mut Interpreter<'_, B>, batch: &BatchSource) -> Done {
        let program = interpreter.rank.program;
        if program.is_message_driven() {
            return self.run_as_messages_arrive(interpreter, batch);
        }
        for step in &program.steps {
            match *step {
                Step::Post(action) => self.post(interpreter, action)?,
                Step::Run(action) => self.run_action(interpreter, action, batch)?,
                Step::Release(action) => self.release(interpreter, action)?,
            }
        }
        Ok(())
    }

    /// Receives what has been posted, computes, and sends.
    fn run_action(&mut self, interpreter: &mut Interpreter<'_, B>, action: Action, batch: &BatchSource) -> Done {
        let program = interpreter.rank.program;
        let section = program.section(action);
        select(interpreter, action.microbatch);
        for message in &section.receives {
            self.finish(interpreter, message, "receive", action)?;
        }
        let start = Instant::now();
        let Interpreter { communicators, backend, step, .. } = interpreter;
        step.load_samples(communicators, &**backend, section, batch)?;
        interpreter.run(section, Some(action))?;
        if let Some(pace) = &self.pace {
            sleep(pace(action).saturating_sub(start.elapsed()));
        }
        let Interpreter { communicators, storages, .. } = interpreter;
        for message in &section.sends {
            communicators.enter(message.layer, "send")?;
            let storage = program.value(message.value).storage;
            let block = storages.take(storage)?;
            let stages = communicators.group(Axis::Pipe.only());
            let pending = communicators.context.send::<B::Stored, _>(stages, message.peer, message.tag, block);
            self.messages.insert((storage, storages.copy(storage)), pending);
        }
        Ok(())
    }

    /// Posts the receives of an action; in a message-driven stage once their buffers are free.
    fn post(&mut self, interpreter: &mut Interpreter<'_, B>, action: Action) -> Done {
        let program = interpreter.rank.program;
        interpreter.storages.select(action.microbatch);
        for message in &program.section(action).receives {
            interpreter.communicators.enter(message.layer, "receive")?;
            let storage = program.value(message.value).storage;
            if program.is_message_driven() {
                // What was received for an earlier microbatch may still be on its way to the next stage.
                self.finish(interpreter, message, "release", action)?;
            } else {
                interpreter.storages.begin(storage)?;
            }
            let Interpreter { communicators, storages, .. } = &mut *interpreter;
            let block = storages.take(storage)?;
            let stages = communicators.group(Axis::Pipe.only());
            let pending = communicators.context.receive::<B::Stored, _>(stages, message.peer, message.tag, block);
            self.messages.insert((storage, storages.copy(storage)), pending);
        }
        interpreter.storages.select(interpreter.step.microbatch);
        Ok(())
    }

    /// Waits until the sends of an action are done, and gives their buffers back.
    fn release(&mut self, interpreter: &mut Interpreter<'_, B>, action: Action) -> Done {
        let program = interpreter.rank.program;
        interpreter.storages.select(action.microbatch);
        for message in &program.section(action).sends {
            self.finish(interpreter, message, "release", action)?;
            interpreter.storages.end(program.value(message.value).storage)?;
        }
        interpreter.storages.select(interpreter.step.microbatch);
        Ok(())
    }

    /// Waits for a message of the selected microbatch, if it is in flight.
    fn finish(
        &mut self,
        interpreter: &mut Interpreter<'_, B>,
        message: &Message,
        what: &'static str,
        action: Action,
    ) -> Done {
        let storage = interpreter.rank.storage(message.value);
        if let Some(pending) = self.messages.remove(&(storage, interpreter.storages.copy(storage))) {
            interpreter.communicators.enter(message.layer, what)?;
            let block = interpreter.timed(what, message.layer, Some(action), |_| Ok(pending.wait()?))?;
            interpreter.storages.put(storage, block);
        }
        Ok(())
    }
}

/// Continues with a microbatch.
fn select<B: Backend>(interpreter: &mut Interpreter<'_, B>, microbatch: usize) {
    interpreter.step.microbatch = microbatch;
    interpreter.storages.select(microbatch);
}
