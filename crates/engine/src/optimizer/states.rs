//! States of the optimizer on the device: moments and master copies.

use quadrille_step::{Parameter, StageProgram};

use super::tier::State;
use crate::backend::Kind;
use crate::{Backend, EngineError};

/// The states of the part of a parameter that a rank updates, in the type that is computed in.
pub(crate) struct OptimizerStates<B: Backend> {
    elements: usize,
    /// The weight before it is rounded; `None` where it is stored as it is computed.
    master: Option<B::Buffer>,
    /// Running means of the gradient and of its squares.
    moments: [B::Buffer; 2],
}

/// The states, to be written.
pub(crate) struct StatesMut<'s, B: Backend> {
    pub master: Option<B::ViewMut<'s>>,
    pub moments: [B::ViewMut<'s>; 2],
}

impl<B: Backend> OptimizerStates<B> {
    /// The sizes of what [`Self::new`] allocates.
    pub fn sizes(program: &StageProgram, parameter: &Parameter) -> impl Iterator<Item = u64> + use<B> {
        let bytes = (program.value(parameter.updated).local_elements * size_of::<B::Real>()) as u64;
        let masters = usize::from(program.master_bytes(parameter.updated) > 0);
        std::iter::repeat_n(bytes, masters + 2)
    }

    /// All zeros.
    pub fn new(backend: &B, program: &StageProgram, parameter: &Parameter) -> Result<Self, EngineError> {
        let elements = program.value(parameter.updated).local_elements;
        let allocate = || backend.allocate((elements * size_of::<B::Real>()) as u64);
        let has_master = program.master_bytes(parameter.updated) > 0;
        let master = if has_master { Some(allocate()?) } else { None };
        Ok(Self { elements, master, moments: [allocate()?, allocate()?] })
    }

    /// How many bytes they take.
    pub fn bytes(&self) -> u64 {
        self.moments.iter().chain(&self.master).map(B::bytes).sum()
    }

    /// Those of one kind, if there are any.
    pub fn view(&self, state: State) -> Option<B::View<'_>> {
        let [mean, squares] = &self.moments;
        let buffer = match state {
            State::Master => self.master.as_ref(),
            State::Mean => Some(mean),
            State::Squares => Some(squares),
        };
        buffer.map(|buffer| B::view(buffer, Kind::Real, 0..self.elements))
    }

    /// The same, to be written.
    pub fn view_mut(&mut self, state: State) -> Option<B::ViewMut<'_>> {
        let [mean, squares] = &mut self.moments;
        let buffer = match state {
            State::Master => self.master.as_mut(),
            State::Mean => Some(mean),
            State::Squares => Some(squares),
        };
        buffer.map(|buffer| B::view_mut(buffer, Kind::Real, 0..self.elements))
    }

    /// The first so many of all.
    pub fn first_mut(&mut self, elements: usize) -> StatesMut<'_, B> {
        StatesMut {
            master: self.master.as_mut().map(|master| B::view_mut(master, Kind::Real, 0..elements)),
            moments: self.moments.each_mut().map(|moment| B::view_mut(moment, Kind::Real, 0..elements)),
        }
    }
}
