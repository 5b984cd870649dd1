//! The report of one layout: its price, and the reasons for it.

use quadrille_evidence::Oversized;
use quadrille_plan::native::{Explanation, Question};
use quadrille_spec::{FlopsConvention, Layout, Origin, Planned, SpecError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::assumed::{AssumedShare, assumed_text, origins};
use super::band::band_text;
use super::report::oversized;
use super::tables::{breakdown, ranking};
use super::text::{differences_text, oversized_text};
use super::{Headline, ImbalanceReport, PriceExplanation, PricedLayout};
use crate::by_name::ByName;
use crate::{ReportVersion, Text};

/// The price of one layout, and the reasons for it: what `explain --price --json` prints.
///
/// Times are in seconds, sizes in bytes, unless a field's name says otherwise.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PriceReport {
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
    /// Bytes of a device; null where they are not known.
    pub device_memory_bytes: Option<u64>,
    /// Bytes of a device that stay free.
    pub reserved_bytes: u64,
    /// True if the layout fits into the other bytes; null where they are not known.
    pub fits: Option<bool>,
    /// Published runs of this device and kind of framework that ran, and those that this program calls too large; null where
    /// there are none.
    pub called_too_large: Option<Oversized>,
    /// Parts of the layout that the framework has in another way or lacks, each with what it does instead.
    pub framework_differences: Vec<String>,
    /// The layout with its price.
    pub plan: PricedLayout,
    /// Origin of each number of the hardware.
    pub origins: ByName<Origin>,
    /// Part of the step that rests on assumed numbers of the hardware.
    pub assumed: Option<AssumedShare>,
    /// Reasons for the time of the layout.
    pub explanation: PriceExplanation,
    /// The question, which text mentions; no part of documents.
    #[serde(skip)]
    pub headline: Headline,
    /// Bytes that a layout may use of a device; no part of documents.
    #[serde(skip)]
    pub capacity: Option<u64>,
}

impl PriceReport {
    /// Report of a layout that was priced and explained.
    ///
    /// # Errors
    /// A reserve of more than a device has.
    pub fn new(question: &Question, layout: &Layout, explanation: &Explanation) -> Result<Self, SpecError> {
        let setting = question.setting()?;
        Ok(Self {
            version: ReportVersion::CURRENT,
            model: question.model.name.clone(),
            cluster: question.cluster.name.clone(),
            framework: question.framework.name.to_owned(),
            planned: question.framework.planned(),
            sparsity: question.framework.sparsity.map(|sparsity| sparsity.part()),
            imbalance: ImbalanceReport::new(&question.imbalance),
            flops_convention: question.flops_convention,
            device_memory_bytes: question.cluster.device_memory,
            reserved_bytes: question.reserved()?,
            fits: question.fits(&explanation.best.price)?,
            called_too_large: oversized(question),
            framework_differences: question.differences(layout),
            plan: PricedLayout::new(question, &setting, &explanation.best, layout),
            origins: origins(&question.cluster),
            assumed: AssumedShare::new(&explanation.sensitivities, explanation.best.price.seconds),
            explanation: PriceExplanation::new(explanation, &setting),
            headline: Headline::new(question, &setting)?,
            capacity: setting.capacity,
        })
    }

    /// All of it, for people.
    pub fn text(&self) -> Text {
        let plan = [&self.plan];
        let mut text = Text::from(self.headline.text()) + "\n" + ranking(&plan, self.plan.devices);
        if self.fits == Some(false) {
            text += "it does not fit into the memory of a device\n";
        }
        text += band_text(&self.plan);
        text += oversized_text(self.called_too_large.as_ref());
        text += differences_text(&self.framework, &self.framework_differences);
        text += assumed_text(self.assumed.as_ref());
        text += breakdown(&plan, self.capacity, None);
        text + self.explanation.text(&self.plan, self.capacity)
    }
}
