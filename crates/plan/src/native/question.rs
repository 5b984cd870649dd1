//! What is asked of a search.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use quadrille_cost::native::{Candidate, Framework, Learned, Numbers, Price, PriceError};
use quadrille_spec::{Cluster, FlopsConvention, Imbalance, Layout, LayoutFile, Model, SpecError, quantities};

use super::budget::Budget;
use super::explain::sensitivities;
use super::explanation::Explanation;
use super::nothing::Nothing;
use super::placement::devices_of_nodes;
use super::ranking::Ranked;
use super::search::Search;
use super::setting::Setting;
use super::space::Space;
use crate::export;

/// What is trained where by what, which layouts are tried, and what is to be known of them.
#[derive(Debug, Clone)]
pub struct Question {
    /// What is trained.
    pub model: Model,
    /// Where.
    pub cluster: Cluster,
    /// What trains it.
    pub framework: Framework,
    /// How unequally ranks get rows of experts that drop nothing: the fullest is priced.
    pub imbalance: Imbalance,
    /// Devices of the layouts, at least 1.
    pub devices: usize,
    /// Sequences in a step.
    pub global_batch: usize,
    /// Tokens in a sequence.
    pub seq_len: usize,
    /// Tokens in a step, where these were said in place of its sequences: of longer sequences it has fewer.
    pub batch_tokens: Option<usize>,
    /// The values that are tried of every choice.
    pub space: Space,
    /// Most devices of a node that are used; `None`: all.
    pub per_node: Option<usize>,
    /// What of each device's memory stays free.
    pub reserve: Reserve,
    /// Tokens of the whole training, for its days and device-hours.
    pub tokens: Option<f64>,
    /// Price of a device for an hour, for what the training costs, in the same currency.
    pub price_per_hour: Option<f64>,
    /// What the training may take, and what it is reckoned with.
    pub budget: Budget,
    /// How the FLOPs that the model needs are counted.
    pub flops_convention: FlopsConvention,
    /// Most looks of each search ([`Search::limit`]), which then ends with what it has found; `None`: all there are.
    pub limit: Option<u64>,
    /// Ends them whenever whoever asked does not want the answer any more.
    pub cancel: Cancel,
    /// What they learn of the model's programs: those who ask again may keep it.
    pub learned: Learned,
}

/// What searches and who waits for them tell each other: that nobody waits any more, and how far they are. Every copy of it says the
/// same.
///
/// ```
/// # use quadrille_plan::native::Cancel;
/// let asked = Cancel::default();
/// let searching = Cancel::default();
/// let copy = searching.clone();
/// copy.cancel();
/// assert!(searching.is_cancelled() && !asked.is_cancelled());
/// ```
#[derive(Debug, Clone, Default)]
pub struct Cancel(Arc<Told>);

#[derive(Debug, Default)]
struct Told {
    is_cancelled: AtomicBool,
    /// Cuts of grids that were searched, and those that are known of.
    done: AtomicUsize,
    of: AtomicUsize,
}

impl Cancel {
    /// Ends all searches of the question, and of its copies.
    pub fn cancel(&self) {
        self.0.is_cancelled.store(true, Ordering::Relaxed);
    }

    /// Whether it was said.
    pub fn is_cancelled(&self) -> bool {
        self.0.is_cancelled.load(Ordering::Relaxed)
    }

    /// How many parts of how many are searched, of those that are known of now.
    pub fn searched(&self) -> (usize, usize) {
        (self.0.done.load(Ordering::Relaxed), self.0.of.load(Ordering::Relaxed))
    }

    /// So many parts are to be searched, too.
    pub(super) fn finds(&self, parts: usize) {
        self.0.of.fetch_add(parts, Ordering::Relaxed);
    }

    /// So many of them are done.
    pub(super) fn passes(&self, parts: usize) {
        self.0.done.fetch_add(parts, Ordering::Relaxed);
    }
}

/// Memory of a device that a plan leaves free.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Reserve {
    /// This fraction of the memory, from 0 to below 1.
    Fraction(f64),
    /// This many bytes.
    Bytes(u64),
    /// So much that this part of published runs would fit, from 0.5 to below 1: by what the framework's runs took beside their
    /// tensors.
    Runs(f64),
}

impl Reserve {
    /// The part of runs that fits where nobody says another. What published runs out of memory are called fitting by it, and which
    /// that ran too large, `quadrille validate published` tells.
    pub const USUAL_RUNS: f64 = 0.65;

    /// The part of runs that fit of a layout which is recommended where nobody says another part, if there is such a layout.
    pub const SAFE_RUNS: f64 = 0.95;

    /// Where nobody says: [`Self::USUAL_RUNS`], or, of a framework whose runs are not known to differ, a twentieth.
    pub fn usual(framework: &Framework) -> Self {
        if framework.reserved_deviation > 0 { Self::Runs(Self::USUAL_RUNS) } else { Self::Fraction(0.05) }
    }

    /// Bytes that stay free of `memory` bytes by a framework.
    ///
    /// # Errors
    /// All of them, or more; runs of a framework that are not known to differ.
    pub fn of(self, memory: u64, framework: &Framework) -> Result<u64, SpecError> {
        let bytes = match self {
            Self::Fraction(fraction) => (fraction * memory as f64) as u64,
            Self::Bytes(bytes) => bytes,
            Self::Runs(part) if framework.reserved_deviation == 0 => {
                let rule = format!("{} allocates what is predicted, in every run", framework.name);
                let value = format!("runs:{:.1}%", 100.0 * part);
                return Err(SpecError::invalid("`search.memory_reserve`", value, rule, "reserve e.g. 5%, or 4GB"));
            }
            Self::Runs(part) => framework.reserve_of_runs(part, memory),
        };
        if bytes < memory {
            return Ok(bytes);
        }
        let rule = format!("a device has {memory} bytes, of which something is left to use");
        Err(SpecError::invalid("`search.memory_reserve`", bytes, rule, "reserve less, e.g. 5%"))
    }
}

impl fmt::Display for Reserve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Fraction(part) => write!(f, "{}%", percent(part)),
            Self::Runs(part) => write!(f, "runs:{}%", percent(part)),
            Self::Bytes(bytes) => write!(f, "{bytes}B"),
        }
    }
}

/// The shortest number of per cent that is exactly this part when it is divided by 100.
fn percent(part: f64) -> String {
    let written = |digits: usize| format!("{:.digits$}", 100.0 * part);
    let is_exact = |text: &String| text.parse::<f64>().is_ok_and(|percent| percent / 100.0 == part);
    (0..=17).map(written).find(is_exact).unwrap_or_else(|| format!("{:e}", 100.0 * part))
}

impl FromStr for Reserve {
    type Err = SpecError;

    /// Reads `5%`, `4GB`, `512MiB`, `0`, or `runs:97%`.
    fn from_str(text: &str) -> Result<Self, SpecError> {
        let invalid = || {
            let rule = "it is a part of a device's memory, bytes, or the part of runs that fit, of at least 50%";
            SpecError::invalid("memory_reserve", text, rule, "write e.g. 5%, 4GB, 512MiB or runs:97%")
        };
        if let Some(part) = text.strip_prefix("runs:") {
            let percent: f64 = part.strip_suffix('%').and_then(|part| part.parse().ok()).ok_or_else(invalid)?;
            let is_part = (50.0..100.0).contains(&percent);
            return if is_part { Ok(Self::Runs(percent / 100.0)) } else { Err(invalid()) };
        }
        if let Some(percent) = text.strip_suffix('%') {
            let percent: f64 = percent.trim().parse().map_err(|_| invalid())?;
            let is_part = (0.0..100.0).contains(&percent);
            return if is_part { Ok(Self::Fraction(percent / 100.0)) } else { Err(invalid()) };
        }
        if text == "0" {
            return Ok(Self::Bytes(0));
        }
        // A number without a unit may be meant as per cent.
        let bytes = quantities::bytes(text).ok_or_else(invalid)?;
        if (0.0..1e18).contains(&bytes) { Ok(Self::Bytes(bytes as u64)) } else { Err(invalid()) }
    }
}

impl Question {
    /// Which of all layouts on so many devices trains the model on so many sequences a step best: of the model's usual length, with the
    /// framework's usual reserve, with experts that get equal loads, and without limits.
    pub fn new(model: Model, cluster: Cluster, framework: Framework, devices: usize, global_batch: usize) -> Self {
        let framework = framework.on(&cluster);
        Self {
            seq_len: model.seq_len,
            batch_tokens: None,
            model,
            cluster,
            framework,
            imbalance: Imbalance::EQUAL,
            devices,
            global_batch,
            space: Space::default(),
            per_node: None,
            reserve: Reserve::usual(&framework),
            tokens: None,
            price_per_hour: None,
            budget: Budget::default(),
            flops_convention: FlopsConvention::default(),
            limit: None,
            cancel: Cancel::default(),
            learned: Learned::default(),
        }
    }

    /// What is asked of one layout, by [`Self::explain`].
    ///
    /// # Errors
    /// As [`Self::reserved`].
    pub fn of(
        model: Model,
        cluster: Cluster,
        framework: Framework,
        layout: &Layout,
        reserve: Reserve,
    ) -> Result<Self, SpecError> {
        let devices = layout.grid.ranks();
        let batch = layout.global_batch;
        let open = Self::new(model, cluster, framework, devices, batch);
        let question = Self { seq_len: layout.seq_len, per_node: Some(layout.per_node), reserve, ..open };
        question.reserved()?;
        Ok(question)
    }

    /// Devices of so many whole nodes.
    ///
    /// # Errors
    /// A cluster whose nodes have no size.
    pub fn devices_of_nodes(&self, nodes: usize) -> Result<usize, SpecError> {
        devices_of_nodes(&self.cluster, self.per_node, nodes)
    }

    /// Bytes of a device that stay free; 0 where its memory is not known.
    ///
    /// # Errors
    /// More than a device has ([`Reserve::of`]).
    pub fn reserved(&self) -> Result<u64, SpecError> {
        self.cluster.device_memory.map_or(Ok(0), |memory| self.reserve.of(memory, &self.trainer()))
    }

    /// Bytes of a device within which [`Reserve::SAFE_RUNS`] of runs fit; `None` where another reserve was asked for, or runs are
    /// not known to differ.
    pub fn safe_capacity(&self) -> Option<u64> {
        let is_usual = self.reserve == Reserve::Runs(Reserve::USUAL_RUNS);
        let memory = self.cluster.device_memory.filter(|_| is_usual)?;
        memory.checked_sub(self.trainer().reserve_of_runs(Reserve::SAFE_RUNS, memory))
    }

    /// The framework on the question's number of devices.
    fn trainer(&self) -> Framework {
        self.framework.on_devices(self.devices)
    }

    /// What layouts are compared for.
    ///
    /// # Errors
    /// As [`Self::reserved`].
    pub fn setting(&self) -> Result<Setting<'_>, SpecError> {
        self.reserved()?;
        let open = Setting {
            model: &self.model,
            cluster: &self.cluster,
            framework: self.framework,
            imbalance: &self.imbalance,
            global_batch: self.global_batch,
            seq_len: self.seq_len,
            most_of_node: self.per_node,
            per_node: None,
            reserve: Some(self.reserve),
            capacity: None,
            learned: Some(&self.learned),
        };
        Ok(open.on_devices(self.devices))
    }

    /// The search for the `top` fastest.
    ///
    /// # Errors
    /// As [`Self::reserved`]; choices for experts or a vocabulary of a model that has none.
    pub fn search(&self, top: usize) -> Result<Search<'_>, SpecError> {
        self.space.check_used(&self.model)?;
        let search = Search::new(self.setting()?, self.devices, self.space.clone(), top);
        Ok(Search { deadline: self.deadline(), limit: self.limit, watch: self.cancel.clone(), ..search })
    }

    /// Prices one layout and says why it costs that; layouts with other pieces or groups than a search tries have a price, too.
    ///
    /// # Errors
    /// As [`Self::reserved`]; what cannot be priced.
    pub fn explain(&self, layout: &Layout) -> Result<Explanation, PriceError> {
        let setting = self.setting()?;
        let ranked = Ranked { candidate: Candidate::of(layout, &self.cluster), price: setting.price(layout)? };
        let sensitivities = sensitivities(&setting, layout, &self.cancel)?;
        Explanation::new(&setting, layout, ranked, sensitivities, None, &self.cancel)
    }

    /// Checks that the framework can start a layout, as exports and searches do.
    ///
    /// # Errors
    /// A rule of the framework that the layout breaks; types of numbers that it does not store with states sharded so.
    pub fn check_runs(&self, layout: &Layout) -> Result<(), SpecError> {
        let Some(framework) = export::Framework::of_priced(&self.framework) else { return Ok(()) };
        self.check_numbers()?;
        framework.check(&self.model, layout)?;
        framework.check_offload(layout)?;
        framework.check_moments(self.framework.numbers.moments, layout)
    }

    /// Checks that the framework has the types of numbers that were asked for.
    ///
    /// # Errors
    /// A type that it lacks.
    pub fn check_numbers(&self) -> Result<(), SpecError> {
        let framework = export::Framework::of_priced(&self.framework);
        framework.map_or(Ok(()), |framework| framework.check_numbers(&self.framework))
    }

    /// Parts of a layout and types of numbers that the framework has in another way or lacks, each with what it does instead, and why
    /// the model or the layout is not exported, if it is not.
    pub fn differences(&self, layout: &Layout) -> Vec<String> {
        let Some(framework) = export::Framework::of_priced(&self.framework) else { return Vec::new() };
        let mut differences = framework.differences(layout, self.framework.numbers);
        let target = export::Target {
            gpus_per_node: layout.per_node,
            precision: export::Precision::of(self.framework.dtype),
            numbers: Numbers::default(),
            planned: Some(self.framework),
        };
        let refused = export::export(framework, &self.model, layout, &target).err();
        differences.extend(refused.map(|error| format!("export to {framework} is refused: {error}")));
        differences
    }

    /// Makes sure that somebody waits for the answer.
    pub(super) fn check_wanted(&self) -> Result<(), Nothing> {
        if self.cancel.is_cancelled() { Err(Nothing::Cancelled { devices: self.devices }) } else { Ok(()) }
    }

    /// Whether a layout fits into the devices, less what stays free; `None` where their memory is not known.
    ///
    /// # Errors
    /// As [`Self::reserved`].
    pub fn fits(&self, price: &Price) -> Result<Option<bool>, SpecError> {
        Ok(self.setting()?.capacity.map(|capacity| price.memory.total() <= capacity))
    }

    /// The layout of what a search has found.
    ///
    /// # Errors
    /// None for what a search of this question has found.
    pub fn layout(&self, ranked: &Ranked) -> Result<Layout, SpecError> {
        self.setting()?.layout(&ranked.candidate)
    }

    /// The same as a file, [`LayoutFile`], which keeps what it was planned for.
    ///
    /// # Errors
    /// None for what a search of this question has found.
    pub fn layout_file(&self, ranked: &Ranked) -> Result<String, SpecError> {
        LayoutFile::of(&self.layout(ranked)?).planned_for(self.framework.planned()).to_toml()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserves_are_parts_or_bytes() {
        let of = |text: &str| text.parse::<Reserve>()?.of(80_000_000_000, &Framework::MEGATRON);
        assert_eq!(of("5%"), Ok(4_000_000_000));
        assert_eq!((of("4gb"), of("512MiB"), of("0")), (Ok(4_000_000_000), Ok(536_870_912), Ok(0)));
        for wrong in [
            "",
            "five",
            "5",
            "100%",
            "-1%",
            "nan%",
            "4TB",
            "-4GB",
            "1e30GB",
            "runs:",
            "runs:97",
            "runs:100%",
            "runs:nan%",
            "runs:49%",
        ] {
            let message = of(wrong).unwrap_err().to_string();
            assert!(message.contains("memory_reserve") && message.contains("512MiB"), "{message}");
        }
        let all = of("80GB").unwrap_err().to_string();
        assert!(all.contains("memory_reserve") && all.contains("a device has 80000000000 bytes"), "{all}");
    }
}
