//! What the page of a plan shows.

use quadrille_plan::export::{Export, Framework, Precision, Target, export};
use quadrille_plan::native::Answer;
use quadrille_spec::SpecError;
use serde_json::{Value, json};

use super::assumed::assumed_text;
use super::band::band_text;
use super::document;

/// All that was found, for a page: the [`document`] with the advised layout in the words of each framework
/// (`exports`), and how sure its time is, in words (`told`).
///
/// # Errors
/// None for what a search has found.
pub fn page_document(answer: &Answer) -> Result<Value, SpecError> {
    let mut document = document(answer)?;
    document["exports"] = exports(answer)?;
    let Answer { question, advised, sensitivities, .. } = answer;
    let told = [band_text(question, &advised.candidate), assumed_text(sensitivities, advised.price.seconds)];
    document["told"] =
        told.iter().filter(|text| !text.is_empty()).map(|text| text.trim_end().replace('\n', " ")).collect();
    Ok(document)
}

/// The advised layout as each framework says it, or why it cannot.
fn exports(answer: &Answer) -> Result<Value, SpecError> {
    let layout = answer.question.layout(&answer.advised)?;
    let precision = if answer.question.framework.is_own() { Precision::F32 } else { Precision::Bf16 };
    let target = Target { gpus_per_node: layout.per_node, precision, numbers: answer.question.framework.numbers };
    let of = |(name, framework)| match export(framework, &answer.question.model, &layout, &target) {
        Ok(Export { text, cannot_express }) => json!({
            "framework": name,
            "text": text,
            "cannot_express": cannot_express,
        }),
        Err(error) => json!({ "framework": name, "refused": error.to_string() }),
    };
    Ok(Framework::ALL.into_iter().map(of).collect())
}
