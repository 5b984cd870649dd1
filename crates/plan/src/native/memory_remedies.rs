//! What makes room where no layout fits: changes that are named only after a layout was found that fits with them.

use std::fmt;

use quadrille_cost::native::{Framework, Moments, Numbers, PriceError, StateBytes};
use quadrille_spec::{Axis, ElementType, Layout};

use super::bounds::state_bytes;
use super::count::Tally;
use super::cuts::{Cut, cuts};
use super::placement::domain;
use super::search::Search;
use super::setting::Setting;
use super::space::Space;
use crate::export;

/// So many times as many devices are tried.
const TIMES: [usize; 3] = [2, 4, 8];

/// A grid has no more ranks.
const MOST: usize = 1 << 24;

/// Looks of the search that checks a remedy, beside usual layouts, where states alone do not fit: the answer is wanted at once.
pub(super) const FEW_LOOKS: u64 = 0;

/// The same where states fit as it is, and activations do not.
pub(super) const MANY_LOOKS: u64 = 1 << 20;

/// A change that makes room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryRemedy {
    /// The change, in words that name options by their keys.
    pub change: String,
    /// Devices, where it takes other ones.
    pub devices: Option<usize>,
    /// Bytes of parameters, gradients and the optimizer's states that the fullest device has with it, at least.
    pub states: u64,
}

impl fmt::Display for MemoryRemedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.devices {
            Some(devices) if self.change.is_empty() => write!(f, "{devices} devices have a layout that fits"),
            Some(devices) => write!(f, "{devices} devices with {} have one", self.change),
            None => write!(f, "with {} there is one", self.change),
        }
    }
}

/// Least bytes of states on the device that has most, in any legal layout.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LeastStates {
    /// Bytes of parameters, gradients and the optimizer's states.
    pub bytes: u64,
    /// The same for each parameter, if devices shared all of them.
    pub each: f64,
    /// Parameters of the model.
    pub parameters: u64,
    /// Bytes that the framework takes beside tensors.
    pub beside: u64,
}

impl Search<'_> {
    /// Least bytes of states of all grids that are legal; `None` where none is.
    pub(super) fn least_states(&self) -> Result<Option<LeastStates>, PriceError> {
        let beside = self.setting.framework.reserved_on(self.setting.cluster.device_memory);
        let least = self.legal_cuts()?.iter().filter_map(|cut| self.states_of(cut)).min();
        let parameters = self.setting.model.parameters();
        Ok(least.map(|all| {
            let bytes = all.saturating_sub(beside);
            LeastStates { bytes, each: bytes as f64 * self.devices as f64 / parameters as f64, parameters, beside }
        }))
    }

    fn legal_cuts(&self) -> Result<Vec<Cut>, PriceError> {
        let problem = self.setting.problem()?;
        let domain = domain(self.setting.cluster, self.setting.per_node, self.devices);
        let rules = self.setting.rules();
        let grids = self.most_grids();
        let found = cuts(&problem, &rules, &self.space, self.devices, domain, &mut Tally::default(), grids);
        // A sample of the grids proves nothing.
        Ok(if found.stopped { Vec::new() } else { found.cuts })
    }

    /// Least bytes of a cut, whatever its sizes of data and pipe, with what the framework takes.
    fn states_of(&self, cut: &Cut) -> Option<u64> {
        let Setting { model, cluster, framework, .. } = &self.setting;
        let mut outer: Vec<(usize, usize)> =
            cut.places.iter().flat_map(|place| &place.outer).map(|outer| (outer.data, outer.pipe)).collect();
        outer.sort_unstable();
        outer.dedup();
        let of = |(data, pipe): (usize, usize)| {
            let sizes = cut.sizes_with(data, pipe);
            let shared = [Axis::Context, Axis::Expert, Axis::Data].iter().any(|axis| sizes[*axis as usize] > 1);
            let bytes = |zero| {
                let on_device = self.space.bucket.is_none();
                let memory = cluster.device_memory;
                state_bytes(model, framework, sizes, cut.experts_over, zero, on_device, memory)
            };
            Space::where_it_counts(&self.space.zero, shared).iter().map(|zero| bytes(*zero)).min()
        };
        outer.into_iter().filter_map(of).min()
    }

    /// Changes with which a layout fits, those first that leave least states on a device: each by itself, and the narrowest
    /// numbers on more devices where that takes fewer. Each is checked by the bound of its states, then by the usual layouts, then
    /// by a search of so many `looks`.
    ///
    /// # Errors
    /// What cannot be priced.
    pub(super) fn memory_remedies(&self, looks: u64) -> Result<Vec<MemoryRemedy>, PriceError> {
        let mut found = self.in_narrower_numbers(looks)?;
        let has_numbers = !found.is_empty();
        for (change, search) in self.changed_on_these() {
            found.extend(search.remedy(change, None, looks)?);
        }
        let more = self.on_more_devices(String::new(), MOST, looks)?;
        if let Some((change, framework)) = self.narrower_numbers().pop().filter(|_| !has_numbers) {
            let below = more.as_ref().and_then(|more| more.devices).map_or(MOST, |devices| devices - 1);
            found.extend(self.trained_by(framework).on_more_devices(change, below, looks)?);
        }
        found.extend(more);
        found.sort_by_key(|remedy| remedy.states);
        Ok(found)
    }

    /// The narrowest numbers, if they make enough room, and the widest that do.
    fn in_narrower_numbers(&self, looks: u64) -> Result<Vec<MemoryRemedy>, PriceError> {
        let mut numbers = self.narrower_numbers();
        let narrowest = numbers.pop();
        let Some((change, framework)) = narrowest else { return Ok(Vec::new()) };
        let Some(remedy) = self.trained_by(framework).remedy(change, None, looks)? else { return Ok(Vec::new()) };
        for (change, framework) in numbers {
            if let Some(wider) = self.trained_by(framework).remedy(change, None, looks)? {
                return Ok(vec![remedy, wider]);
            }
        }
        Ok(vec![remedy])
    }

    /// What can be changed on as many devices, in words.
    fn changed_on_these(&self) -> Vec<(String, Self)> {
        let Setting { framework, cluster, .. } = self.setting;
        let mut changed = Vec::new();
        let has_host = cluster.device.as_ref().is_some_and(|device| device.host_bandwidth.is_some());
        let runner = export::Framework::of_priced(&framework);
        let offloads = runner.map_or(framework.is_own(), |runner| runner.offloads_states());
        if offloads && self.space.bucket.is_none() && has_host {
            let space = self.space.clone().with_bucket(Layout::BUCKET);
            changed.push(("`layout.offload` host".to_owned(), Self { space, ..self.clone() }));
        }
        let mut open = Space::default();
        open.keep_to(&framework);
        if open.zero.iter().any(|zero| !self.space.zero.contains(zero)) {
            let space = Space { zero: open.zero, ..self.space.clone() };
            changed.push(("`layout.zero` left open".to_owned(), Self { space, ..self.clone() }));
        }
        if cluster.device_memory > self.setting.capacity {
            let setting = Setting { capacity: cluster.device_memory, reserve: None, ..self.setting };
            changed.push(("`search.memory_reserve` 0".to_owned(), Self { setting, ..self.clone() }));
        }
        changed
    }

    /// Narrower types of gradients and moments that the framework has, in words, widest first: Megatron-LM's
    /// `--grad-reduce-in-bf16` and its precision-aware optimizer.
    fn narrower_numbers(&self) -> Vec<(String, Framework)> {
        let framework = self.setting.framework;
        if ![Framework::MEGATRON, Framework::MEGATRON_STORED].iter().any(|it| it.name == framework.name) {
            return Vec::new();
        }
        let bytes = |framework: &Framework| framework.states.gradient + framework.states.optimizer;
        let mut found = Vec::new();
        for gradients in [None, Some(ElementType::Bf16)] {
            for moments in [None, Some(Moments::Bf16), Some(Moments::Fp8)] {
                let Numbers { gradients: sums, moments: states, .. } = framework.numbers;
                let numbers =
                    Numbers { gradients: gradients.or(sums), moments: moments.or(states), ..framework.numbers };
                let said = [
                    gradients.map(|it| format!("`layout.gradients` {it}")),
                    moments.map(|it| format!("`search.moments` {it}")),
                ];
                let said: Vec<String> = said.into_iter().flatten().collect();
                found.push((said.join(" and "), in_other_formats(framework, numbers)));
            }
        }
        let has = |changed: &Framework| {
            export::Framework::of_priced(changed).is_none_or(|runner| runner.check_numbers(changed).is_ok())
        };
        found.retain(|(_, changed)| bytes(changed) < bytes(&framework) && has(changed));
        found.sort_by_key(|(_, changed)| std::cmp::Reverse(bytes(changed)));
        found
    }

    fn trained_by(&self, framework: Framework) -> Self {
        Self { setting: Setting { framework, learned: None, ..self.setting }, ..self.clone() }
    }

    /// The first of more devices, at most so many, on which a layout fits.
    fn on_more_devices(&self, change: String, most: usize, looks: u64) -> Result<Option<MemoryRemedy>, PriceError> {
        for devices in TIMES.map(|times| times * self.devices).into_iter().filter(|devices| *devices <= most) {
            let more = self.with_devices(devices);
            if self.watch.is_cancelled() || more.setting.problem()?.check_devices(devices).is_err() {
                break;
            }
            if let Some(remedy) = more.remedy(change.clone(), Some(devices), looks)? {
                return Ok(Some(remedy));
            }
        }
        Ok(None)
    }

    /// The change that has made this search, if its states may fit and a layout is found that does.
    fn remedy(&self, change: String, devices: Option<usize>, looks: u64) -> Result<Option<MemoryRemedy>, PriceError> {
        let Some(least) = self.least_states()? else { return Ok(None) };
        if self.setting.capacity.is_some_and(|capacity| least.bytes + least.beside > capacity) {
            return Ok(None);
        }
        let once = Self { top: 1, front: false, distinct: false, tolerance: None, brief: true, ..self.clone() };
        for limit in if looks == 0 { vec![0] } else { vec![0, looks] } {
            let found = Self { limit: Some(limit), ..once.clone() }.run()?;
            if !found.ranked.is_empty() {
                return Ok(Some(MemoryRemedy { change, devices, states: least.bytes }));
            }
        }
        Ok(None)
    }
}

/// The framework with other types of numbers, whatever those that it has.
fn in_other_formats(framework: Framework, numbers: Numbers) -> Framework {
    let present = framework.numbers.moments.unwrap_or(Moments::F32).bytes();
    let optimizer = framework.states.optimizer - present + Moments::F32.bytes();
    Framework { states: StateBytes { optimizer, ..framework.states }, ..framework }.in_formats(numbers)
}
