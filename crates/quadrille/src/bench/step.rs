//! `quadrille bench step`: a whole optimizer step beside the rate of the matrix library.

use quadrille_engine::{Hyper, LossScale, TrainOptions};
use quadrille_measure::step::{MeasuredStep, Scaling, YARDSTICK, measure};
use quadrille_report::summary::summary;
use quadrille_run::units::percent;
use quadrille_run::{layout_json, resources};
use quadrille_spec::Model;
use quadrille_step::StepProgram;
use serde::Serialize;
use serde_json::Value;

use crate::arguments::BenchStepArguments;
use crate::bench::layout;
use crate::failure::Failure;
use crate::launch::Launch;
use crate::output::{bytes, print_json, print_text, table};
use crate::settings;

#[derive(Serialize)]
struct Document<'a> {
    model: &'a Model,
    layout: Value,
    #[serde(flatten)]
    measured: &'a MeasuredStep,
}

/// Measures and reports.
pub fn run(arguments: &BenchStepArguments) -> Result<(), Failure> {
    let settings = settings::settings(&arguments.model, super::MODEL, Hyper::default())?;
    let layout = layout(&arguments.layout, &settings.model, arguments.dtype)?;
    let steps = arguments.steps.saturating_add(1);
    let options = TrainOptions {
        threads: settings::threads(&arguments.run, &Launch::THREADS, layout.grid.ranks())?,
        timeout: settings::timeout(&arguments.run)?,
        collectives: Launch::THREADS.collectives(&arguments.run, &settings::cluster(arguments.layout.cluster())?),
        loss_scale: LossScale::usual(layout.dtype),
        ..TrainOptions::new(steps, settings::hyper(settings.optimizer, &arguments.run, steps)?, arguments.run.seed())
    };
    let program = StepProgram::new(&settings.model, &layout)?;
    resources::check(&program, options.threads, &Launch::THREADS, 0)?;
    let measured = measure(&program, &options, !arguments.no_scaling)?;
    if arguments.json {
        let (model, layout) = (&program.model, layout_json(&program.layout));
        return print_json(&Document { model, layout, measured: &measured });
    }
    print_text(&text(&program, &measured))
}

fn text(program: &StepProgram, measured: &MeasuredStep) -> String {
    let each = measured.step_ms_each.iter().map(|step| format!("{step:.1}")).collect::<Vec<_>>().join(", ");
    let ([m, n, k], [before, after]) = (YARDSTICK, measured.gemm_gflops_each);
    let threads = measured.threads * program.layout.grid.ranks();
    let resident = measured.peak_rss_bytes.map_or("unknown".to_owned(), bytes);
    let mut lines = vec![
        ("threads", format!("{} per rank", measured.threads)),
        ("step", format!("{:.1} ms, median of {each}", measured.step_ms)),
        ("rate", format!("{:.0} tokens/s, {:.1} GFLOP/s", measured.tokens_per_second, measured.gflops)),
        (
            "library",
            format!(
                "{:.1} GFLOP/s on {m}x{n}x{k} {} with {threads} threads ({before:.1} before the steps, {after:.1} after)",
                measured.gemm_gflops,
                program.layout.dtype.real()
            ),
        ),
        ("ratio", percent(measured.ratio)),
        ("memory", format!("{resident} resident at peak, {} in buffers", bytes(measured.allocated_bytes))),
    ];
    if let Some(Scaling { one_rank_tokens_per_second, scaling }) = measured.scaling {
        let alone = format!("{one_rank_tokens_per_second:.0} tokens/s on one rank with {threads} threads");
        lines.push(("scaling", format!("{} of {alone}", percent(scaling))));
    }
    let head: String = lines.into_iter().map(|(name, value)| format!("{name:<8}{value}\n")).collect();
    let mut shares: Vec<_> = measured.breakdown.iter().collect();
    shares.sort_by(|(_, a), (_, b)| b.seconds.total_cmp(&a.seconds));
    let rows: Vec<Vec<String>> = shares
        .into_iter()
        .map(|(name, share)| vec![name.clone(), format!("{:.6}", share.seconds), format!("{:.1}", share.percent)])
        .collect();
    summary(program) + &head + "\n" + &table(&["operation", "s per step", "%"], &rows)
}
