//! `quadrille plan --cost native`: every layout, ranked by the native model.

pub mod arguments;
pub mod priced;

use quadrille_plan::native::{Answer, Question, Wanted};
use quadrille_report::plan::{document, rows, text};

use crate::failure::Failure;
use crate::output::{csv, print_json, print_text, write_file};
use crate::plan::arguments::PlanArguments;
use crate::quantities::Counts;
use crate::{flags, paths};

/// Searches and prints what was found.
pub fn run(arguments: &PlanArguments) -> Result<(), Failure> {
    let gpus = arguments.gpus.as_ref().map(Counts::values);
    let PlanArguments { model, layout, question, dtype, nvs, .. } = arguments;
    let question = arguments::question(model, layout, question, *dtype, gpus.map(<[usize]>::to_vec), *nvs)?;
    let results = &arguments.results;
    let several = gpus.filter(|gpus| gpus.len() > 1);
    if several.is_some() && !results.pareto {
        return Err(Failure::usage("--gpus: several numbers of GPUs are compared with --pareto; add it, or give one"));
    }
    let written = paths::asked([("--csv", &arguments.csv), ("--out", &results.out)]);
    paths::check_described(&written, &arguments.model, &arguments.layout)?;
    let answer = Answer::new(&question, &wanted(arguments, &question, several))?;
    if let Some(path) = &results.out {
        write_file("--out", path, question.layout_file(&answer.best)?.as_bytes())?;
    }
    if let Some(path) = &arguments.csv {
        write_file("--csv", path, csv(rows(&answer)?)?.as_bytes())?;
    }
    if !arguments.json {
        return print_text(&flags::spelled(&text(&answer)?));
    }
    let mut document = document(&answer)?;
    for at in 0..answer.refusals().len() {
        flags::spell_at(&mut document, &format!("/refusals/{at}/example"));
    }
    print_json(&document)
}

/// What is to be found: with `--pareto` over the numbers of devices in `several`, or all divisors of the question's.
fn wanted(arguments: &PlanArguments, question: &Question, several: Option<&[usize]>) -> Wanted {
    let results = &arguments.results;
    let divisors = || (1..=question.devices).filter(|devices| question.devices.is_multiple_of(*devices)).collect();
    Wanted {
        top: arguments.top as usize,
        one_per_grid: results.one_per_grid,
        front_over: results.pareto.then(|| several.map_or_else(divisors, <[usize]>::to_vec)),
        explain: results.explain,
    }
}
