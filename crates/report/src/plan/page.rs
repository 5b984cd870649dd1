//! What the page of a plan shows.

use quadrille_cost::native::PriceError;
use quadrille_plan::export::{Export, Framework, Precision, Target, export};
use quadrille_plan::native::{Answer, Ranked};
use quadrille_spec::{Axis, SpecError};
use serde_json::{Value, json};

use super::assumed::assumed_text;
use super::band::band_text;
use super::document;
use crate::lesson::{Mesh, Timeline};

/// Most passes that are drawn of a layout, and for each stage of a long pipeline.
const PASSES: usize = 480;
const PASSES_OF_STAGE: usize = 12;

/// All that was found, for a page: the [`document`] with the advised layout in the words of each framework (`exports`), how sure
/// its time is, in words (`told`), and of the advised layout, or of every one where it is explained, the mesh and the passes of its
/// step (`mesh`, `timeline`).
///
/// # Errors
/// None for what a search has found.
pub fn page_document(answer: &Answer) -> Result<Value, PriceError> {
    let mut document = document(answer)?;
    document["exports"] = exports(answer)?;
    let Answer { question, found, search, advised, sensitivities, .. } = answer;
    let draw = |entry: &mut Value, ranked: &Ranked| {
        let layout = question.layout(ranked)?;
        let most = PASSES.max(PASSES_OF_STAGE * layout.grid.size(Axis::Pipe));
        let passes = search.setting.passes(&layout)?;
        entry["mesh"] = json!(Mesh::of(&layout, 0));
        entry["timeline"] = json!(Timeline::of(&passes, layout.chunks, layout.microbatches(), most));
        Ok::<(), PriceError>(())
    };
    // Of layouts beside the advised one only where there is time to explain.
    let is_shown = |ranked: &Ranked| answer.explanation.is_some() || ranked == advised;
    for (at, ranked) in found.ranked.iter().enumerate().filter(|(_, ranked)| is_shown(ranked)) {
        draw(&mut document["plans"][at], ranked)?;
    }
    if document["advised"]["index"].is_null() {
        draw(&mut document["advised"]["plan"], advised)?;
    }
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
