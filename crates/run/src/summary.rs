//! The report of a run at its end.

use std::collections::BTreeMap;

use quadrille_engine::{DeviceUse, GraphUse, MatmulChoices, StepRecord, TrainOutcome};
use quadrille_spec::{AxesLedger, LayoutFile, Ledger, ModelFile};
use quadrille_step::StepProgram;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{ExpertLoads, ReportVersion, shown_layout};

/// A run at its end: what `train --json` prints, and what the run's folder keeps in `summary.json`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct TrainSummary {
    /// Version of the document.
    pub version: ReportVersion,
    /// Fields of the model's file.
    pub model: ModelFile,
    /// Fields of the layout's file.
    pub layout: LayoutFile,
    /// Identity of the data, as checkpoints have it.
    pub data: Value,
    /// Mean loss of each step in nats; null where it is not finite.
    pub losses: Vec<Option<f64>>,
    /// Least loss that a model can reach; null where it is not known.
    pub floor: Option<f64>,
    /// The steps of this part of the run.
    pub steps: Vec<StepRecord>,
    /// Ledgers of the last step.
    pub ledger: TrainLedgers,
    /// Seconds by kind of operation on rank 0, over all steps but the first.
    pub breakdown_s: BTreeMap<String, f64>,
    /// The same of every rank.
    pub breakdown_of_ranks_s: Vec<BTreeMap<String, f64>>,
    /// Memory of the device of every rank; null of the host.
    pub device_memory: Option<Vec<DeviceUse>>,
    /// Graphs of kernels on all ranks; null where none are made.
    pub device_graphs: Option<GraphUse>,
    /// Choices of experts by block.
    pub expert_loads: Vec<ExpertLoads>,
    /// Choices of tuned products.
    #[schemars(with = "Value")]
    pub matmul: MatmulChoices,
}

/// Predicted and counted ledgers of a run's last step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TrainLedgers {
    /// Predicted ledgers of all ranks.
    pub predicted: Ledger,
    /// Counted ledgers of all ranks; null where no step was left to do.
    pub counted: Option<Ledger>,
    /// True if they were equal, as integers, in every step; null where nothing was counted.
    pub equal: Option<bool>,
    /// Transfers of all steps by rank.
    pub total: Vec<AxesLedger>,
}

impl TrainSummary {
    /// Summary of the steps of a program on this data, and of those that an earlier part left.
    pub fn new(
        program: &StepProgram,
        data: &Value,
        floor: Option<f64>,
        left: &[StepRecord],
        trained: &TrainOutcome,
    ) -> Self {
        let steps: Vec<StepRecord> = left.iter().chain(&trained.records).copied().collect();
        let ranks = &trained.ranks;
        Self {
            version: ReportVersion::CURRENT,
            model: ModelFile::of(&program.model),
            layout: shown_layout(&program.layout),
            data: data.clone(),
            losses: steps.iter().map(|step| Some(step.loss).filter(|loss| loss.is_finite())).collect(),
            floor,
            steps,
            ledger: TrainLedgers {
                predicted: trained.predicted.clone(),
                counted: trained.counted.clone(),
                equal: trained.counted.as_ref().map(|_| trained.difference.is_none()),
                total: ranks.iter().map(|rank| rank.total.clone()).collect(),
            },
            breakdown_s: ranks[0].breakdown.clone(),
            breakdown_of_ranks_s: ranks.iter().map(|rank| rank.breakdown.clone()).collect(),
            device_memory: ranks.iter().map(|rank| rank.device_memory).collect(),
            device_graphs: trained.device_graphs(),
            expert_loads: ExpertLoads::of(&program.model, &ranks[0].chosen),
            matmul: ranks[0].matmuls.clone(),
        }
    }
}
