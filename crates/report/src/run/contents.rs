//! The report of a run's folder.

use quadrille_engine::StepRecord;
use quadrille_run::{Event, ExpertLoads, shown_layout};
use quadrille_spec::{FlopsConvention, LayoutFile, Ledger, ModelFile};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::read::{Run, Stored};
use crate::ReportVersion;

/// The folder of a run: what `report --json` prints.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct RunReport {
    /// Version of the document.
    pub version: ReportVersion,
    /// The folder.
    pub path: String,
    /// Words that followed `quadrille train`.
    pub command: Vec<String>,
    /// Fields of the model's file.
    pub model: ModelFile,
    /// Fields of the file of the layout of its last part.
    pub layout: LayoutFile,
    /// Threads of each rank.
    pub threads: usize,
    /// Step after which it was to end; null where it does not say so.
    pub last: Option<u64>,
    /// Least loss that a model can reach; null where it is not known.
    pub floor: Option<f64>,
    /// Every recorded step.
    pub steps: Vec<StepRecord>,
    /// Convention by which the FLOPs of its rate are counted.
    pub flops_convention: FlopsConvention,
    /// Needed FLOPs of a device in a second of the median step, in units of 10^12; null where no step counts.
    pub tflops_per_device: Option<f64>,
    /// Other events, in order.
    pub events: Vec<Event>,
    /// Finished checkpoints, oldest first.
    pub checkpoints: Vec<Stored>,
    /// Number of unfinished checkpoints.
    pub unfinished: usize,
    /// Files whose last line is cut off.
    pub cut: Vec<String>,
    /// Ledgers of a step.
    pub ledger: RunLedgers,
    /// Choices of experts by block, in the last part of the run.
    pub expert_loads: Vec<ExpertLoads>,
    /// Reason why there is no summary of the last part; null where there is one.
    pub unsummed: Option<String>,
}

/// Predicted and counted ledgers of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunLedgers {
    /// Predicted ledgers of a step.
    pub predicted: Ledger,
    /// Counted ledgers of the last step; null where nothing was counted.
    pub counted: Option<Ledger>,
    /// True if they were equal, as integers, in every step; null where nothing was counted.
    pub equal: Option<bool>,
}

impl RunReport {
    /// Report of a run.
    pub fn new(run: &Run) -> Self {
        let summary = run.summary.as_ref().ok();
        let ledger = summary.map(|summary| &summary.ledger);
        Self {
            version: ReportVersion::CURRENT,
            path: run.path.to_string_lossy().into_owned(),
            command: run.command.clone(),
            model: ModelFile::of(&run.program.model),
            layout: shown_layout(&run.program.layout),
            threads: run.threads,
            last: run.last,
            floor: run.floor,
            steps: run.steps.clone(),
            flops_convention: run.flops_convention,
            tflops_per_device: run.tflops_per_device(),
            events: run.events.clone(),
            checkpoints: run.checkpoints.clone(),
            unfinished: run.unfinished,
            cut: run.cut.iter().map(|name| (*name).to_owned()).collect(),
            ledger: RunLedgers {
                predicted: ledger.map_or(&run.predicted, |ledger| &ledger.predicted).clone(),
                counted: ledger.and_then(|ledger| ledger.counted.clone()),
                equal: ledger.and_then(|ledger| ledger.equal),
            },
            expert_loads: summary.map(|summary| summary.expert_loads.clone()).unwrap_or_default(),
            unsummed: run.summary.as_ref().err().cloned(),
        }
    }
}
