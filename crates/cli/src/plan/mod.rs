//! `quadrille plan`: every layout, ranked by the native model.

pub mod arguments;
pub mod priced;
pub mod question;
pub mod request;

use quadrille_cost::native::Learned;
use quadrille_pages::plan_page;
use quadrille_plan::native::{Answer, Cancel, PlanRequest, Resolved};
use quadrille_report::plan::{PlanPage, PlanReport, rows, text};
use serde_json::Value;

use self::arguments::PlanArguments;
use self::request::{print_sources, request, set_devices};
use crate::failure::Failure;
use crate::output::{csv, json_value, print_json, print_text, write_file, written};
use crate::quantities::Counts;
use crate::{bars, documents, flags, output, paths};

/// Searches and prints the report.
pub fn run(arguments: &PlanArguments) -> Result<(), Failure> {
    let report = report(arguments, &Cancel::default())?;
    if arguments.json {
        return print_json(&spelled(report));
    }
    let PlanArguments { model, layout, results, csv, .. } = arguments;
    // A request may give the length of sequences, too.
    if arguments.request.is_none() {
        layout.note_length(model, report.seq_len)?;
    }
    print_text(text(&report).map(flags::spelled))?;
    written([&results.out, csv, &results.html]);
    Ok(())
}

/// Searches until that is cancelled; the report as a document.
pub fn document(arguments: &PlanArguments, cancel: &Cancel) -> Result<Value, Failure> {
    json_value(&spelled(report(arguments, cancel)?))
}

/// The report with flags in place of the keys that its messages name.
fn spelled(mut report: PlanReport) -> PlanReport {
    report.messages_mut().for_each(|message| *message = flags::spelled(message));
    report
}

/// Searches, and writes the files that were asked for.
fn report(arguments: &PlanArguments, cancel: &Cancel) -> Result<PlanReport, Failure> {
    let results = &arguments.results;
    let files = paths::asked([("--csv", &arguments.csv), ("--out", &results.out), ("--html", &results.html)]);
    let request = plan_request(arguments)?;
    let read: Vec<_> = paths::described(&arguments.model, &arguments.layout)
        .chain(paths::asked([("--request", &arguments.request)]))
        .collect();
    paths::check_ready(&files, &read)?;
    if request.pareto && results.html.is_some() {
        return Err(Failure::usage("--html: a page is of one number of GPUs; leave out pareto, or the page"));
    }
    let Resolved { question, mut wanted } = request.resolve(cancel, &Learned::default())?;
    match arguments.request {
        None => print_sources(&arguments.model, &arguments.layout),
        Some(_) => output::detail(&format!("model {}, cluster {}", question.model.name, question.cluster.name)),
    }
    let is_explained = wanted.explain;
    wanted.explain |= results.html.is_some();
    let searched = || question.cancel.searched();
    let mut answer = bars::watching("searching", searched, || Answer::new(&question, &wanted))?;
    if let Some(path) = &results.out {
        write_file("--out", path, question.layout_file(&answer.advised)?.as_bytes())?;
    }
    if let Some(path) = &results.html {
        let mut page = PlanPage::with_drawings(&answer)?;
        page.messages_mut().for_each(|message| *message = flags::spelled(message));
        write_file("--html", path, plan_page(&json_value(&page)?).as_bytes())?;
        // The page has an explanation in any case.
        answer.explanation = answer.explanation.take().filter(|_| is_explained);
    }
    let report = PlanReport::new(&answer)?;
    if let Some(path) = &arguments.csv {
        write_file("--csv", path, csv(rows(&report)?)?.as_bytes())?;
    }
    Ok(report)
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
