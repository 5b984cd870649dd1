//! The optimizer of a rank: AdamW's constants, its states wherever they lie, and the rule of updates.

pub(crate) mod copies;
pub(crate) mod hyper;
pub(crate) mod loss_scale;
pub(crate) mod states;
pub(crate) mod streamed;
pub(crate) mod tier;

use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;

use quadrille_spec::{CollectiveKind, MemoryClass, Transfer};
use quadrille_step::{BucketRun, Parameter, ParameterId};
use quadrille_tensor::AdamW;

use crate::rank_program::RankProgram;
use crate::state::kept::KeptElements;
use crate::state::storages::Storages;
use crate::{Backend, EngineError, Hyper, UpdateRule, schedule};
use states::{OptimizerStates, StatesMut};
use streamed::Streamed;
use tier::State;

/// The optimizer of a rank.
pub(crate) struct Optimizer<'a, B: Backend> {
    rank: RankProgram<'a>,
    backend: Rc<B>,
    pub hyper: Hyper,
    /// Applied updates: at most as many as steps, and the time by which the optimizer corrects its moments.
    pub updates: u64,
    /// The power of two by which gradients are multiplied until the update.
    pub loss_scale: f64,
    /// The largest loss whose gradient is applied.
    pub loss_limit: f64,
    states: States<'a, B>,
}

/// Moments and master copies.
enum States<'a, B: Backend> {
    /// On the device, by parameter.
    Resident(BTreeMap<ParameterId, OptimizerStates<B>>),
    /// In the tier below the device, from which they come in buckets.
    Streamed(Streamed<'a, B>),
}

impl<'a, B: Backend> Optimizer<'a, B> {
    /// Allocates the states of a program that trains, all zero; offloaded ones in the file `number` of a folder, if there is
    /// one.
    ///
    /// # Errors
    /// The device or the disk has no room.
    pub fn new(
        rank: RankProgram<'a>,
        backend: Rc<B>,
        hyper: Hyper,
        folder: Option<&Path>,
        number: usize,
    ) -> Result<Self, EngineError> {
        let states = if rank.program.offloads() {
            States::Streamed(Streamed::new(&*backend, rank.program, folder, number)?)
        } else {
            States::Resident(resident_states(rank, &*backend)?)
        };
        Ok(Self { rank, backend, hyper, updates: 0, loss_scale: 1.0, loss_limit: f64::INFINITY, states })
    }

    /// Counts the memory of the states.
    pub fn count_memory(&self, storages: &mut Storages<'_, B>) {
        match &self.states {
            States::Resident(states) => {
                let bytes = states.values().map(OptimizerStates::bytes).sum();
                storages.count_state(MemoryClass::Optimizer, bytes);
            }
            States::Streamed(streamed) => {
                storages.count_state(MemoryClass::Optimizer, streamed.device_bytes());
                storages.count_host(streamed.host_bytes());
            }
        }
    }

    /// Factor of the loss's gradient, the only division of gradients in a step: by the global number of targets. Where some
    /// are ignored, the optimizer corrects the number, which is known only after the passes, and divides by the power of two
    /// that keeps gradients within the range of their type ([`UpdateRule::gradient_factor`]).
    pub fn loss_factor(&self) -> f64 {
        self.loss_scale / self.targets_per_step() as f64
    }

    /// Rule by which the totals of a step become its update.
    pub fn update_rule(&self) -> UpdateRule {
        UpdateRule {
            targets_per_step: self.targets_per_step(),
            loss_scale: self.loss_scale,
            clip: self.hyper.clip,
            loss_limit: self.loss_limit,
        }
    }

    fn targets_per_step(&self) -> usize {
        self.rank.program.layout.targets_per_step(&self.rank.program.model)
    }

    /// Constants of a parameter's update in a step: the learning rate follows the steps that were taken, the corrections of the
    /// moments follow the updates that were applied, since a skipped step leaves the moments as they are.
    pub fn constants(&self, parameter: ParameterId, step: u64) -> AdamW {
        let hyper = &self.hyper;
        let update = i32::try_from(self.updates + 1).unwrap_or(i32::MAX);
        let decays = self.parameter(parameter).decay;
        AdamW {
            learning_rate: schedule(hyper, step),
            beta1: hyper.beta1,
            beta2: hyper.beta2,
            epsilon: hyper.epsilon,
            weight_decay: if decays { hyper.weight_decay } else { 0.0 },
            correction1: 1.0 - hyper.beta1.powi(update),
            correction2: 1.0 - hyper.beta2.powi(update),
        }
    }

    fn parameter(&self, parameter: ParameterId) -> &'a Parameter {
        &self.rank.program.parameters[parameter.0]
    }

    /// Passes the first `elements` states of a parameter, or of a run of it in a bucket on the device, to `update`.
    ///
    /// # Errors
    /// There are no such states.
    pub fn with_states<R>(
        &mut self,
        parameter: ParameterId,
        run: Option<BucketRun>,
        elements: usize,
        update: impl FnOnce(StatesMut<'_, B>) -> R,
    ) -> Result<R, EngineError> {
        match (run, &mut self.states) {
            (Some(run), States::Streamed(streamed)) => Ok(streamed.with(run, elements, update)),
            (_, States::Resident(states)) => {
                let states = states.get_mut(&parameter).ok_or(EngineError::StatesLost)?;
                Ok(update(states.first_mut(elements)))
            }
            (None, States::Streamed(_)) => Err(EngineError::StatesLost),
        }
    }

    /// All states on the device, by parameter; none if they are offloaded.
    pub fn resident_mut(&mut self) -> BTreeMap<ParameterId, &mut OptimizerStates<B>> {
        match &mut self.states {
            States::Resident(states) => states.iter_mut().map(|(parameter, states)| (*parameter, states)).collect(),
            States::Streamed(_) => BTreeMap::new(),
        }
    }

    /// The offloaded states.
    ///
    /// # Errors
    /// States are not offloaded.
    pub fn streamed(&mut self) -> Result<&mut Streamed<'a, B>, EngineError> {
        match &mut self.states {
            States::Streamed(streamed) => Ok(streamed),
            States::Resident(_) => Err(EngineError::StatesLost),
        }
    }

    /// Fetches the version of offloaded states that was stored last from now on; a stage without parameters has none.
    pub fn adopt(&mut self) {
        if let States::Streamed(streamed) = &mut self.states {
            streamed.adopt();
        }
    }

    /// Bytes of offloaded states that have moved since the last call.
    pub fn take_moved(&mut self) -> BTreeMap<CollectiveKind, Transfer> {
        match &mut self.states {
            States::Streamed(streamed) => streamed.take_moved(),
            States::Resident(_) => BTreeMap::new(),
        }
    }

    /// Lets the host read the states of one kind of the part of a parameter that this rank updates, with zeros for pruned
    /// elements; `None`: there are none.
    pub fn read<R>(
        &self,
        kept: &KeptElements<'_, B>,
        parameter: ParameterId,
        state: State,
        read: impl FnOnce(&[B::Real]) -> R,
    ) -> Result<Option<R>, EngineError> {
        let of = self.parameter(parameter);
        if !of.is_trained() {
            return Ok(None);
        }
        let part = kept.part(parameter, of.updated)?;
        let read = |numbers: &[B::Real]| match part {
            None => read(numbers),
            Some(part) => read(&part.expanded(numbers)),
        };
        match &self.states {
            States::Streamed(streamed) => Ok(streamed.read(parameter, state)?.map(|numbers| read(&numbers))),
            States::Resident(states) => {
                let view = states.get(&parameter).and_then(|states| states.view(state));
                view.map(|view| self.backend.download(view, read)).transpose()
            }
        }
    }

    /// Lets the host change them.
    pub fn change<R>(
        &mut self,
        kept: &KeptElements<'_, B>,
        parameter: ParameterId,
        state: State,
        write: impl FnOnce(&mut [B::Real]) -> R,
    ) -> Result<Option<R>, EngineError> {
        let of = self.parameter(parameter);
        if !of.is_trained() {
            return Ok(None);
        }
        let part = kept.part(parameter, of.updated)?;
        let write = |numbers: &mut [B::Real]| match part {
            None => write(numbers),
            Some(part) => {
                let mut dense = part.expanded(numbers);
                let result = write(&mut dense);
                part.compress(&dense, numbers);
                result
            }
        };
        match &mut self.states {
            States::Streamed(streamed) => {
                let Some(mut numbers) = streamed.read(parameter, state)? else { return Ok(None) };
                let result = write(&mut numbers);
                streamed.write(parameter, state, &numbers)?;
                Ok(Some(result))
            }
            States::Resident(states) => {
                let view = states.get_mut(&parameter).and_then(|states| states.view_mut(state));
                view.map(|mut view| self.backend.upload(&mut view, write)).transpose()
            }
        }
    }
}

/// States on the device of all parameters that a rank trains.
fn resident_states<B: Backend>(
    rank: RankProgram<'_>,
    backend: &B,
) -> Result<BTreeMap<ParameterId, OptimizerStates<B>>, EngineError> {
    let program = rank.program;
    let parameters = program.parameters.iter().enumerate().filter(|_| program.trains());
    let trained = parameters.filter(|(_, parameter)| parameter.is_trained());
    let sizes = trained.clone().flat_map(|(_, parameter)| OptimizerStates::<B>::sizes(program, parameter));
    backend.reserve(&sizes.collect::<Vec<_>>())?;
    let states = |(index, parameter)| Ok((ParameterId(index), OptimizerStates::new(backend, program, parameter)?));
    trained.map(states).collect()
}
