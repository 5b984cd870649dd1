//! One layout, priced and explained.

use quadrille_plan::native::{Explanation, Question};
use quadrille_spec::{Layout, SpecError};
use serde_json::{Value, json};

use super::assumed::{assumed_document, assumed_text, origins};
use super::band::band_text;
use super::text::{differences_text, headline, oversized, oversized_text, ranking, tables_of};
use super::{entry, explanation_document, explanation_text};
use crate::Text;

/// A layout, and why it costs what it costs.
pub struct PricedReport<'a> {
    /// What was asked of it.
    pub question: &'a Question,
    /// The layout.
    pub layout: &'a Layout,
    /// Its price, and why.
    pub explanation: &'a Explanation,
}

impl PricedReport<'_> {
    /// All of it, as `explain --price --json` prints it.
    ///
    /// # Errors
    /// A reserve of more than a device has.
    pub fn document(&self) -> Result<Value, SpecError> {
        let Self { question, layout, explanation } = self;
        let setting = question.setting()?;
        Ok(json!({
            "model": question.model.name,
            "cluster": question.cluster.name,
            "cost": "native",
            "framework": question.framework.name,
            "planned": question.framework.planned(),
            "sparsity": question.framework.sparsity,
            "imbalance": question.imbalance,
            "flops_convention": question.flops_convention.to_string(),
            "device_memory_bytes": question.cluster.device_memory,
            "reserved_bytes": question.reserved()?,
            "fits": question.fits(&explanation.best.price)?,
            "called_too_large": oversized(question),
            "framework_differences": question.differences(layout),
            "plan": entry(question, &setting, &explanation.best, layout)?,
            "origins": origins(&question.cluster),
            "assumed": assumed_document(&explanation.sensitivities, explanation.best.price.seconds),
            "explanation": explanation_document(explanation, &setting),
        }))
    }

    /// For people.
    ///
    /// # Errors
    /// As [`Self::document`].
    pub fn text(&self) -> Result<Text, SpecError> {
        let Self { question, layout, explanation } = self;
        let setting = question.setting()?;
        let best = [&explanation.best];
        let mut text = Text::from(headline(question, &setting)?) + "\n" + ranking(question, &setting, &best);
        if question.fits(&explanation.best.price)? == Some(false) {
            text += "it does not fit into the memory of a device\n";
        }
        text += band_text(question, &explanation.best.candidate);
        text += &oversized_text(question);
        text += &differences_text(question, layout);
        text += assumed_text(&explanation.sensitivities, explanation.best.price.seconds);
        text += tables_of(&setting, &best, None);
        Ok(text + explanation_text(explanation, &setting))
    }
}
