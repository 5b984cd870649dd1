//! The optimizer's states of a rank as the host sees them, wherever they lie.

use quadrille_step::ParameterId;

use crate::tier::State;
use crate::{Backend, EngineError, RankEngine};

impl<B: Backend> RankEngine<'_, B> {
    /// Lets the host look at the states of one kind of what this rank updates of a parameter; `None`: there are none.
    pub(crate) fn state<R>(
        &self,
        parameter: ParameterId,
        state: State,
        read: impl FnOnce(&[B::Real]) -> R,
    ) -> Result<Option<R>, EngineError> {
        if let Some(streamed) = &self.streamed {
            return Ok(streamed.read(parameter, state)?.map(|numbers| read(&numbers)));
        }
        let view = self.states.get(parameter.0).and_then(|states| states.view(state));
        view.map(|view| self.backend.download(view, read)).transpose()
    }

    /// Lets the host change them.
    pub(crate) fn change_state<R>(
        &mut self,
        parameter: ParameterId,
        state: State,
        write: impl FnOnce(&mut [B::Real]) -> R,
    ) -> Result<Option<R>, EngineError> {
        if let Some(streamed) = &mut self.streamed {
            let Some(mut numbers) = streamed.read(parameter, state)? else { return Ok(None) };
            let result = write(&mut numbers);
            streamed.write(parameter, state, &numbers)?;
            return Ok(Some(result));
        }
        let view = self.states.get_mut(parameter.0).and_then(|states| states.view_mut(state));
        view.map(|mut view| self.backend.upload(&mut view, write)).transpose()
    }
}
