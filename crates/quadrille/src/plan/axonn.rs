//! `quadrille plan --cost axonn`: all grids of a number of ranks, ranked by AxoNN's communication model.

use std::time::Instant;

use quadrille_papers::axonn::plan;
use quadrille_report::papers::axonn::AxonnReport;
use quadrille_run::{LayoutDefaults, OpenLayout};
use quadrille_spec::{ElementType, Linear};

use crate::failure::Failure;
use crate::output::{print_json, print_text};
use crate::plan::arguments::PlanArguments;

/// Ranks grids and prints the best.
pub fn run(arguments: &PlanArguments) -> Result<(), Failure> {
    let model = arguments.model.described("gpt-demo")?;
    if arguments.layout.grid.as_deref().is_some_and(|grid| grid != "auto") {
        return Err(Failure::usage("plan ranks all grids of --ranks ranks; leave --grid out"));
    }
    let typed = arguments.layout.said(None).open(&LayoutDefaults::USUAL)?;
    typed.check_interval()?;
    let OpenLayout { request, cluster, .. } = typed;
    if request.linear == Linear::Summa {
        let rule = "AxoNN's communication model prices pmm only; use --linear pmm, or --cost native";
        return Err(Failure::usage(format!("--linear summa: {rule}")));
    }
    let dtype = arguments.dtype.unwrap_or(ElementType::Bf16);
    let start = Instant::now();
    let found =
        plan(&model, &cluster, request.grid.ranks(), &request, dtype.bytes(), arguments.top.unwrap_or(10) as usize)?;
    let seconds = start.elapsed().as_secs_f64();
    let report = AxonnReport { model: &model.name, cluster: &cluster.name, found: &found, seconds };
    if arguments.json { print_json(&report.document(&dtype.to_string())) } else { print_text(report.text()) }
}
