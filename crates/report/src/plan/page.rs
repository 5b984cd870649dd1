//! What the page of a plan shows.

use quadrille_cost::native::{Numbers, PriceError};
use quadrille_plan::export::{Export, Framework, Precision, Target, export};
use quadrille_plan::native::{Answer, Cancel, Ranked, Setting};
use quadrille_spec::{Axis, Layout, SpecError};
use serde_json::{Value, json};

use super::assumed::assumed_text;
use super::band::band_text;
use super::document;
use super::text::{found_differences_text, risk_text};
use crate::lesson::{Mesh, Timeline};

/// Most passes that are drawn of a layout, and for each stage of a long pipeline.
const PASSES: usize = 480;
const PASSES_OF_STAGE: usize = 12;

/// All that was found, for a page in a file: the [`asked_document`] with the [`drawing`] of every layout.
///
/// # Errors
/// None for what a search has found.
pub fn page_document(answer: &Answer) -> Result<Value, PriceError> {
    let mut document = asked_document(answer)?;
    let Answer { question, found, search, advised, .. } = answer;
    let draw = |entry: &mut Value, ranked: &Ranked| {
        let drawn = drawing(&search.setting, &question.layout(ranked)?, &question.cancel)?;
        ["mesh", "timeline"].iter().for_each(|part| entry[part] = drawn[part].clone());
        Ok::<(), PriceError>(())
    };
    for (at, ranked) in found.ranked.iter().enumerate() {
        draw(&mut document["plans"][at], ranked)?;
    }
    if document["advised"]["index"].is_null() {
        draw(&mut document["advised"]["plan"], advised)?;
    }
    Ok(document)
}

/// What a page draws of one layout: the mesh and the passes of its step, as its price has them (`mesh`, `timeline`); no passes of a
/// step that has more than can be simulated while somebody waits.
///
/// # Errors
/// What cannot be priced; what nobody waits for any more.
pub fn drawing(setting: &Setting, layout: &Layout, cancel: &Cancel) -> Result<Value, PriceError> {
    let timeline = if Timeline::is_long(layout) {
        None
    } else {
        let most = PASSES.max(PASSES_OF_STAGE * layout.grid.size(Axis::Pipe));
        Some(Timeline::of(&setting.passes(layout, cancel)?, layout.chunks, layout.microbatches(), most))
    };
    Ok(json!({ "mesh": Mesh::of(layout, 0), "timeline": timeline }))
}

/// All that was found, for a page that asks for the [`drawing`] of a layout when it shows it: the [`document`] with the advised
/// layout in the words of each framework (`exports`) and how sure its time is, in words (`told`).
///
/// # Errors
/// None for what a search has found.
pub fn asked_document(answer: &Answer) -> Result<Value, PriceError> {
    let mut document = document(answer)?;
    document["exports"] = exports(answer)?;
    let Answer { question, advised, sensitivities, .. } = answer;
    // What a first answer has not looked at the whole one tells.
    let assumed =
        if sensitivities.is_empty() { String::new() } else { assumed_text(sensitivities, advised.price.seconds) };
    let risk = risk_text(question, advised);
    let differences = found_differences_text(question, advised);
    let told = [band_text(question, &advised.candidate), risk, differences, assumed];
    document["told"] = told.iter().flat_map(|text| sentences(text)).collect();
    Ok(document)
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

/// The advised layout as each framework says it, or why it cannot.
fn exports(answer: &Answer) -> Result<Value, SpecError> {
    let layout = answer.question.layout(&answer.advised)?;
    let precision = Precision::of(answer.question.framework.dtype);
    let planned = Some(answer.question.framework);
    let target = Target { gpus_per_node: layout.per_node, precision, numbers: Numbers::default(), planned };
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
