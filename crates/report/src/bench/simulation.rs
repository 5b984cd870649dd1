//! Simulated beside measured steps.

use quadrille_measure::constants::Constants;
use quadrille_measure::simulation::{NOT_MODELLED, Simulated};
use quadrille_spec::{Model, counted};
use serde::Serialize;

use crate::{ReportVersion, Table, Text, table};

/// What was simulated and measured of layouts of a model.
pub struct SimulationReport<'a> {
    /// The model.
    pub model: &'a Model,
    /// Sequences in a step.
    pub global_batch: usize,
    /// Of the machine.
    pub cores: usize,
    /// Measured steps of each layout.
    pub steps: u64,
    /// The layouts.
    pub measured: &'a Simulated,
}

#[derive(Serialize)]
struct Document<'a> {
    version: ReportVersion,
    model: &'a Model,
    global_batch: usize,
    cores: usize,
    steps: u64,
    #[serde(flatten)]
    measured: &'a Simulated,
    not_modelled: &'static str,
}

impl SimulationReport<'_> {
    /// All of it, as `bench simulation --json` prints it.
    pub fn document(&self) -> impl Serialize {
        let Self { model, global_batch, cores, steps, measured } = *self;
        Document {
            version: ReportVersion::CURRENT,
            model,
            global_batch,
            cores,
            steps,
            measured,
            not_modelled: NOT_MODELLED,
        }
    }

    /// Tables for people: the constants, then the layouts.
    pub fn text(&self) -> Text {
        let Self { model, global_batch, cores, steps, measured } = self;
        let head = format!(
            "{}: {} layers, hidden {}, {} tokens a sequence, {global_batch} sequences a step; {}, one thread per rank; \
             median of {}\n",
            model.name,
            model.layers(),
            model.hidden,
            model.seq_len,
            counted(*cores, "core"),
            counted(*steps as usize, "step"),
        );
        let foot = format!(
            "\nabsolute error: {:.1}% on average, {:.1}% at most\ncrowding: simulated ranks that compute at once over cores, \
             by which every rate is divided\nnot modelled: {NOT_MODELLED}\n",
            measured.mean_absolute_error_percent, measured.largest_absolute_error_percent
        );
        Text::from(head) + self.constants() + "\n" + self.layouts() + foot
    }

    /// The measured constants; the simulation has the mean of both rows.
    fn constants(&self) -> Table {
        let row = |calibration: &Constants| {
            let rates = [calibration.product_gflops, calibration.attention_gflops, calibration.memory_gb_s];
            let ring = [calibration.operation_latency_us, calibration.ring_gb_s, calibration.message_latency_us];
            rates.into_iter().chain(ring).map(|number| format!("{number:.1}")).collect::<Vec<_>>()
        };
        let times = ["before", "after"].into_iter().zip(&self.measured.calibration_each);
        let rows: Vec<Vec<String>> = times.map(|(when, each)| [vec![when.to_owned()], row(each)].concat()).collect();
        let header = [
            "measured",
            "products GFLOP/s",
            "attention GFLOP/s",
            "memory GB/s",
            "operation us",
            "ring GB/s",
            "message us",
        ];
        table(&header, &rows)
    }

    fn layouts(&self) -> Table {
        let rows = self.measured.layouts.iter().map(|row| {
            let [simulated_ms, measured_ms] = [row.simulated_ms, row.measured_ms].map(|ms| format!("{ms:.1}"));
            let shares = [row.simulated_waiting_percent, row.waiting_percent].map(|share| format!("{share:.1}"));
            let [simulated_share, share] = shares;
            let error = format!("{:+.1}", row.error_percent);
            let crowding = format!("{:.2}", row.crowding);
            vec![row.layout.clone(), crowding, simulated_ms, measured_ms, error, simulated_share, share]
        });
        let header = [
            "layout",
            "crowding",
            "simulated ms",
            "measured ms",
            "error %",
            "simulated waiting %",
            "measured waiting %",
        ];
        table(&header, &rows.collect::<Vec<_>>())
    }
}
