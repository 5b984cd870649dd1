//! AxoNN's message-driven order of passes.

use quadrille_comm::Pending;
use quadrille_spec::Axis;
use quadrille_step::schedule::{Action, Pass};
use quadrille_step::{Layer, StageProgram, decision_axes};

use super::{Done, Pipeline, select};
use crate::interpreter::Interpreter;
use crate::state::storages::Block;
use crate::{Backend, BatchSource, EngineError};

impl<B: Backend> Pipeline<'_, B> {
    /// Runs passes as their messages arrive, backward first, with at most as many microbatches in flight as there are stages.
    /// The first rank of a stage decides, the others follow.
    pub(super) fn run_as_messages_arrive(&mut self, interpreter: &mut Interpreter<'_, B>, batch: &BatchSource) -> Done {
        let program = interpreter.rank.program;
        let microbatches = program.layout.microbatches();
        let limit = program.grid().size(Axis::Pipe).min(microbatches);
        let [mut forward, mut backward] = [Pass::Forward, Pass::Backward].map(|pass| Turn { pass, next: 0, posted: 0 });
        while backward.next < microbatches {
            let may_forward = forward.next < microbatches && forward.next < backward.next + limit;
            let may_backward = backward.next < forward.next;
            for (turn, may) in [(&mut forward, may_forward), (&mut backward, may_backward)] {
                if may && turn.posted == turn.next {
                    self.post(interpreter, turn.action())?;
                    turn.posted += 1;
                }
            }
            let of_forward = may_forward.then(|| forward.action());
            let of_backward = may_backward.then(|| backward.action());
            let choice = self.choose(interpreter, of_forward, of_backward)?;
            let turn = if choice == Pass::Forward { &mut forward } else { &mut backward };
            // The buffers that this pass sends may still be on their way from an earlier microbatch.
            let action = turn.action();
            select(interpreter, action.microbatch);
            for message in &program.section(action).sends {
                self.finish(interpreter, message, "release", action)?;
            }
            self.run_action(interpreter, action, batch)?;
            turn.next += 1;
        }
        while let Some(((storage, copy), pending)) = self.messages.pop_first() {
            let block = pending.wait()?;
            interpreter.storages.select(copy);
            interpreter.storages.put(storage, block);
        }
        interpreter.storages.select(interpreter.step.microbatch);
        Ok(())
    }

    /// The next pass, equal on all ranks of the stage.
    fn choose(
        &self,
        interpreter: &Interpreter<'_, B>,
        forward: Option<Action>,
        backward: Option<Action>,
    ) -> Result<Pass, EngineError> {
        let program = interpreter.rank.program;
        let communicators = &interpreter.communicators;
        let axes = decision_axes(program);
        let leads = program.grid().group_index(interpreter.rank.place, axes) == 0;
        communicators.enter(Layer::Step, "choose pass")?;
        let mut choice = 0.0;
        if leads {
            choice = if self.first_to_arrive(interpreter, forward, backward)? == Pass::Forward { 1.0 } else { 0.0 };
        }
        if program.grid().size_of(axes) > 1 {
            let group = communicators.group(axes);
            choice = communicators.context.broadcast::<f64, _>(group, 0, vec![choice]).wait()?[0];
        }
        Ok(if choice > 0.5 { Pass::Forward } else { Pass::Backward })
    }

    /// Waits until the messages of an action are here; backward first if both are.
    fn first_to_arrive(
        &self,
        interpreter: &Interpreter<'_, B>,
        forward: Option<Action>,
        backward: Option<Action>,
    ) -> Result<Pass, EngineError> {
        loop {
            let mut missing = Vec::new();
            for action in [backward, forward].into_iter().flatten() {
                match self.missing_message(interpreter.rank.program, action) {
                    Some(pending) => missing.push(pending),
                    None => return Ok(action.pass),
                }
            }
            Pending::wait_for_any(&missing);
            interpreter.communicators.enter(Layer::Step, "choose pass")?;
        }
    }

    /// A message that an action waits for.
    fn missing_message(&self, program: &StageProgram, action: Action) -> Option<&Pending<Block<B>>> {
        let messages = program.section(action).receives.iter().filter_map(|message| {
            let storage = program.value(message.value).storage;
            let copy = action.microbatch % program.storages[storage.0].instances;
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
    /// Microbatches whose messages are posted.
    posted: usize,
}

impl Turn {
    fn action(&self) -> Action {
        Action { pass: self.pass, microbatch: self.next, chunk: 0 }
    }
}
