//! A comparison in words and tables.

use quadrille_measure::local::{Comparison, LocalGrids, Row};
use quadrille_plan::Skipped;
use quadrille_plan::local::WARM_UP_STEPS;
use quadrille_run::units::seconds;
use quadrille_spec::{ElementType, counted};

use super::{LocalReport, name, not_predicted};
use crate::Text;
use crate::candidate::layout_notation;

const HEADER: [&str; 12] = [
    "layout",
    "grid",
    "predicted",
    "measured",
    "deviation",
    "error",
    "predicted place",
    "measured place",
    "predicted compute",
    "measured compute",
    "predicted exposed",
    "measured exposed",
];

/// Columns that a narrow terminal goes without.
const SPARE: [&str; 5] =
    ["deviation", "predicted exposed", "measured exposed", "predicted compute", "measured compute"];

/// Layouts whose times are closer than this to each other are common.
const NOISY: f64 = 0.05;

impl LocalReport<'_> {
    /// All of it, for people.
    pub fn text(&self) -> Text {
        let rows: Vec<Vec<String>> = self.comparison.rows.iter().map(cells).collect();
        let table = crate::table(&HEADER, &rows).spare(&SPARE);
        Text::from(self.head()) + "\n" + table + "\n" + summary(self.comparison) + self.left_out()
    }

    /// What was run, and what it is held against.
    pub(super) fn head(&self) -> String {
        let LocalGrids { case, global_batch, seq_len, legal, ranks, assumed, device, crowded, .. } = self.grids;
        let cores = self.cores;
        let mut text = format!(
            "{}, {global_batch} sequences of {seq_len} {} a step, {}; {} of {legal} legal grids of {}, {} each \
             on {}\nmeasured: random samples, the slowest rank's mean of the last {} of {} steps\npredicted: the native model on {}",
            case.model.name,
            case.model.sequence_unit(),
            case.layouts.first().map_or(ElementType::F32, |first| first.layout.dtype),
            case.layouts.len(),
            counted(*ranks, "rank"),
            counted(case.options.threads, "thread"),
            counted(cores, "core"),
            case.options.steps - WARM_UP_STEPS as u64,
            case.options.steps,
            case.cluster.name,
        );
        if let Some(assumed) = assumed {
            text += &format!("; {assumed}");
        }
        if let Some(device) = device {
            text += &format!(
                "\nranks compute on {device}: measured compute is what the host takes to begin it, and where the host waits \
                 for it counts as exposed communication"
            );
        }
        if *crowded {
            text += "\nranks share cores: a rank that waits for one that has none counts as exposed communication";
        }
        text + "\n"
    }

    /// Layouts without a prediction, and grids that did not run, with the reasons.
    pub(super) fn left_out(&self) -> String {
        let unpredicted = self.comparison.rows.iter().filter_map(|row| Some((name(row), not_predicted(row)?)));
        let unpredicted = unpredicted.map(|(name, reason)| format!("not predicted {name}: {reason}\n"));
        let skipped = self.grids.skipped.iter().map(|Skipped { grid, reason }| format!("skipped {grid}: {reason}\n"));
        unpredicted.chain(skipped).collect()
    }
}

fn cells(row: &Row) -> Vec<String> {
    let known = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let place = |at: usize| known(row.places[at].map(|place| place.to_string()));
    let pair = row.pair();
    let [measured_compute, measured_exposed, _] = row.measured_parts();
    let predicted_part = |at: usize| known(row.predicted_parts().map(|parts| seconds(parts[at])));
    vec![
        layout_notation(&row.layout),
        name(row),
        known(pair.map(|pair| seconds(pair.predicted))),
        seconds(row.measured.seconds),
        known(row.measured.deviation.map(|deviation| format!("±{}", seconds(deviation)))),
        known(pair.map(|pair| format!("{:+.1}%", 100.0 * pair.error()))),
        place(0),
        place(1),
        predicted_part(0),
        seconds(measured_compute),
        predicted_part(1),
        seconds(measured_exposed),
    ]
}

/// How well the predictions tell the measurements.
pub(super) fn summary(comparison: &Comparison) -> String {
    let summary = &comparison.summary;
    let errors = summary.errors;
    let percent = |fraction: f64| format!("{:.1}%", 100.0 * fraction);
    let known = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.3}"));
    let named = |row: Option<&Row>| row.map_or("-".to_owned(), name);
    let agreement: Vec<String> = summary
        .agreement
        .iter()
        .map(|of| {
            format!("{} of the {best} predicted to be fastest are among the {best} fastest", of.common, best = of.best)
        })
        .collect();
    let lines = [
        ("layouts", errors.count.to_string()),
        (
            "error",
            format!(
                "{} on average, {} at most, bias {:+.1}%",
                percent(errors.mean_absolute),
                percent(errors.largest),
                100.0 * errors.bias
            ),
        ),
        ("best", agreement.join(", ")),
        ("tau-b", format!("{} (Kendall; 1 is the measured order)", known(summary.kendall_tau_b))),
        ("pearson", format!("{} (of the logarithms of the times)", known(summary.pearson_of_logs))),
        (
            "regret",
            format!(
                "{}: {} is predicted to be fastest, {} is",
                percent(summary.regret),
                named(comparison.predicted_best()),
                named(comparison.measured_best())
            ),
        ),
        ("noise", comparison.noise().map_or("-".to_owned(), noise)),
    ];
    lines.into_iter().map(|(name, value)| format!("{name:<9}{value}\n")).collect()
}

fn noise(noise: f64) -> String {
    let advice = if noise > NOISY { "; on a quiet machine, or with more steps, the order says more" } else { "" };
    format!("steps of one layout deviate by {:.1}% from their mean (the median layout){advice}", 100.0 * noise)
}
