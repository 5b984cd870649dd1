//! `quadrille plan --cost native`: every layout, ranked by the native model.

pub mod arguments;
pub mod priced;
pub mod request;

use quadrille_cost::native::Learned;
use quadrille_pages::plan_page;
use quadrille_plan::native::{Answer, Cancel, PlanRequest, Resolved};
use quadrille_report::plan::{self as report, page_document, rows, text};
use serde_json::Value;

use crate::failure::Failure;
use crate::output::{csv, print_json, print_text, write_file, written};
use crate::plan::arguments::PlanArguments;
use crate::plan::native::request::{print_sources, request, set_devices};
use crate::quantities::Counts;
use crate::{bars, documents, flags, paths};

/// Searches and prints what was found.
pub fn run(arguments: &PlanArguments) -> Result<(), Failure> {
    if arguments.json {
        print_json(&document(arguments, &Cancel::default())?)
    } else {
        let PlanArguments { model, layout, results, csv, .. } = arguments;
        print_text(answered(arguments, &Cancel::default(), |answer| {
            layout.note_length(model, answer.question.seq_len)?;
            Ok(text(answer)?.map(flags::spelled))
        })?)?;
        written([&results.out, csv, &results.html]);
        Ok(())
    }
}

/// Searches until that is cancelled; all that was found.
pub fn document(arguments: &PlanArguments, cancel: &Cancel) -> Result<Value, Failure> {
    answered(arguments, cancel, |answer| {
        let mut document = report::document(answer)?;
        spell(&mut document);
        Ok(document)
    })
}

/// Searches, writes the files that were asked for, and tells what was found.
fn answered<T>(
    arguments: &PlanArguments,
    cancel: &Cancel,
    tell: impl FnOnce(&Answer) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let results = &arguments.results;
    let files = paths::asked([("--csv", &arguments.csv), ("--out", &results.out), ("--html", &results.html)]);
    let request = plan_request(arguments)?;
    paths::check_ready(&files, &arguments.model, &arguments.layout)?;
    let Resolved { question, mut wanted } = request.resolve(cancel, &Learned::default())?;
    print_sources(&arguments.model, &arguments.layout);
    wanted.explain |= results.html.is_some();
    let searched = || question.cancel.searched();
    let mut answer = bars::watching("searching", searched, || Answer::new(&question, &wanted))?;
    if let Some(path) = &results.out {
        write_file("--out", path, question.layout_file(&answer.advised)?.as_bytes())?;
    }
    if let Some(path) = &arguments.csv {
        write_file("--csv", path, csv(rows(&answer)?)?.as_bytes())?;
    }
    if let Some(path) = &results.html {
        let mut shown = page_document(&answer)?;
        spell(&mut shown);
        write_file("--html", path, plan_page(&shown).as_bytes())?;
        // Of that page alone unless it was asked for.
        answer.explanation = answer.explanation.take().filter(|_| results.explain);
    }
    tell(&answer)
}

/// Messages of a document with flags in place of the keys that they name.
fn spell(document: &mut Value) {
    for (part, message) in [("refusals", "example"), ("exports", "refused")] {
        let number = document[part].as_array().map_or(0, Vec::len);
        (0..number).for_each(|at| flags::spell_at(document, &format!("/{part}/{at}/{message}")));
    }
}

/// The request of all options, over the file of `--request`.
fn plan_request(arguments: &PlanArguments) -> Result<PlanRequest, Failure> {
    let PlanArguments { model, layout, question, results, .. } = arguments;
    let counts = |counts: &Option<Counts>| counts.as_ref().map_or_else(Vec::new, |counts| counts.values().to_vec());
    let mut request = request(model, layout, question, arguments.dtype)?;
    set_devices(&mut request, counts(&arguments.gpus), counts(&arguments.nodes))?;
    request = PlanRequest {
        nvs: arguments.nvs.map(|devices| devices as usize),
        top: arguments.top.map(|top| top as usize),
        variants: results.variants,
        pareto: results.pareto,
        exotic: results.exotic,
        tolerance: results.tolerance,
        explain: results.explain,
        ..request
    };
    match &arguments.request {
        None => Ok(request),
        Some(path) => Ok(request.over(&documents::plan_request(path)?)?),
    }
}
