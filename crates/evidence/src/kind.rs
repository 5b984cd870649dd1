//! Kinds of runs: what a published run must share with a planned one to say anything about its time.

use std::fmt;
use std::sync::LazyLock;

use quadrille_cost::native::Framework;
use quadrille_spec::{Device, ElementType, Model};

/// Published runs of a kind that a band needs at least: one alone is no distribution.
const LEAST: usize = 2;
/// Tokens of a sequence up to which runs are of one class: pre-training, long contexts, and what lies beyond both.
const LENGTHS: [f64; 2] = [16_384.0, 131_072.0];
/// Data-sheet numbers of a described device over the lowest and the highest of its generation's presets. What was measured stays
/// below a data sheet.
const SAME_DEVICE: [f64; 2] = [0.5, 1.5];

/// Devices of one architecture, which reach about the same fractions of their peaks.
struct Generation {
    name: &'static str,
    presets: &'static [&'static str],
}

/// Generations of which runs are published; any other device is one of its own.
const GENERATIONS: [Generation; 3] = [
    Generation { name: "A100", presets: &["a100-40", "a100-80"] },
    Generation { name: "Hopper", presets: &["h100", "h200", "gh200"] },
    Generation { name: "Blackwell", presets: &["b200", "gb200", "b300", "gb300"] },
];

impl Generation {
    /// Generation that a device's name contains as a word: `NVIDIA H100 80GB HBM3` is of Hopper.
    fn named(device: &str) -> Option<&'static Self> {
        let is_word = |preset: &&str| {
            let model = preset.split('-').next().unwrap_or(preset);
            device.split(|letter: char| !letter.is_alphanumeric()).any(|word| word.eq_ignore_ascii_case(model))
        };
        GENERATIONS.iter().find(|generation| generation.presets.iter().any(is_word))
    }

    /// True if a device of this name has about the generation's peak and bandwidth: what a sweep or a file makes four times as
    /// fast is another device.
    fn has(&self, device: &Device) -> bool {
        static PRESETS: LazyLock<Vec<Device>> = LazyLock::new(|| {
            let names = GENERATIONS.iter().flat_map(|generation| generation.presets);
            names.filter_map(|name| Device::preset(name).ok()).collect()
        });
        let presets = || PRESETS.iter().filter(|preset| self.presets.contains(&preset.name.as_str()));
        let is_near = |number: fn(&Device) -> f64| {
            let lowest = presets().map(number).fold(f64::INFINITY, f64::min);
            let highest = presets().map(number).fold(0.0, f64::max);
            (SAME_DEVICE[0] * lowest..=SAME_DEVICE[1] * highest).contains(&number(device))
        };
        is_near(|device| device.peak.of(ElementType::F16).unwrap_or(device.peak.single))
            && is_near(|device| device.memory_bandwidth)
    }
}

/// Kinds of models whose steps have parts of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ModelKind {
    Dense,
    Experts,
    LatentAttention,
    Patches,
}

impl ModelKind {
    /// Kind of a model; of one with several such parts the one of which fewer runs are published.
    fn of(model: &Model) -> Self {
        match () {
            () if model.patch_values.is_some() => Self::Patches,
            () if model.blocks.kinds().iter().any(|block| block.attention.latent.is_some()) => Self::LatentAttention,
            () if model.has_experts() => Self::Experts,
            () => Self::Dense,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Dense => "dense models",
            Self::Experts => "mixtures of experts",
            Self::LatentAttention => "models with latent attention",
            Self::Patches => "models of patches",
        }
    }
}

/// Traits that runs of a kind share, the most general first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shared {
    Device,
    Program,
    Model,
    Products,
    Length,
}

impl Shared {
    const ALL: [Self; 5] = [Self::Device, Self::Program, Self::Model, Self::Products, Self::Length];
}

/// The kind of a run.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Kind {
    /// Name of the device.
    device: String,
    /// Its generation, where runs of that are published.
    generation: Option<&'static str>,
    /// True if parameters are sharded and gathered for each use (FSDP, ZeRO 3), else they are held as Megatron-LM does.
    sharded: bool,
    model: ModelKind,
    /// True if operands of products have fewer than 16 bits.
    narrow: bool,
    /// Class of the sequence's length, an index of [`LENGTHS`] or behind them.
    length: usize,
}

impl Kind {
    /// Kind of a run on a described device.
    pub(crate) fn of(model: &Model, device: Option<&Device>, framework: &Framework, seq_len: usize) -> Self {
        let generation = device.and_then(|device| Generation::named(&device.name).filter(|it| it.has(device)));
        // A name alone makes no device: numbers of another one do not get its runs.
        let is_known = |device: &&Device| generation.is_some() || Generation::named(&device.name).is_none();
        Self {
            device: device.filter(is_known).map_or(String::new(), |device| device.name.clone()),
            generation: generation.map(|it| it.name),
            sharded: framework.gathers_blocks,
            model: ModelKind::of(model),
            narrow: framework.numbers.products.is_some(),
            length: length_class(seq_len as f64),
        }
    }

    /// Kind of a published run of the table: with experts if ranks share them, as all those do that are known.
    pub(crate) fn published(device: &str, sharded: bool, narrow: bool, tokens: f64, expert_ranks: usize) -> Self {
        Self {
            device: device.to_owned(),
            generation: Generation::named(device).map(|it| it.name),
            sharded,
            model: if expert_ranks > 1 { ModelKind::Experts } else { ModelKind::Dense },
            narrow,
            length: length_class(tokens),
        }
    }

    fn shares(&self, run: &Self, shared: Shared) -> bool {
        match shared {
            Shared::Device => {
                self.generation.is_some_and(|generation| run.generation == Some(generation))
                    || (!self.device.is_empty() && self.device == run.device)
            }
            Shared::Program => self.sharded == run.sharded,
            Shared::Model => self.model == run.model,
            Shared::Products => self.narrow == run.narrow,
            Shared::Length => self.length == run.length,
        }
    }

    /// Number of published runs of this kind.
    ///
    /// # Errors
    /// Fewer than a band needs.
    pub(crate) fn count<'a>(
        &self,
        device: &str,
        framework: &Framework,
        runs: impl Iterator<Item = &'a Self>,
    ) -> Result<usize, MissingRuns> {
        let mut runs: Vec<&Self> = runs.collect();
        for (at, shared) in Shared::ALL.into_iter().enumerate() {
            runs.retain(|run| self.shares(run, shared));
            if runs.len() < LEAST {
                let kind = self.described(device, framework, &Shared::ALL[..=at]);
                return Err(MissingRuns { runs: runs.len(), kind });
            }
        }
        Ok(runs.len())
    }

    /// Words for these traits: `of mixtures of experts by fsdp on b200 or another Blackwell device`.
    fn described(&self, device: &str, framework: &Framework, shared: &[Shared]) -> String {
        let word = |of: Shared, words: String| if shared.contains(&of) { words } else { String::new() };
        let device = match (device, self.generation) {
            ("", _) => "a device that is not described".to_owned(),
            (device, Some(generation)) => format!("{device} or another {generation} device"),
            (device, None) => format!("{device} or a device of its generation"),
        };
        let bits = if self.narrow { "fewer than 16 bits" } else { "16 bits" };
        let length = match (LENGTHS.get(self.length), self.length.checked_sub(1).and_then(|below| LENGTHS.get(below))) {
            (Some(most), None) => format!(", of up to {most} tokens a sequence"),
            (Some(most), Some(least)) => format!(", of {least} to {most} tokens a sequence"),
            (None, least) => format!(", of more than {} tokens a sequence", least.unwrap_or(&0.0)),
        };
        word(Shared::Model, format!("of {} ", self.model.name()))
            + &word(Shared::Program, format!("by {} ", framework.name))
            + &format!("on {device}")
            + &word(Shared::Products, format!(", products in {bits}"))
            + &word(Shared::Length, length)
    }
}

fn length_class(tokens: f64) -> usize {
    LENGTHS.iter().filter(|most| tokens > **most).count()
}

/// Published runs that a band would need.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingRuns {
    /// Runs that there are.
    pub runs: usize,
    /// What they share with the planned one.
    pub kind: String,
}

impl MissingRuns {
    /// Runs of this program's engine, which nobody has published.
    pub(crate) fn of_engine() -> Self {
        Self { runs: 0, kind: format!("by {}", Framework::QUADRILLE.name) }
    }
}

impl fmt::Display for MissingRuns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.runs {
            0 => write!(f, "no published runs of this kind: none {}", self.kind),
            runs => write!(f, "too few published runs of this kind: {runs} {}, fewer than {LEAST}", self.kind),
        }
    }
}
