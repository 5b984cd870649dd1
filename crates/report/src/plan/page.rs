//! The page of a plan.

use quadrille_cost::native::{Numbers, PriceError};
use quadrille_plan::export::{Export, Framework, Precision, Target, export};
use quadrille_plan::native::{Answer, Cancel, Ranked, Setting};
use quadrille_spec::{Axis, Layout, SpecError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::PlanReport;
use super::assumed::assumed_text;
use super::band::band_text;
use super::text::{differences_text, risk_text};
use crate::lesson::{Mesh, Timeline};

/// Most passes that are drawn of a layout, and for each stage of a long pipeline.
const PASSES: usize = 480;
const PASSES_OF_STAGE: usize = 12;

/// A plan as its page shows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PlanPage {
    /// The plan.
    #[serde(flatten)]
    pub report: PlanReport,
    /// The recommended layout as options of each framework.
    pub exports: Vec<FrameworkOptions>,
    /// Sentences on how sure its time is.
    pub told: Vec<String>,
}

/// A layout as options of a framework, or the reason why it has none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FrameworkOptions {
    /// Name of the framework.
    pub framework: String,
    /// Its options.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Parts of the layout that they do not express.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cannot_express: Option<Vec<String>>,
    /// Reason why there are no options.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

/// Drawing of a layout: its mesh, and the passes of its step as its price has them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Drawing {
    /// The mesh.
    pub mesh: Mesh,
    /// The passes; null if the step has too many to simulate interactively.
    pub timeline: Option<Timeline>,
}

impl Drawing {
    /// Drawing of a layout.
    ///
    /// # Errors
    /// A layout that cannot be priced; a search that was cancelled.
    pub fn new(setting: &Setting, layout: &Layout, cancel: &Cancel) -> Result<Self, PriceError> {
        let timeline = if Timeline::is_long(layout) {
            None
        } else {
            let most = PASSES.max(PASSES_OF_STAGE * layout.grid.size(Axis::Pipe));
            Some(Timeline::of(&setting.passes(layout, cancel)?, layout.chunks, layout.microbatches(), most))
        };
        Ok(Self { mesh: Mesh::of(layout, 0), timeline })
    }
}

impl PlanPage {
    /// Page that requests the [`Drawing`] of a layout when it shows it.
    ///
    /// # Errors
    /// None for what a search has found.
    pub fn new(answer: &Answer) -> Result<Self, PriceError> {
        let report = PlanReport::new(answer)?;
        let exports = exports(answer)?;
        // A first answer that did not look at assumed numbers says nothing of them.
        let assumed = report.assumed.as_ref().map(|share| assumed_text(Some(share))).unwrap_or_default();
        let differences = differences_text(&report.framework, &report.framework_differences);
        let told = [band_text(&report.advised.plan), risk_text(&report), differences, assumed];
        let told = told.iter().flat_map(|text| sentences(text)).collect();
        Ok(Self { report, exports, told })
    }

    /// Page in a file, with the [`Drawing`] of every layout.
    ///
    /// # Errors
    /// A layout that cannot be simulated.
    pub fn with_drawings(answer: &Answer) -> Result<Self, PriceError> {
        let mut page = Self::new(answer)?;
        let Answer { question, found, search, advised, .. } = answer;
        let drawn =
            |ranked: &Ranked| Drawing::new(&search.setting, &question.layout(ranked)?, &question.cancel).map(Some);
        for (plan, ranked) in page.report.plans.iter_mut().zip(&found.ranked) {
            plan.drawing = drawn(ranked)?;
        }
        if page.report.advised.index.is_none() {
            page.report.advised.plan.drawing = drawn(advised)?;
        }
        Ok(page)
    }

    /// Messages of refusals, to be changed in place.
    pub fn messages_mut(&mut self) -> impl Iterator<Item = &mut String> {
        let exports = self.exports.iter_mut().filter_map(|options| options.refused.as_mut());
        self.report.messages_mut().chain(exports)
    }
}

/// Lines for people as sentences: each warning and note is one of its own.
fn sentences(text: &str) -> Vec<String> {
    let mut sentences: Vec<String> = Vec::new();
    for line in text.lines() {
        let begins = ["warning:", "note:"].iter().any(|word| line.starts_with(word));
        match sentences.last_mut().filter(|_| !begins) {
            Some(sentence) => *sentence += &format!(" {line}"),
            None => sentences.push(line.to_owned()),
        }
    }
    sentences.iter().map(|sentence| capital(sentence)).collect()
}

/// As a sentence that stands alone begins and ends.
fn capital(sentence: &str) -> String {
    let mut letters = sentence.chars();
    let first = letters.next().into_iter().flat_map(char::to_uppercase);
    let end = if sentence.ends_with(['.', ':', '!', '?']) { "" } else { "." };
    first.chain(letters).collect::<String>() + end
}

/// The recommended layout as options of each framework.
fn exports(answer: &Answer) -> Result<Vec<FrameworkOptions>, SpecError> {
    let layout = answer.question.layout(&answer.advised)?;
    let precision = Precision::of(answer.question.framework.dtype);
    let planned = Some(answer.question.framework);
    let target = Target { gpus_per_node: layout.per_node, precision, numbers: Numbers::default(), planned };
    let of = |(name, framework): (&str, Framework)| {
        let none = FrameworkOptions { framework: name.to_owned(), text: None, cannot_express: None, refused: None };
        match export(framework, &answer.question.model, &layout, &target) {
            Ok(Export { text, cannot_express }) => {
                FrameworkOptions { text: Some(text), cannot_express: Some(cannot_express), ..none }
            }
            Err(error) => FrameworkOptions { refused: Some(error.to_string()), ..none },
        }
    };
    Ok(Framework::ALL.into_iter().map(of).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_for_people_are_sentences_on_a_page() {
        let text = "its time is uncertain by -10% to +20%:\nof 20 runs (a, b)\nwarning: they are unlike it, so that\nit varies\n";
        let told = [
            "Its time is uncertain by -10% to +20%: of 20 runs (a, b).",
            "Warning: they are unlike it, so that it varies.",
        ];
        assert_eq!(sentences(text), told);
        assert!(sentences("").is_empty());
    }
}
