//! `quadrille plan --cost axonn`: all grids of a number of ranks, ranked by AxoNN's communication model.

use std::time::Instant;

use quadrille_engine::Hyper;
use quadrille_papers::axonn::plan;
use quadrille_report::papers::axonn::AxonnReport;
use quadrille_run::{LayoutDefaults, OpenLayout};
use quadrille_spec::{ElementType, Linear};

use crate::failure::Failure;
use crate::output::{print_json, print_text};
use crate::plan::arguments::PlanArguments;
use crate::settings;

/// Ranks grids and prints the best.
pub fn run(arguments: &PlanArguments) -> Result<(), Failure> {
    let settings = settings::settings(&arguments.model, "gpt-demo", Hyper::default())?;
    if arguments.layout.grid.as_deref().is_some_and(|grid| grid != "auto") {
        return Err(Failure::usage("plan ranks all grids of --ranks ranks; leave --grid out"));
    }
    let typed = settings::typed(&arguments.layout, None, &LayoutDefaults::USUAL)?;
    settings::check_interval(&typed)?;
    let OpenLayout { request, cluster, .. } = typed;
    if request.linear == Linear::Summa {
        let rule = "AxoNN's communication model prices pmm only; use --linear pmm, or --cost native";
        return Err(Failure::usage(format!("--linear summa: {rule}")));
    }
    let dtype = arguments.dtype.unwrap_or(ElementType::Bf16);
    let start = Instant::now();
    let found = plan(&settings.model, &cluster, request.grid.ranks(), &request, dtype.bytes(), arguments.top as usize)?;
    let seconds = start.elapsed().as_secs_f64();
    let report = AxonnReport { model: &settings.model.name, cluster: &cluster.name, found: &found, seconds };
    if arguments.json { print_json(&report.document(&dtype.to_string())) } else { print_text(&report.text()) }
}
