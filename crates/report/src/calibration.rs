//! What `calibrate` has measured, and the tiers that were fitted to it: for people and as a document.

use std::path::Path;

use quadrille_cost::native::Deviation;
use quadrille_measure::calibration::{CalibrationSpec, Case, Compared, Fitted, Measured, Measurements, OnDevice};
use quadrille_run::units::{bytes, decimal, percent};
use quadrille_spec::{Algorithm, Calibration, Cluster, CollectiveKind, Device, GroupBandwidth, RateUnit, Tier};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{ReportVersion, Table, Text, table};

/// Runs that scatter more, as a fraction, are marked.
const MUCH: f64 = 0.2;

/// What was measured, and the cluster that this makes.
pub struct CalibrationReport<'a> {
    /// Every measurement.
    pub measured: &'a Measurements,
    /// The tiers.
    pub fitted: &'a Fitted,
    /// The cluster.
    pub cluster: &'a Cluster,
}

impl CalibrationReport<'_> {
    /// For people: the rates of a device, then tables.
    pub fn text(&self) -> Text {
        let Self { measured, fitted, cluster } = self;
        Text::from(head(measured, cluster))
            + "\n"
            + operations(measured)
            + "\n"
            + collectives(measured, fitted)
            + "\n"
            + tiers(fitted)
            + "\n"
            + algorithms(measured)
    }

    /// What is to be minded.
    pub fn warnings(&self) -> Vec<String> {
        let setup = &self.measured.setup;
        let CalibrationSpec { ranks_here, threads, cores, .. } = setup.spec;
        let all = &self.measured.cases;
        let noisy = all.iter().filter(|measured| measured.runs.spread > MUCH).count();
        let mut warnings = Vec::new();
        if noisy > 0 {
            warnings.push(format!(
                "the runs of {noisy} of {} measurements scatter by more than {}: leave the machine to itself, or use more \
                 `calibration.runs`",
                all.len(),
                percent(MUCH)
            ));
        }
        if let Some(OnDevice { name, sharing }) = &setup.device
            && *sharing > 1
        {
            warnings.push(format!("{sharing} ranks share a device, {name}: what was measured is a rank's share of it"));
        }
        if setup.spec.crowding() > 1.0 {
            warnings.push(format!(
                "{ranks_here} ranks of {threads} threads share {cores} cores: what was measured is a rank's share of them"
            ));
        }
        warnings
    }

    /// Document of a cluster that was written to a file, with warnings in the words of the command line.
    pub fn document(&self, out: &Path, warnings: Vec<String>) -> CalibrationDocument {
        let Self { measured, fitted, cluster } = *self;
        let of_kind = |(collective, error): &(CollectiveKind, Deviation)| CollectiveError {
            collective: *collective,
            error: *error,
        };
        CalibrationDocument {
            version: ReportVersion::CURRENT,
            out: out.to_string_lossy().into_owned(),
            seconds: measured.seconds,
            device: cluster.device.clone(),
            tiers: cluster.tiers.clone(),
            tier_errors: fitted.errors.clone(),
            error: fitted.error,
            errors_by_collective: fitted.by_kind.iter().map(of_kind).collect(),
            algorithms: measured.compared(),
            group_bandwidths: cluster.group_bandwidths.clone(),
            calibration: cluster.calibration.clone(),
            warnings,
        }
    }
}

/// A calibrated cluster: what `calibrate --json` prints.
///
/// Times are in seconds, sizes in bytes, rates in units a second, errors are parts of the measured time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CalibrationDocument {
    /// Version of the document.
    pub version: ReportVersion,
    /// File of the cluster.
    pub out: String,
    /// Seconds that the measurements took.
    pub seconds: f64,
    /// The measured device.
    pub device: Option<Device>,
    /// The fitted tiers, innermost first.
    pub tiers: Vec<Tier>,
    /// Errors of the fit by tier.
    pub tier_errors: Vec<Deviation>,
    /// Error of the fit over all measurements.
    pub error: Deviation,
    /// Errors of the fit by collective.
    pub errors_by_collective: Vec<CollectiveError>,
    /// Algorithms other than the transport's own.
    pub algorithms: Vec<Compared>,
    /// Measured bandwidths of groups.
    pub group_bandwidths: Vec<GroupBandwidth>,
    /// All measurements.
    pub calibration: Option<Calibration>,
    /// Warnings in words.
    pub warnings: Vec<String>,
}

/// Error of the fit of a collective.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CollectiveError {
    /// The collective.
    pub collective: CollectiveKind,
    /// The error over all tiers.
    pub error: Deviation,
}

fn head(measured: &Measurements, cluster: &Cluster) -> String {
    let CalibrationSpec { ranks, per_node, threads, runs, .. } = measured.setup.spec;
    let mut lines = vec![format!(
        "{ranks} ranks, {per_node} to a node, {threads} threads each; medians of {runs} runs, in {:.1} s",
        measured.seconds
    )];
    if let Some(device) = &cluster.device {
        let rates = [
            ("products, bf16", device.peak.half.map_or("none".to_owned(), |rate| decimal(rate, "FLOP/s"))),
            ("products, f32", decimal(device.peak.single, "FLOP/s")),
            ("products, f64", decimal(device.peak.double, "FLOP/s")),
            ("element-wise", decimal(device.vector_rate, "FLOP/s")),
            (
                "memory",
                format!("{}, {} of it", decimal(device.memory_bandwidth, "B/s"), percent(device.memory_efficiency)),
            ),
            ("operation", format!("{:.2} us", 1e6 * device.launch_seconds)),
            ("free memory", bytes(device.memory)),
        ];
        lines.extend(rates.map(|(name, rate)| format!("{name:<16}{rate}")));
        if let Some(OnDevice { name, .. }) = &measured.setup.device {
            let host = device.host_bandwidth.map_or("-".to_owned(), |rate| decimal(rate, "B/s"));
            lines.extend([("host copies", &host), ("device", name)].map(|(what, told)| format!("{what:<16}{told}")));
        }
    }
    lines.join("\n") + "\n"
}

fn spread(spread: f64) -> String {
    percent(spread) + if spread > MUCH { " !" } else { "" }
}

/// One line for each type and shape of products and attention, all layouts or directions side by side; the largest spread.
fn operations(measured: &Measurements) -> Table {
    let mut lines: Vec<(String, String, Vec<String>, f64)> = Vec::new();
    for Measured { case, runs } in &measured.cases {
        if matches!(case, Case::Collective { .. }) {
            continue;
        }
        let (work, unit) = case.work();
        let unit = match unit {
            RateUnit::Flops => "FLOP/s",
            RateUnit::Bytes => "B/s",
            RateUnit::Operations => "1/s",
        };
        let shape = case.shape().iter().map(usize::to_string).collect::<Vec<_>>().join(" x ");
        let name = match case {
            Case::Product { .. } => "product nn, nt, tn".to_owned(),
            Case::Attention { .. } => "attention, backward".to_owned(),
            _ => case.name(),
        };
        let name = format!("{name}, {}", case.dtype());
        let rate = decimal(work / runs.seconds, unit);
        match lines.last_mut().filter(|line| (&line.0, &line.1) == (&name, &shape)) {
            Some((_, _, rates, spread)) => {
                rates.push(rate);
                *spread = spread.max(runs.spread);
            }
            None => lines.push((name, shape, vec![rate], runs.spread)),
        }
    }
    let row = |(name, shape, rates, most): (String, String, Vec<String>, f64)| {
        vec![name, shape, rates.join(", "), spread(most)]
    };
    let rows: Vec<Vec<String>> = lines.into_iter().map(row).collect();
    table(&["operation", "shape", "rate", "spread"], &rows)
}

/// One line for each collective, group and size, with what the fitted tiers give for it.
fn collectives(measured: &Measurements, fitted: &Fitted) -> Table {
    let row = |Measured { case, runs }: &Measured| {
        let Case::Collective { kind, algorithm, group, bytes: size } = *case else { return None };
        if algorithm != Algorithm::Native {
            let name = kind.name().to_owned();
            let apart = group.inner.to_string();
            let groups = format!("{} of {}", group.ranks / group.size, group.size);
            let time = format!("{:.1}", 1e6 * runs.seconds);
            return Some(vec![name, algorithm.to_string(), groups, apart, bytes(size), time, spread(runs.spread)]);
        }
        let predicted = group.seconds(&fitted.tiers, kind, size as f64).ok()?;
        let [time, fit] = [runs.seconds, predicted].map(|seconds| format!("{:.1}", 1e6 * seconds));
        let groups = format!("{} of {}", group.ranks / group.size, group.size);
        let error = format!("{:+.1}%", 100.0 * (predicted / runs.seconds - 1.0));
        let name = kind.name().to_owned();
        let apart = group.inner.to_string();
        Some(vec![name, algorithm.to_string(), groups, apart, bytes(size), time, spread(runs.spread), fit, error])
    };
    let rows: Vec<Vec<String>> = measured.cases.iter().filter_map(row).collect();
    table(&["collective", "algorithm", "groups", "apart", "size", "us", "spread", "fitted us", "error"], &rows)
}

/// The fitted tiers and what the fit leaves.
fn tiers(fitted: &Fitted) -> Text {
    let row = |(tier, error): (&Tier, &Deviation)| {
        vec![
            tier.name.clone(),
            decimal(tier.links as f64 * tier.bandwidth * tier.efficiency, "B/s"),
            format!("{:.2}", 1e6 * tier.latency),
            decimal(tier.half_bytes, "B"),
            percent(error.mean),
            percent(error.largest),
            format!("{:.2}", error.factor),
        ]
    };
    let rows: Vec<Vec<String>> = fitted.tiers.iter().zip(&fitted.errors).map(row).collect();
    let kinds = fitted.by_kind.iter().map(|(kind, error)| format!("{} {}", kind.name(), percent(error.mean)));
    Text::from(table(&["tier", "rate", "latency us", "half bytes", "mean error", "largest", "typical ratio"], &rows))
        + format!(
            "mean error of all {}: {}; {}\n",
            fitted.error.samples,
            percent(fitted.error.mean),
            kinds.collect::<Vec<_>>().join(", ")
        )
}

/// Algorithms beside what the transport brings.
fn algorithms(measured: &Measurements) -> Table {
    let row = |one: &Compared| {
        let [small, large] = [one.small, one.large].map(|ratio| format!("{ratio:.2}"));
        vec![one.algorithm.to_string(), one.collective.name().to_owned(), small, large]
    };
    let rows: Vec<Vec<String>> = measured.compared().iter().map(row).collect();
    table(&["algorithm", "collective", "over native, to 64 KiB", "above"], &rows)
}
