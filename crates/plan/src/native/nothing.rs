//! Why a search found nothing, and what would help.

use quadrille_cost::native::PriceError;
use quadrille_spec::{Axis, SpecError, counted};

use super::constraint::Range;
use super::count::Tally;
use super::cuts::{Cut, cuts};
use super::feasible::Feasible;
use super::in_time::{InDays, rounded_days, said_days};
use super::memory_remedies::{FEW_LOOKS, LeastStates, MANY_LOOKS, MemoryRemedy};
use super::placement::domain;
use super::ranking::Ranked;
use super::search::{Found, Search};
use super::setting::Setting;
use super::space::divisors;

/// A search without a result.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Nothing {
    /// Nobody waits for the search any more.
    #[error("the search was cancelled before it found a layout of {devices} devices that fits; ask again")]
    Cancelled {
        /// The wanted number of devices.
        devices: usize,
    },
    /// The search was cut too early.
    #[error(
        "the search was stopped before it found a layout of {devices} devices that fits; allow it more looks (`search.limit`)"
    )]
    Stopped {
        /// The wanted number of devices.
        devices: usize,
    },
    /// Every configuration breaks a rule.
    #[error("no legal layout of {devices} devices: {refused}, most because '{rule}', e.g. {example}{}", near(feasible))]
    Illegal {
        /// The wanted number of devices.
        devices: usize,
        /// How many grids or configurations were refused.
        refused: String,
        /// The rule that refused most.
        rule: String,
        /// One of its refusals, with a remedy.
        example: String,
        /// Other numbers that have a legal layout.
        feasible: Box<Feasible>,
    },
    /// No legal layout fits.
    #[error(
        "no layout of {devices} devices fits into {}: the smallest needs {} (parameters {}, gradients {}, optimizer {}, \
         activations {}, buffers {}, framework {}); {}",
        gib(*capacity), gib(smallest.price.memory.total()), gib(smallest.price.memory.parameters),
        gib(smallest.price.memory.gradients), gib(smallest.price.memory.optimizer),
        gib(smallest.price.memory.activations), gib(smallest.price.memory.buffers),
        gib(smallest.price.memory.framework), more_memory(remedies)
    )]
    TooLarge {
        /// The wanted number of devices.
        devices: usize,
        /// Bytes that a layout may use of a device.
        capacity: u64,
        /// The layout that needs least.
        smallest: Box<Ranked>,
        /// Changes with which a layout fits.
        remedies: Vec<MemoryRemedy>,
    },
    /// States alone do not fit, in any legal layout.
    #[error(
        "no layout of {devices} devices fits into {}: parameters, gradients and optimizer states alone need at least {} of a \
         device ({} bytes for each of {} parameters, over {devices} devices){}; {}",
        gib(*capacity), gib(states.bytes), (10.0 * states.each).round() / 10.0, billions(states.parameters),
        beside(states.beside), more_memory(remedies)
    )]
    StatesTooLarge {
        /// The wanted number of devices.
        devices: usize,
        /// Bytes that a layout may use of a device.
        capacity: u64,
        /// Of the layout whose states need least.
        states: LeastStates,
        /// Changes with which a layout fits.
        remedies: Vec<MemoryRemedy>,
    },
    /// No legal layout's states fit into the memory of the host.
    #[error(
        "no layout of {devices} devices leaves the optimizer's states room in a device's share of its host's memory \
         (host_memory of the cluster); use more devices, sharded states (zero = 1), or keep them on the device (offload = none)"
    )]
    HostTooSmall {
        /// The wanted number of devices.
        devices: usize,
    },
    /// Every layout takes longer than the training may.
    #[error(
        "no layout is done within {}: the fastest of {} devices takes {}; {}",
        said_days(*days), fastest.devices, rounded_days(fastest.days), more_devices(enough.as_ref(), tried)
    )]
    TooSlow {
        /// Days that the training may take.
        days: f64,
        /// The fastest that was found.
        fastest: InDays,
        /// A number of devices that is done in time.
        enough: Option<InDays>,
        /// Other numbers of devices that were searched completely, none of which but `enough` is.
        tried: Vec<usize>,
    },
    /// Constraints that no grid, or no configuration of a legal grid, keeps; or what cannot be priced.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// The smallest layout has no price.
    #[error(transparent)]
    Price(#[from] PriceError),
}

/// Most changes that a message names.
const SHOWN: usize = 4;

/// What to do where no layout is done in time.
fn more_devices(enough: Option<&InDays>, tried: &[usize]) -> String {
    let tried: Vec<_> = tried.iter().map(usize::to_string).collect();
    match (enough, tried.as_slice()) {
        (Some(enough), _) => format!("{enough}"),
        (None, []) => "allow more days or fewer tokens, or more devices".to_owned(),
        (None, tried) => {
            format!("nor does one of {}; allow more days or fewer tokens", tried.join(", "))
        }
    }
}

/// What to do where nothing fits.
fn more_memory(remedies: &[MemoryRemedy]) -> String {
    let others = "devices with more memory, or fix and reserve less";
    let changes: Vec<String> = remedies.iter().take(SHOWN).map(ToString::to_string).collect();
    match changes.as_slice() {
        [] => format!("use more devices or {others}"),
        changes => format!("{}; else use {others}", changes.join("; ")),
    }
}

/// `140.6e9`, or all digits of less than a billion.
fn billions(number: u64) -> String {
    match number {
        ..1_000_000_000 => number.to_string(),
        _ => format!("{:.1}e9", number as f64 / 1e9),
    }
}

/// What the framework takes beside tensors.
fn beside(bytes: u64) -> String {
    if bytes == 0 { String::new() } else { format!(", and the framework {}", gib(bytes)) }
}

/// `1 grid is`, `2 grids are`.
fn are(number: u64, name: &str) -> String {
    let number = usize::try_from(number).unwrap_or(usize::MAX);
    counted(number, name) + if number == 1 { " is" } else { " are" }
}

/// Which other numbers have a legal layout.
fn near(Feasible { devices, batches }: &Feasible) -> String {
    let listed = |numbers: &[usize]| numbers.iter().map(usize::to_string).collect::<Vec<_>>().join(" or ");
    let named = [(devices, "devices"), (batches, "sequences in a step")];
    let named = named.iter().filter(|(numbers, _)| !numbers.is_empty());
    let named: Vec<_> = named.map(|(numbers, what)| format!("{} {what}", listed(numbers))).collect();
    if named.is_empty() { String::new() } else { format!("; nearest with a legal layout: {}", named.join(", or ")) }
}

/// `368 GiB`, `7.45 GiB`: three digits, fewer of what is small.
fn gib(bytes: u64) -> String {
    let amount = bytes as f64 / f64::from(1 << 30);
    let digits = match amount {
        ..10.0 => 2,
        ..100.0 => 1,
        _ => 0,
    };
    format!("{amount:.digits$} GiB")
}

impl Range {
    /// The number, or the bounds.
    fn shown(self) -> String {
        match (self.only(), self.most) {
            (Some(only), _) => only.to_string(),
            (None, usize::MAX) => format!("at least {}", self.least),
            (None, most) if self.least <= 1 => format!("at most {most}"),
            (None, most) => format!("{}..={most}", self.least),
        }
    }
}

impl Search<'_> {
    /// Why a search with this outcome found nothing.
    pub fn why_nothing(&self, found: &Found) -> Nothing {
        self.of_model().nothing(found).unwrap_or_else(Nothing::from)
    }

    fn nothing(&self, found: &Found) -> Result<Nothing, PriceError> {
        let devices = self.devices;
        if self.watch.is_cancelled() {
            return Ok(Nothing::Cancelled { devices });
        }
        // Whatever else is chosen.
        let capacity = self.setting.capacity.unwrap_or(u64::MAX);
        let has_legal = found.stopped || found.counts.legal > 0;
        let states = if has_legal { self.least_states()? } else { None };
        if let Some(states) = states.filter(|least| least.bytes + least.beside > capacity) {
            let remedies = self.memory_remedies(FEW_LOOKS)?;
            return Ok(Nothing::StatesTooLarge { devices, capacity, states, remedies });
        }
        if found.stopped {
            return Ok(Nothing::Stopped { devices });
        }
        if found.counts.grids == 0 {
            return Ok(self.no_grid().into());
        }
        if found.counts.legal_grids > 0 && found.counts.enumerated == 0 {
            return Ok(self.no_configuration().into());
        }
        if found.counts.legal == 0 {
            // Where grids are legal, what refuses the others is not to blame.
            let legal_grids = found.counts.legal_grids > 0;
            let most = found
                .refused
                .iter()
                .max_by_key(|(_, refused)| if legal_grids { refused.configurations } else { refused.grids });
            let rule = most.map_or_else(String::new, |(rule, _)| rule.to_string());
            let example =
                most.and_then(|(_, refused)| self.refusal(refused)).map_or_else(String::new, |e| e.to_string());
            let refused = match (legal_grids, found.counts) {
                (false, counts) => format!("{} refused", are(counts.grids, "grid")),
                (true, counts) => {
                    let configurations = are(counts.enumerated, "configuration");
                    format!(
                        "{} of {} legal, and of them {configurations} refused",
                        counts.legal_grids,
                        are(counts.grids, "grid")
                    )
                }
            };
            let feasible = Box::new(Feasible::near(self));
            return Ok(Nothing::Illegal { devices, refused, rule, example, feasible });
        }
        Ok(match self.smallest()? {
            Some(smallest) if smallest.price.memory.total() > capacity => {
                let remedies = self.memory_remedies(MANY_LOOKS)?;
                Nothing::TooLarge { devices, capacity, smallest: Box::new(smallest), remedies }
            }
            None if self.space.bucket.is_some() && self.limit.is_none() => Nothing::HostTooSmall { devices },
            _ => Nothing::Stopped { devices },
        })
    }

    /// Which constraint no grid keeps.
    fn no_grid(&self) -> SpecError {
        for axis in Axis::ALL {
            let range = self.space.sizes(axis);
            let divides = (range.least..=range.most.min(self.devices)).any(|size| self.devices.is_multiple_of(size));
            if !divides {
                let near = quadrille_spec::nearest_divisors(self.devices, range.least);
                let near = near.iter().map(|size| format!("{axis}={size}")).collect::<Vec<_>>().join(" or ");
                let rule = format!("the size of an axis divides the {} devices", self.devices);
                let devices = Feasible::near(self).devices;
                let devices = devices.iter().map(usize::to_string).collect::<Vec<_>>().join(" or ");
                let others = if devices.is_empty() { devices } else { format!(", or {devices} devices") };
                return SpecError::invalid(axis.name(), range.shown(), rule, format!("try {near}{others}"));
            }
        }
        let rule = format!("the sizes of all axes multiply to the {} devices", self.devices);
        SpecError::invalid("constraints", "all together", rule, "fix or bound fewer axes")
    }

    /// Which constraint leaves no configuration of any legal grid to be tried.
    fn no_configuration(&self) -> SpecError {
        let space = &self.space;
        let layers = self.setting.model.layers();
        let domain = domain(self.setting.cluster, self.setting.per_node, self.devices);
        let problem = match self.setting.problem() {
            Ok(problem) => problem,
            Err(error) => return error,
        };
        let cuts = cuts(&problem, &self.setting.rules(), space, self.devices, domain, &mut Tally::default(), None);
        let rows = space.expert_rows.unwrap_or(0);
        let has_rows = |cut: &Cut| self.setting.has_rows(&cut.plain(), rows);
        if space.expert_rows.is_some() && !cuts.cuts.iter().any(has_rows) {
            let Setting { model, imbalance, .. } = self.setting;
            let most = |cut: &Cut| imbalance.times_in(model, cut.plain().expert_ranks()).ceil() as usize;
            let needed = cuts.cuts.iter().map(most).min().unwrap_or(0);
            let rule =
                format!("the fullest rank has more rows of experts where loads are as unequal as {imbalance} says");
            let remedy = format!("use `layout.expert_rows` {needed}, or leave it out");
            return SpecError::invalid("`layout.expert_rows`", rows, rule, remedy);
        }
        // Shares of the batch and stages of every legal grid.
        let of_cut = |cut: &Cut| {
            let [.., expert] = cut.sizes;
            let outer = cut.places.iter().flat_map(|place| &place.outer);
            outer.map(move |outer| (expert * outer.data, outer.pipe)).collect::<Vec<_>>()
        };
        let mut ends: Vec<(usize, usize)> = cuts.cuts.iter().flat_map(of_cut).collect();
        ends.sort_unstable();
        ends.dedup();
        let shares = |data: usize| self.setting.global_batch / data;
        let microbatches = |data: usize| divisors(shares(data)).into_iter().filter(|n| space.microbatch.contains(*n));
        if ends.iter().all(|(data, _)| microbatches(*data).next().is_none()) {
            let share = shares(ends.first().map_or(1, |(data, _)| *data));
            let near = quadrille_spec::nearest_divisors(share, space.microbatch.least);
            let near = near.iter().map(usize::to_string).collect::<Vec<_>>().join(" or ");
            let rule = format!("it divides the sequences of a data rank, at most {share} here");
            return SpecError::invalid("microbatch", space.microbatch.shown(), rule, format!("try {near}"));
        }
        if ends.iter().all(|(_, pipe)| space.schedules(layers, *pipe).is_empty()) {
            let most = layers + 2;
            let rule = format!(
                "only the interleaved schedule, on at least 2 stages, has several chunks, and {layers} layers have at most {most} \
                 pieces (pipe * chunks)"
            );
            let remedy = "fix schedule=interleaved with fewer chunks or stages, or fix chunks=1";
            return SpecError::invalid("chunks", space.chunks.shown(), rule, remedy);
        }
        let rule = "a legal grid has a microbatch and a schedule that they allow";
        SpecError::invalid("constraints", "all together", rule, "fix or bound fewer choices")
    }
}
