//! `quadrille plan --cost native`: every layout, ranked by the native model.

pub mod arguments;
pub mod priced;

use quadrille_pages::plan_page;
use quadrille_plan::native::{Answer, Cancel, Question, TOLERANCE, Wanted};
use quadrille_report::plan::{self as report, page_document, rows, text};
use serde_json::Value;

use crate::failure::Failure;
use crate::output::{csv, print_json, print_text, write_file, written};
use crate::plan::arguments::PlanArguments;
use crate::plan::native::arguments::Machines;
use crate::quantities::Counts;
use crate::{bars, flags, paths};

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
    let PlanArguments { model, layout, question, dtype, nvs, .. } = arguments;
    let numbers = |counts: &Option<Counts>| counts.as_ref().map(|counts| counts.values().to_vec());
    let devices = numbers(&arguments.gpus);
    let nodes = numbers(&arguments.nodes);
    let machines = Machines { devices: devices.clone(), nodes: nodes.clone(), fast_domain: *nvs, batch: None };
    let mut question = arguments::question(model, layout, question, *dtype, machines)?;
    question.cancel = cancel.clone();
    let results = &arguments.results;
    let several = match nodes {
        Some(nodes) => Some(nodes.into_iter().map(|nodes| question.devices_of_nodes(nodes)).collect::<Result<_, _>>()?),
        None => devices,
    };
    let several = several.filter(|gpus: &Vec<usize>| gpus.len() > 1);
    let files = paths::asked([("--csv", &arguments.csv), ("--out", &results.out), ("--html", &results.html)]);
    paths::check_ready(&files, &arguments.model, &arguments.layout)?;
    match &several {
        Some(gpus) if !results.pareto && question.deadline().is_some() => question = question.smallest_in_time(gpus)?,
        Some(_) if !results.pareto => {
            return Err(Failure::usage(
                "--gpus: several numbers of GPUs are compared with --pareto, and --days plans the smallest that is done in \
                 time; add one of them, or give one number",
            ));
        }
        _ => {}
    }
    let wanted = wanted(arguments, &question, several.as_deref());
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

/// What is to be found: with `--pareto` over the numbers of devices in `several`, or all divisors of the question's.
fn wanted(arguments: &PlanArguments, question: &Question, several: Option<&[usize]>) -> Wanted {
    let results = &arguments.results;
    let divisors = || (1..=question.devices).filter(|devices| question.devices.is_multiple_of(*devices)).collect();
    Wanted {
        top: arguments.top as usize,
        variants: results.variants,
        front_over: results.pareto.then(|| several.map_or_else(divisors, <[usize]>::to_vec)),
        tolerance: (!results.exotic).then_some(TOLERANCE),
        explain: results.explain || results.html.is_some(),
        brief: false,
    }
}
