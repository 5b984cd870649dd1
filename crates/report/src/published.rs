//! The native model beside what others have measured: errors by source, order of layouts, every row.

use quadrille_cost::native::Price;
use quadrille_evidence::{Entry, Evaluation, Fitted, Judged, Known, Measured, Order, Oversized, Run, Summary, Times};
use quadrille_plan::native::Reserve;
use quadrille_plan::statistics::{Errors, Pair};
use quadrille_run::units::percent;
use quadrille_spec::{Axis, FlopsConvention};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::candidate::notation;
use crate::{ReportVersion, Table, Text, table};

/// Errors of predictions by numbers that were fitted without the source, and without its models, by source; `numbers`: those that
/// all rows ask for.
pub fn crossed_text(known: &[Known], numbers: &[(String, f64)]) -> Text {
    let rows: Vec<Vec<String>> =
        numbers.iter().map(|(name, number)| vec![name.clone(), format!("{number:.4e}")]).collect();
    Text::from(crossed(known))
        + "\n"
        + Text::heading("numbers that all rows ask for")
        + table(&["number", "value"], &rows)
}

/// Errors of predictions by numbers that were fitted without a source: what `validate published --cross --json` prints.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CrossReport {
    /// Version of the document.
    pub version: ReportVersion,
    /// Errors by source.
    pub sources: Vec<CrossedSource>,
    /// Numbers that all rows ask for.
    pub numbers: Vec<FittedNumber>,
}

/// Errors of a source by numbers that were fitted without it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CrossedSource {
    /// The source.
    pub source: String,
    /// Errors by numbers that were fitted without the source.
    pub errors: Option<Errors>,
    /// Errors by numbers that were fitted without its runs of the model.
    pub familiar: Option<Errors>,
}

/// A fitted number.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FittedNumber {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: f64,
}

/// Published runs beside their predictions: what `validate published --json` prints.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PublishedReport {
    /// Version of the document.
    pub version: ReportVersion,
    /// Number of rows.
    pub rows: usize,
    /// Number of predicted rows.
    pub predicted: usize,
    /// Rows without a prediction.
    pub unmapped: Vec<UnmappedRows>,
    /// Errors by source, and the order of layouts.
    pub summary: Summary,
    /// Errors by source, by numbers that were fitted with and without it.
    pub crossed: Vec<SourceErrors>,
}

/// Rows without a prediction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UnmappedRows {
    /// Number of rows.
    pub rows: usize,
    /// The reason.
    pub reason: String,
}

/// Errors of a source by several fits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SourceErrors {
    /// The source.
    pub source: String,
    /// Errors by the numbers that come with the program.
    pub with: Option<Errors>,
    /// Errors by numbers that were fitted without the source.
    pub without: Option<Errors>,
    /// Errors by numbers that were fitted without its runs of the model.
    pub familiar: Option<Errors>,
}

/// Published runs as their page shows them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PublishedPage {
    /// The report.
    #[serde(flatten)]
    pub report: PublishedReport,
    /// Every measured row that is predicted.
    pub predicted_rows: Vec<PredictedRow>,
}

/// A measured row: source, table, model, device, layout, whether it is of seconds, measured, predicted. Without names, since
/// there are thousands.
pub type PredictedRow = (String, String, String, String, String, bool, Option<f64>, Option<f64>);

/// Report of predictions by numbers that were fitted without each source.
pub fn crossed_document(known: &[Known], numbers: &[(String, f64)]) -> CrossReport {
    let source = |(source, [_, crossed, familiar]): (&str, [Option<Errors>; 3])| CrossedSource {
        source: source.to_owned(),
        errors: crossed,
        familiar,
    };
    let number = |(name, value): &(String, f64)| FittedNumber { name: name.clone(), value: *value };
    CrossReport {
        version: ReportVersion::CURRENT,
        sources: by_source(known).into_iter().map(source).collect(),
        numbers: numbers.iter().map(number).collect(),
    }
}

/// Errors of each source in the order of the table: by the numbers that come with the program, by those without it, and by those
/// without its runs of the model.
fn by_source(known: &[Known]) -> Vec<(&str, [Option<Errors>; 3])> {
    let mut sources: Vec<&str> = Vec::new();
    for run in known {
        if !sources.contains(&run.source.as_str()) {
            sources.push(&run.source);
        }
    }
    let errors = |source: &str, of: fn(&Known) -> Option<f64>| {
        let ratios = known.iter().filter(|run| run.source == source).filter_map(of);
        Errors::of(&ratios.map(|predicted| Pair { predicted, measured: 1.0 }).collect::<Vec<_>>())
    };
    sources
        .into_iter()
        .map(|source| {
            let of: [fn(&Known) -> Option<f64>; 3] =
                [|run| Some(run.built_in), |run| Some(run.crossed), |run| run.familiar];
            (source, of.map(|of| errors(source, of)))
        })
        .collect()
}

fn crossed(known: &[Known]) -> Table {
    let row = |(source, [built_in, crossed, familiar]): (&str, [Option<Errors>; 3])| {
        let crossed = crossed?;
        Some(vec![
            source.to_owned(),
            crossed.count.to_string(),
            percent(crossed.mean_absolute),
            signed(crossed.bias),
            percent(crossed.largest),
            familiar.map_or("-".to_owned(), |it| percent(it.mean_absolute)),
            familiar.map_or("-".to_owned(), |it| signed(it.bias)),
            built_in.map_or("-".to_owned(), |it| percent(it.mean_absolute)),
        ])
    };
    let rows: Vec<Vec<String>> = by_source(known).into_iter().filter_map(row).collect();
    table(&["source", "rows", "without it", "bias", "largest", "without model", "bias", "with all"], &rows)
}

/// Report of published runs.
pub fn document(evaluation: &Evaluation, summary: &Summary) -> PublishedReport {
    let reasons = evaluation.reasons();
    let unmapped = reasons.iter().map(|(reason, rows)| UnmappedRows { rows: *rows, reason: reason.to_string() });
    let crossed = |(source, [built_in, crossed, familiar]): (&str, [Option<Errors>; 3])| SourceErrors {
        source: source.to_owned(),
        with: built_in,
        without: crossed,
        familiar,
    };
    PublishedReport {
        version: ReportVersion::CURRENT,
        rows: evaluation.entries.len() + evaluation.unmapped.len(),
        predicted: evaluation.entries.len(),
        unmapped: unmapped.collect(),
        summary: summary.clone(),
        crossed: by_source(Known::all()).into_iter().map(crossed).collect(),
    }
}

/// Page of published runs.
pub fn page(evaluation: &Evaluation, summary: &Summary) -> PublishedPage {
    let predicted_rows = evaluation.entries.iter().filter_map(shown).collect();
    PublishedPage { report: document(evaluation, summary), predicted_rows }
}

fn shown(entry: &Entry) -> Option<PredictedRow> {
    let row = entry.row;
    let candidate = &entry.run.candidate;
    let pair = entry.pair()?;
    let short = |value: f64| format!("{value:.4e}").parse::<f64>().ok();
    Some((
        entry.run.source.name.to_owned(),
        row.table.clone(),
        entry.run.model.name.clone(),
        row.gpu.clone(),
        format!("{} on {}", notation(candidate), candidate.devices()),
        entry.is_time(),
        short(pair.measured),
        short(pair.predicted),
    ))
}

fn signed(fraction: f64) -> String {
    format!("{:+.1}%", 100.0 * fraction)
}

/// For people.
pub fn text(evaluation: &Evaluation, summary: &Summary) -> Text {
    let mut text = Text::from(format!(
        "{} of {} rows are predicted; fitted: parameters of devices or networks come from these step times, constants of \
         frameworks from these bytes\n",
        evaluation.entries.len(),
        evaluation.entries.len() + evaluation.unmapped.len()
    ));
    let headed = |heading: &str, table: Table| Text::from("\n") + Text::heading(heading) + table;
    text += headed("seconds of a step", errors_table(&summary.times));
    text += headed(
        "seconds of a step, by numbers that were fitted without the source, or without its runs of a model (all rows of \
         the table that comes with the program)",
        crossed(Known::all()),
    );
    text += headed("bytes of a device", errors_table(&summary.memory));
    let fits = summary.fits;
    text += format!(
        "\n{} of {} runs that were out of memory are called fitting; {} of {} that ran are called too large (what Hagemann's framework \
         takes beside tensors was chosen by these)\n",
        fits.called_fitting, fits.out_of_memory, fits.called_too_large, fits.ran
    );
    let Judged { of_all, out_of_memory, called_fitting, ran, called_too_large } = summary.judged;
    text += format!(
        "by what runs take beside tensors as a distribution ({:.1} GB, deviation {:.1} GB, on all tables), fitted without the table in \
         question, and {:.0}% of runs to fit: {called_fitting} of {out_of_memory} are called fitting, {called_too_large} of {ran} too \
         large\n",
        of_all.mean / 1e9,
        of_all.deviation / 1e9,
        100.0 * Reserve::USUAL_RUNS,
    );
    text += headed(
        "runs that ran, and those that a plan calls too large (by what it keeps free where nobody says otherwise)",
        oversized_table(&summary.oversized),
    );
    text += headed(
        "order of the layouts of one model on one machine (tau: 1 is the measured order; regret: the chosen layout's time \
         over the best, less 1)",
        order_table(summary.ranking.sources.iter().chain(&summary.ranking.all)),
    );
    let reasons: Vec<Vec<String>> =
        evaluation.reasons().iter().map(|(reason, rows)| vec![reason.to_string(), rows.to_string()]).collect();
    text + headed("not predicted", table(&["reason", "rows"], &reasons))
}

fn label(fitted: Fitted) -> &'static str {
    match fitted {
        Fitted::No => "",
        Fitted::Partly => " (partly fitted)",
        Fitted::Yes => " (fitted)",
    }
}

fn errors_table(times: &[Times]) -> Table {
    let rows: Vec<Vec<String>> = times
        .iter()
        .map(|Times { source, table, fitted, errors }| {
            let Errors { count, mean_absolute, bias, largest } = errors;
            let name = match table {
                None => format!("{source}{}", label(*fitted)),
                Some(table) => format!("  {table}{}", label(*fitted)),
            };
            vec![name, count.to_string(), percent(*mean_absolute), signed(*bias), percent(*largest)]
        })
        .collect();
    table(&["source", "rows", "mean error", "bias", "largest"], &rows)
}

fn oversized_table(oversized: &[Oversized]) -> Table {
    let row = |Oversized { device, framework, ran, called_too_large }: &Oversized| {
        vec![device.clone(), framework.clone(), ran.to_string(), called_too_large.to_string()]
    };
    table(&["device", "framework", "ran", "called too large"], &oversized.iter().map(row).collect::<Vec<_>>())
}

fn order_table<'a>(orders: impl Iterator<Item = &'a Order>) -> Table {
    let rows: Vec<Vec<String>> = orders
        .map(|order| {
            let name = order.source.as_deref().unwrap_or("all");
            let tau = order.mean_tau.map_or("-".to_owned(), |tau| format!("{tau:.2}"));
            vec![
                format!("{name}{}", label(order.fitted)),
                order.groups.to_string(),
                order.layouts.to_string(),
                tau,
                percent(order.mean_regret),
                percent(order.largest_regret),
            ]
        })
        .collect();
    table(&["source", "groups", "layouts", "mean tau", "mean regret", "largest"], &rows)
}

/// For comma-separated values: a header and every predicted row, with what the seconds and bytes are spent on, and the rates that
/// measured and predicted seconds are by a convention of counting FLOPs.
pub fn rows(evaluation: &Evaluation, convention: FlopsConvention) -> Vec<Vec<String>> {
    let axes = axes().map(|axis| format!("{}_s", axis.name()));
    let header = COLUMNS.map(str::to_owned).into_iter().chain(axes).chain(MORE_COLUMNS.map(str::to_owned)).collect();
    std::iter::once(header).chain(evaluation.entries.iter().map(|entry| record(entry, convention))).collect()
}

/// The axes that published runs have.
fn axes() -> impl Iterator<Item = Axis> {
    Axis::ALL.into_iter().filter(|axis| *axis != Axis::Expert)
}

/// Before the seconds of each axis.
const COLUMNS: [&str; 12] = [
    "line",
    "source",
    "table",
    "model",
    "gpu",
    "quantity",
    "measured",
    "predicted",
    "error",
    "compute_s",
    "memory_bound_s",
    "launch_s",
];

/// After them.
const MORE_COLUMNS: [&str; 16] = [
    "bubble_s",
    "optimizer_s",
    "data_loading_s",
    "parameters",
    "gradients",
    "optimizer",
    "activations",
    "buffers",
    "framework",
    "stage",
    "fits",
    "layout",
    "flops_convention",
    "tflops_per_device_measured",
    "tflops_per_device",
    "mfu",
];

/// TFLOP/s of a device, measured and predicted, and the predicted MFU; nothing of rows of bytes.
fn rates(entry: &Entry, convention: FlopsConvention) -> [String; 3] {
    let Measured::Seconds(seconds) = entry.run.measured else { return [const { String::new() }; 3] };
    let Run { model, candidate, framework, cluster, global_batch, seq_len, .. } = &entry.run;
    let price = entry.price.counted_by(convention, model, candidate, [*global_batch, *seq_len]);
    let devices = candidate.devices();
    let rate = |rate: f64| format!("{rate:.2}");
    let mfu = cluster.device.as_ref().map(|device| price.mfu(devices, framework.product_peak(device)));
    [
        rate(Price { seconds, ..price }.tflops_per_device(devices)),
        rate(price.tflops_per_device(devices)),
        mfu.map_or(String::new(), |mfu| format!("{mfu:.4}")),
    ]
}

fn record(entry: &Entry, convention: FlopsConvention) -> Vec<String> {
    let row = entry.row;
    let price = &entry.price;
    let parts = &price.parts;
    let memory = &price.memory;
    let quantity = match entry.run.measured {
        Measured::Seconds(_) => "seconds",
        Measured::PeakBytes(..) => "peak bytes",
        Measured::RestBytes(_) => "bytes between steps",
        Measured::OutOfMemory => "out of memory",
    };
    let [measured, predicted, error] = entry.pair().map_or([const { String::new() }; 3], |pair| {
        [pair.measured.to_string(), pair.predicted.to_string(), format!("{:.4}", pair.error())]
    });
    let seconds = |value: f64| format!("{value:.6}");
    let candidate = &entry.run.candidate;
    let sizes = axes().map(|axis| format!("{}={}", axis.name(), candidate.size(axis))).collect::<Vec<_>>().join(" ");
    let layout = format!(
        "{sizes} microbatch={} chunks={} recompute={} zero={} activations={} overlap={} framework={}",
        candidate.microbatch,
        candidate.chunks,
        candidate.recompute,
        candidate.zero,
        candidate.activations,
        candidate.overlap,
        entry.run.framework.name,
    );
    let text = [
        row.line.to_string(),
        entry.run.source.name.to_owned(),
        row.table.clone(),
        entry.run.model.name.clone(),
        row.gpu.clone(),
        quantity.to_owned(),
        measured,
        predicted,
        error,
    ];
    let along = axes().map(|axis| parts.communication[axis as usize]);
    let times = [parts.compute, parts.memory_bound, parts.launch].into_iter().chain(along).chain([
        parts.bubble,
        parts.optimizer,
        parts.data_loading,
    ]);
    let bytes = [
        memory.parameters,
        memory.gradients,
        memory.optimizer,
        memory.activations,
        memory.buffers,
        memory.framework,
        memory.stage as u64,
    ];
    text.into_iter()
        .chain(times.map(seconds))
        .chain(bytes.map(|bytes| bytes.to_string()))
        .chain([entry.fits().to_string(), layout, convention.to_string()])
        .chain(rates(entry, convention))
        .collect()
}
