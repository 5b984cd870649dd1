//! A whole optimizer step beside the rate of the matrix library.

use quadrille_measure::step::{MeasuredStep, Scaling};
use quadrille_run::shown_layout;
use quadrille_run::units::{bytes, percent};
use quadrille_spec::{LayoutFile, Model};
use quadrille_step::StepProgram;
use serde::Serialize;

use crate::summary::summary;
use crate::{ReportVersion, Text, ledger, table};

/// What was measured of a program's step.
pub struct StepReport<'a> {
    /// The program.
    pub program: &'a StepProgram,
    /// Its step.
    pub measured: &'a MeasuredStep,
}

#[derive(Serialize)]
struct Document<'a> {
    version: ReportVersion,
    model: &'a Model,
    layout: LayoutFile,
    #[serde(flatten)]
    measured: &'a MeasuredStep,
}

impl StepReport<'_> {
    /// All of it, as `bench step --json` prints it.
    pub fn document(&self) -> impl Serialize {
        let Self { program, measured } = *self;
        Document {
            version: ReportVersion::CURRENT,
            model: &program.model,
            layout: shown_layout(&program.layout),
            measured,
        }
    }

    /// Model and layout, the rates, and a table of what the step is spent on.
    pub fn text(&self) -> Text {
        let mut shares: Vec<_> = self.measured.breakdown.iter().collect();
        shares.sort_by(|(_, a), (_, b)| b.seconds.total_cmp(&a.seconds));
        let rows: Vec<Vec<String>> = shares
            .into_iter()
            .map(|(name, share)| vec![name.clone(), format!("{:.6}", share.seconds), format!("{:.1}", share.percent)])
            .collect();
        Text::from(summary(self.program)) + self.rates() + "\n" + table(&["operation", "s per step", "%"], &rows)
    }

    fn rates(&self) -> String {
        let Self { program, measured } = self;
        let each = measured.step_ms_each.iter().map(|step| format!("{step:.1}")).collect::<Vec<_>>().join(", ");
        let [m, n, k] = measured.gemm_size;
        let [before, after] = measured.gemm_gflops_each;
        let dtype = program.layout.dtype;
        let threads = measured.threads * program.layout.grid.ranks();
        let resident = measured.peak_rss_bytes.map_or("unknown".to_owned(), bytes);
        let by = match &measured.device {
            None => format!("{} with {threads} threads", dtype.real()),
            Some(device) => format!("{dtype} on {device}"),
        };
        let mut lines = vec![
            ("threads", format!("{} per rank", measured.threads)),
            ("step", format!("{:.1} ms, median of {each}", measured.step_ms)),
            ("rate", format!("{:.0} tokens/s, {:.1} GFLOP/s", measured.tokens_per_second, measured.gflops)),
            (
                "library",
                format!(
                    "{:.1} GFLOP/s on {m}x{n}x{k} {by} ({before:.1} before the steps, {after:.1} after)",
                    measured.gemm_gflops
                ),
            ),
            ("ratio", percent(measured.ratio)),
            ("memory", format!("{resident} resident at peak, {} in buffers", bytes(measured.allocated_bytes))),
        ];
        let device =
            measured.device_memory.as_ref().and_then(|ranks| ranks.first()).map(|first| ledger::device(*first));
        lines.extend(device.map(|told| ("device", told)));
        lines.extend(measured.device_graphs.map(|told| ("graphs", ledger::graphs(told))));
        if let Some(Scaling { one_rank_tokens_per_second, scaling }) = measured.scaling {
            let alone = format!("{one_rank_tokens_per_second:.0} tokens/s on one rank with {threads} threads");
            lines.push(("scaling", format!("{} of {alone}", percent(scaling))));
        }
        lines.into_iter().map(|(name, value)| format!("{name:<8}{value}\n")).collect()
    }
}
