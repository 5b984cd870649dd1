//! JSON schemas of all reports.

use schemars::{Schema, schema_for};

use crate::calibration::CalibrationDocument;
use crate::checkpoint::{
    CheckpointReport, KeptCheckpoints, MergeReport, PruningReport, SettlingReport, VerdictsReport,
};
use crate::collectives::CollectivesReport;
use crate::contents::ContentsReport;
use crate::conversion::{ExportedModelReport, ImportedModelReport, OptionsReport, TokensReport};
use crate::evaluation::EvaluationReport;
use crate::explained::{ExplainPage, ExplainReport};
use crate::generation::GenerationReport;
use crate::import::ImportDocument;
use crate::local::LocalDocument;
use crate::papers::atp::AtpDocument;
use crate::papers::axonn::AxonnDocument;
use crate::papers::lbnl::LbnlDocument;
use crate::papers::megatron::MegatronDocument;
use crate::papers::reproduce::ReproductionReport;
use crate::plan::{PlanPage, PlanReport, PriceReport};
use crate::published::{CrossReport, PublishedReport};
use crate::run::{RunPage, RunReport};
use crate::sweep::SweepReport;
use crate::verification::VerificationReport;
use quadrille_plan::native::PlanRequest;
use quadrille_run::TrainSummary;

/// A report's schema.
#[derive(Debug, Clone)]
pub struct ReportSchema {
    /// Name of its file, without the ending.
    pub name: &'static str,
    /// Command that prints the report.
    pub command: &'static str,
    /// The schema, in JSON Schema's draft 2020-12.
    pub schema: Schema,
}

/// Makes the list from rows `name, command => type`.
macro_rules! schemas {
    ($($name:literal, $command:literal => $report:ty;)+) => {
        vec![$(ReportSchema { name: $name, command: $command, schema: schema_for!($report) }),+]
    };
}

/// Schemas of all reports, by the commands that print them.
pub fn schemas() -> Vec<ReportSchema> {
    schemas! {
        "plan-request", "plan --request" => PlanRequest;
        "plan", "plan --json" => PlanReport;
        "plan-page", "plan --html" => PlanPage;
        "price", "explain --price --json" => PriceReport;
        "explain", "explain --json" => ExplainReport;
        "explain-page", "explain --html" => ExplainPage;
        "sweep", "sweep --html" => SweepReport;
        "train", "train --json" => TrainSummary;
        "run", "report --json" => RunReport;
        "run-page", "report" => RunPage;
        "verify", "verify --json" => VerificationReport;
        "eval", "eval --json" => EvaluationReport;
        "generate", "generate --json" => GenerationReport;
        "published", "validate published --json" => PublishedReport;
        "published-cross", "validate published --cross --json" => CrossReport;
        "local", "validate local --json" => LocalDocument;
        "calibrate", "calibrate --json" => CalibrationDocument;
        "calibrate-import", "calibrate --from-nccl-tests --json" => ImportDocument;
        "collectives", "bench collectives --json" => CollectivesReport;
        "data-info", "data info --json" => ContentsReport;
        "data-prepare", "data prepare --json" => TokensReport;
        "checkpoint-info", "checkpoint info --json" => CheckpointReport;
        "checkpoint-verify", "checkpoint verify --json" => VerdictsReport;
        "checkpoint-merge", "checkpoint merge --json" => MergeReport;
        "checkpoint-prune", "checkpoint prune --json" => KeptCheckpoints;
        "prune", "prune --json" => PruningReport;
        "prune-when", "prune --when --json" => SettlingReport;
        "convert-from-hf", "convert --from-hf --json" => ImportedModelReport;
        "convert-to-hf", "convert --to-hf --json" => ExportedModelReport;
        "export", "export --json" => OptionsReport;
        "paper-lbnl", "paper lbnl plan --json" => LbnlDocument;
        "paper-megatron", "paper megatron plan --json" => MegatronDocument;
        "paper-atp", "paper atp plan --json" => AtpDocument;
        "paper-axonn", "paper axonn plan --json" => AxonnDocument;
        "reproduce", "paper all reproduce --json" => ReproductionReport;
    }
}
