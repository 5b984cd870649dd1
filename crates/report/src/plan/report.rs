//! The report of a plan.

use quadrille_evidence::{Band, Oversized};
use quadrille_plan::goodput::{CheckpointTime, Failures};
use quadrille_plan::native::{Answer, Counts, Question, Ranked, RefusedBy, Search};
use quadrille_spec::{FlopsConvention, Imbalance, Origin, Planned, SpecError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::assumed::{AssumedShare, origins};
use super::explanation::PriceExplanation;
use super::headline::Headline;
use super::priced_layout::PricedLayout;
use crate::ReportVersion;
use crate::by_name::ByName;

/// The layouts that a search found, fastest first, and the one to run: what `plan --json` prints.
///
/// Times are in seconds, sizes in bytes, unless a field's name says otherwise.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PlanReport {
    /// Version of the document.
    pub version: ReportVersion,
    /// Name of the model.
    pub model: String,
    /// Name of the cluster.
    pub cluster: String,
    /// Framework that trains.
    pub framework: String,
    /// Table `planned` of layout files: the framework, and the element types that were asked for.
    pub planned: Planned,
    /// Part of the blocks' matrices that is pruned; null where nothing is.
    pub sparsity: Option<f64>,
    /// Rows of experts of the fullest rank as a multiple of the mean; of a run by the number of ranks that share experts.
    pub imbalance: ImbalanceReport,
    /// Convention by which the FLOPs of TFLOP/s and MFU are counted.
    pub flops_convention: FlopsConvention,
    /// Number of devices.
    pub gpus: usize,
    /// Sequences in a step.
    pub global_batch: usize,
    /// Tokens in a sequence.
    pub seq_len: usize,
    /// Origin of each number of the hardware.
    pub origins: ByName<Origin>,
    /// Bytes of a device; null where they are not known.
    pub device_memory_bytes: Option<u64>,
    /// Bytes of a device that stay free.
    pub reserved_bytes: u64,
    /// Numbers of grids and configurations that the search looked at.
    pub counts: SearchCounts,
    /// Refused grids and configurations by rule, most grids first.
    pub refusals: Vec<RefusedBy>,
    /// Seconds of the search.
    pub seconds: f64,
    /// True if a limit ended the search before it looked at everything.
    pub stopped: bool,
    /// Number of layouts left without a price, because they have too many passes or blocks.
    pub too_long: usize,
    /// Layouts, fastest first.
    pub plans: Vec<PricedLayout>,
    /// The recommended layout.
    pub advised: AdvisedLayout,
    /// Published runs of this device and kind of framework that ran, and those that this program calls too large; null where
    /// there are none.
    pub called_too_large: Option<Oversized>,
    /// Parts of the recommended layout that the framework has in another way or lacks, each with what it does instead.
    pub framework_differences: Vec<String>,
    /// Part of the step that rests on assumed numbers of the hardware; null where a limited search did not look at it.
    pub assumed: Option<AssumedShare>,
    /// Assumptions on failures; absent unless useful time was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failures: Option<FailureAssumptions>,
    /// Days after which the training is to be done; absent unless requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within_days: Option<f64>,
    /// Fewest devices of the front that are done in time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fewest_gpus: Option<usize>,
    /// Error band of the recommended layout; null where there are too few published runs like it.
    pub error_band: Option<Band>,
    /// Reason why there is no error band; null where there is one.
    pub error_band_reason: Option<String>,
    /// Layouts than which none has fewer devices, less time and less memory; absent unless they were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pareto: Option<Vec<PricedLayout>>,
    /// Numbers of devices that a limit left incomplete; with `pareto`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped_gpus: Option<Vec<usize>>,
    /// Reasons for the time of the recommended layout; absent unless they were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub explanation: Option<PriceExplanation>,
    /// Settings of the search that text mentions; no part of documents.
    #[serde(skip)]
    pub search: SearchSettings,
}

/// Rows of experts of the fullest rank as a multiple of the mean.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum ImbalanceReport {
    /// In every layout.
    Times(f64),
    /// As measured in a run, by the number of ranks that share experts.
    Measured(ByName<f64>),
}

/// Numbers of grids and configurations; `legal = priced + too_large + too_slow`, unless the search was stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SearchCounts {
    /// Grids.
    pub grids: u64,
    /// Grids that break no rule.
    pub legal_grids: u64,
    /// Configurations of legal grids.
    pub configurations: u64,
    /// Configurations that break no rule.
    pub legal: u64,
    /// Configurations that have a price.
    pub priced: u64,
    /// Priced configurations that fit into the devices.
    pub fitting: u64,
    /// Configurations whose bound of memory is too large.
    pub too_large: u64,
    /// Configurations whose bound of time is too long.
    pub too_slow: u64,
}

/// The recommended layout.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AdvisedLayout {
    /// Position in `plans`; null where it is not among them.
    pub index: Option<usize>,
    /// Part of the fastest step's time by which a simpler layout may be slower.
    pub tolerance: f64,
    /// Part of the recommended layout's time that the fastest saves.
    pub gain_of_fastest: f64,
    /// The layout.
    pub plan: PricedLayout,
}

/// Assumptions on failures of devices.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FailureAssumptions {
    /// Mean device-hours between failures of one device.
    pub mtbf_hours: f64,
    /// Bytes per second at which a device writes its states; null where the seconds of a checkpoint are given.
    pub checkpoint_bandwidth: Option<f64>,
    /// Seconds of a checkpoint; null where a bandwidth is given.
    pub checkpoint_s: Option<f64>,
    /// Seconds from a failure until training continues.
    pub restart_s: f64,
}

/// Settings of a search that its text mentions.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SearchSettings {
    /// The question.
    pub headline: Headline,
    /// Bytes that a layout may use of a device; `None`: any number.
    pub capacity: Option<u64>,
    /// Bytes within which most runs fit, where the usual reserve applies.
    pub safe_capacity: Option<u64>,
    /// True if runs of the framework are known to differ in what they take beside tensors.
    pub memory_varies: bool,
    /// Part of the fastest step's time by which a simpler layout may be slower; `None`: the fastest is recommended.
    pub tolerance: Option<f64>,
    /// Number of layouts that are shown.
    pub top: usize,
}

impl PlanReport {
    /// Layout file of one of its layouts, which `quadrille train --layout` reads.
    ///
    /// # Errors
    /// None that is known: every field is text, a number, a truth or a list of numbers.
    pub fn layout_file(&self, plan: &PricedLayout) -> Result<String, SpecError> {
        plan.layout.clone().planned_for(self.planned.clone()).to_toml()
    }

    /// Report of a search.
    ///
    /// # Errors
    /// None for what a search has found.
    pub fn new(answer: &Answer) -> Result<Self, SpecError> {
        let Answer { question, search, found, .. } = answer;
        let entry =
            |ranked: &Ranked| Ok(PricedLayout::new(question, &search.setting, ranked, &question.layout(ranked)?));
        let with_variants = |ranked: &Ranked| {
            let variants = answer.variants_of(ranked);
            Ok(PricedLayout { variants, ..entry(ranked)? })
        };
        let entries = |ranked: &[Ranked]| ranked.iter().map(entry).collect::<Result<Vec<_>, SpecError>>();
        let plans = found.ranked.iter().map(with_variants).collect::<Result<Vec<_>, SpecError>>()?;
        let plan = with_variants(&answer.advised)?;
        let advised = AdvisedLayout {
            index: found.ranked.iter().position(|ranked| *ranked == answer.advised),
            tolerance: search.tolerance.unwrap_or(0.0),
            gain_of_fastest: 1.0 - answer.best.price.seconds / answer.advised.price.seconds,
            plan,
        };
        let fewest = || answer.front.iter().map(|ranked| ranked.candidate.devices()).min();
        let explanation = answer.explanation.as_ref();
        Ok(Self {
            version: ReportVersion::CURRENT,
            model: question.model.name.clone(),
            cluster: question.cluster.name.clone(),
            framework: question.framework.name.to_owned(),
            planned: question.framework.planned(),
            sparsity: question.framework.sparsity.map(|sparsity| sparsity.part()),
            imbalance: ImbalanceReport::new(&question.imbalance),
            flops_convention: question.flops_convention,
            gpus: question.devices,
            global_batch: question.global_batch,
            seq_len: question.seq_len,
            origins: origins(&question.cluster),
            device_memory_bytes: question.cluster.device_memory,
            reserved_bytes: question.reserved()?,
            counts: SearchCounts::new(&found.counts),
            refusals: answer.refusals(),
            seconds: answer.seconds,
            stopped: found.stopped,
            too_long: found.too_long,
            plans,
            called_too_large: oversized(question),
            framework_differences: question.differences(&question.layout(&answer.advised)?),
            assumed: AssumedShare::new(&answer.sensitivities, answer.advised.price.seconds),
            failures: question.budget.failures.as_ref().map(FailureAssumptions::from),
            within_days: search.deadline.as_ref().map(|deadline| deadline.days()),
            fewest_gpus: search.deadline.as_ref().and_then(|_| fewest()),
            error_band: advised.plan.error_band.clone(),
            error_band_reason: advised.plan.error_band_reason.clone(),
            advised,
            pareto: if search.front { Some(entries(&answer.front)?) } else { None },
            stopped_gpus: search.front.then(|| answer.incomplete.clone()),
            explanation: explanation.map(|explanation| PriceExplanation::new(explanation, &search.setting)),
            search: SearchSettings::new(question, search)?,
        })
    }
}

impl PlanReport {
    /// Messages of refusals, to be changed in place.
    pub fn messages_mut(&mut self) -> impl Iterator<Item = &mut String> {
        self.refusals.iter_mut().map(|refused| &mut refused.example)
    }
}

impl ImbalanceReport {
    pub(super) fn new(imbalance: &Imbalance) -> Self {
        match imbalance {
            Imbalance::Times(times) => Self::Times(*times),
            Imbalance::Measured(loads) => {
                Self::Measured(loads.by_ranks().map(|(ranks, times)| (ranks.to_string(), times)).collect())
            }
        }
    }
}

impl SearchCounts {
    fn new(counts: &Counts) -> Self {
        Self {
            grids: counts.grids,
            legal_grids: counts.legal_grids,
            configurations: counts.enumerated,
            legal: counts.legal,
            priced: counts.priced,
            fitting: counts.fitting,
            too_large: counts.too_large,
            too_slow: counts.too_slow,
        }
    }
}

impl From<&Failures> for FailureAssumptions {
    fn from(failures: &Failures) -> Self {
        let (checkpoint_bandwidth, checkpoint_s) = match failures.checkpoint {
            CheckpointTime::Bandwidth(bandwidth) => (Some(bandwidth), None),
            CheckpointTime::Seconds(seconds) => (None, Some(seconds)),
        };
        Self {
            mtbf_hours: failures.mtbf_hours,
            checkpoint_bandwidth,
            checkpoint_s,
            restart_s: failures.restart_seconds,
        }
    }
}

impl SearchSettings {
    fn new(question: &Question, search: &Search) -> Result<Self, SpecError> {
        Ok(Self {
            headline: Headline::new(question, &search.setting)?,
            capacity: search.setting.capacity,
            safe_capacity: search.safe_capacity,
            memory_varies: question.framework.reserved_deviation > 0,
            tolerance: search.tolerance,
            top: search.top,
        })
    }
}

/// Published runs of the question's device that ran, and those of them that are called too large.
pub(super) fn oversized(question: &Question) -> Option<Oversized> {
    let device = question.cluster.device.as_ref()?;
    Oversized::on(&device.name, &question.framework).cloned()
}
