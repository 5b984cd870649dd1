//! `quadrille plan --cost native`: every layout, ranked by the native model.

pub mod arguments;
pub mod case;
pub mod describe;
pub mod document;
pub mod explain;
pub mod priced;
mod text;

use std::time::Instant;

use quadrille_plan::native::{Found, Ranked, Search, front};
use quadrille_spec::{Layout, LayoutFile};

use self::case::{Case, share_of, stop_at};
use crate::arguments::PlanArguments;
use crate::failure::Failure;
use crate::output::{print_json, print_text, write_file};
use crate::paths;
use crate::quantities::Counts;

/// What was found.
struct Answer<'a> {
    case: &'a Case,
    search: Search<'a>,
    found: Found,
    /// The fastest layout.
    best: Ranked,
    /// Over several numbers of devices; empty unless it was asked for.
    front: Vec<Ranked>,
    /// Numbers of devices that were not searched completely.
    incomplete: Vec<usize>,
    /// Seconds that it took.
    seconds: f64,
    /// Of the best layout, where it was asked for.
    explanation: Option<explain::Explanation>,
}

/// Searches and prints what was found.
pub fn run(arguments: &PlanArguments) -> Result<(), Failure> {
    let gpus = arguments.gpus.as_ref().map(Counts::values);
    let case =
        Case::new(&arguments.model, &arguments.layout, &arguments.question, gpus, arguments.nvs.map(|n| n as usize))?;
    let results = &arguments.results;
    let several = gpus.is_some_and(|gpus| gpus.len() > 1);
    if several && !results.pareto {
        return Err(Failure::usage("--gpus: several numbers of GPUs are compared with --pareto; add it, or give one"));
    }
    let written = [("--csv", arguments.csv.as_deref()), ("--out", results.out.as_deref())];
    let written: Vec<_> = written.into_iter().filter_map(|(flag, path)| Some((flag, path?))).collect();
    paths::check(&written, &paths::described(&arguments.model, &arguments.layout).collect::<Vec<_>>())?;
    let answer = Answer::new(&case, arguments, gpus.filter(|_| several))?;
    if let Some(path) = &results.out {
        write_file("--out", path, layout_file(&case, &answer.best)?.as_bytes())?;
    }
    if let Some(path) = &arguments.csv {
        write_file("--csv", path, answer.csv()?.as_bytes())?;
    }
    if arguments.json { print_json(&answer.document()?) } else { print_text(&answer.text()?) }
}

impl<'a> Answer<'a> {
    /// Searches; with several numbers of devices in `gpus`, or all divisors, for the front over them.
    fn new(case: &'a Case, arguments: &PlanArguments, gpus: Option<&[usize]>) -> Result<Self, Failure> {
        let results = &arguments.results;
        let (start, end) = (Instant::now(), case.end());
        let one_per_grid = results.one_per_grid;
        let search = Search { one_per_grid, front: results.pareto, ..case.search(case.gpus, arguments.top as usize)? };
        let divisors = || (1..=case.gpus).filter(|devices| case.gpus.is_multiple_of(*devices)).collect();
        let mut others = if results.pareto { gpus.map_or_else(divisors, <[usize]>::to_vec) } else { Vec::new() };
        others.retain(|devices| *devices != case.gpus);
        let mut found = search.run(&stop_at(share_of(end, 1 + others.len())))?;
        let mut layouts = found.front.clone();
        let mut incomplete: Vec<usize> = found.stopped.then_some(case.gpus).into_iter().collect();
        for (index, devices) in others.iter().enumerate() {
            let other = Search { devices: *devices, top: 0, ..search.clone() };
            let other = other.run(&stop_at(share_of(end, others.len() - index)))?;
            found.stopped |= other.stopped;
            incomplete.extend(other.stopped.then_some(*devices));
            layouts.extend(other.front);
        }
        incomplete.sort_unstable();
        let fastest = |a: &&Ranked, b: &&Ranked| a.price.seconds.total_cmp(&b.price.seconds);
        let Some(best) = found.ranked.first().or_else(|| layouts.iter().min_by(fastest)).copied() else {
            return Err(search.why_nothing(&found, &stop_at(end)).into());
        };
        let seconds = start.elapsed().as_secs_f64();
        let runner_up = found.ranked.get(1).copied();
        let explain = || -> Result<_, Failure> {
            Ok(explain::Explanation::new(&search.setting, &layout(case, &best)?, best, runner_up)?)
        };
        let explanation = results.explain.then(explain).transpose()?;
        Ok(Self { case, search, found, best, front: front(&layouts), incomplete, seconds, explanation })
    }
}

/// The layout of a candidate.
fn layout(case: &Case, ranked: &Ranked) -> Result<Layout, Failure> {
    Ok(case.setting()?.layout(&ranked.candidate)?)
}

/// The layout as a file that `--layout` reads.
fn layout_file(case: &Case, ranked: &Ranked) -> Result<String, Failure> {
    Ok(LayoutFile::of(&layout(case, ranked)?).to_toml()?)
}
