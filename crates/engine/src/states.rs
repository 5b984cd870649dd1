//! The optimizer's states of a rank as the host sees them, wherever they lie.

use std::collections::BTreeMap;

use quadrille_step::ParameterId;

use crate::optimizer::OptimizerStates;
use crate::streamed::Streamed;
use crate::tier::State;
use crate::{Backend, EngineError, RankEngine};

impl<B: Backend> RankEngine<'_, B> {
    /// Lets the host look at the states of one kind of what this rank updates of a parameter, of a pruned one with zeros for
    /// what is not kept; `None`: there are none.
    pub(crate) fn state<R>(
        &self,
        parameter: ParameterId,
        state: State,
        read: impl FnOnce(&[B::Real]) -> R,
    ) -> Result<Option<R>, EngineError> {
        let of = &self.program.parameters[parameter.0];
        if !of.is_trained() {
            return Ok(None);
        }
        let part = self.kept_part(parameter, of.updated)?;
        let read = |numbers: &[B::Real]| match part {
            None => read(numbers),
            Some(part) => read(&part.expanded(numbers)),
        };
        if let Some(streamed) = &self.streamed {
            return Ok(streamed.read(parameter, state)?.map(|numbers| read(&numbers)));
        }
        let view = self.states.get(&parameter).and_then(|states| states.view(state));
        view.map(|view| self.backend.download(view, read)).transpose()
    }

    /// Lets the host change them.
    pub(crate) fn change_state<R>(
        &mut self,
        parameter: ParameterId,
        state: State,
        write: impl FnOnce(&mut [B::Real]) -> R,
    ) -> Result<Option<R>, EngineError> {
        let mut states = std::mem::take(&mut self.states);
        let mut streamed = self.streamed.take();
        let changed = self.change(parameter, state, &mut states, &mut streamed, write);
        (self.states, self.streamed) = (states, streamed);
        changed
    }

    fn change<R>(
        &self,
        parameter: ParameterId,
        state: State,
        states: &mut BTreeMap<ParameterId, OptimizerStates<B>>,
        streamed: &mut Option<Streamed<'_, B>>,
        write: impl FnOnce(&mut [B::Real]) -> R,
    ) -> Result<Option<R>, EngineError> {
        let of = &self.program.parameters[parameter.0];
        if !of.is_trained() {
            return Ok(None);
        }
        let part = self.kept_part(parameter, of.updated)?;
        let write = |numbers: &mut [B::Real]| match part {
            None => write(numbers),
            Some(part) => {
                let mut dense = part.expanded(numbers);
                let result = write(&mut dense);
                part.compress(&dense, numbers);
                result
            }
        };
        if let Some(streamed) = streamed {
            let Some(mut numbers) = streamed.read(parameter, state)? else { return Ok(None) };
            let result = write(&mut numbers);
            streamed.write(parameter, state, &numbers)?;
            return Ok(Some(result));
        }
        let view = states.get_mut(&parameter).and_then(|states| states.view_mut(state));
        view.map(|mut view| self.backend.upload(&mut view, write)).transpose()
    }
}
