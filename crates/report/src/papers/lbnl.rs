//! What a search of LBNL's configurations has found: for people, as a document, as a table of their code's outputs.

use quadrille_papers::lbnl::{Found, INPUTS, Price, PricedLine, Ranked, Search, training_steps};
use quadrille_run::units::{decimal, shortest};
use quadrille_spec::Model;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::columns;
use crate::{ReportVersion, Text, table};

/// Of the table for people.
const HEADER: &str =
    "step,dp,tp1,tp2,pp,microbatch,panels,in domain,compute,memory,tp comm,dp comm,pp comm,bubble,holds,days";

/// Columns of it that a narrow terminal goes without.
const SPARE: [&str; 6] = ["in domain", "pp comm", "dp comm", "tp comm", "memory", "panels"];

/// Of the saved outputs of LBNL's code.
const CSV_COLUMNS: &str = "strategy,model,gpu,nvs,n_gpus,rank_in_top10,dp,tp1,tp2,pp,microbatch,summa_nb,nvs_tp1,nvs_tp2,\
                           nvs_dp,nvs_pp,global_batch,t_iter_s,mem_gb,t_comp,t_mem,t_tp_comm,t_dp_comm,t_pp_comm,\
                           t_bubble,wts_mem,wts_grad_mem,opt_mem,acts_mem,throughput";

/// What the table of priced lines has behind what was read.
const PRICE_COLUMNS: &str = "t,mem,t_comp,t_mem,t_tp_comm,t_dp_comm,t_pp_comm,t_bubble,flops_per_gpu,wts_mem,wts_grad_mem,\
                             wts_optimizer_states_mem,acts_mem";

/// What was searched, and what was found.
pub struct LbnlReport<'a> {
    /// The model, whose shape was searched.
    pub model: &'a Model,
    /// What was searched.
    pub search: &'a Search,
    /// What was found.
    pub found: &'a Found,
    /// Seconds that it took.
    pub seconds: f64,
}

/// Configurations of LBNL's model, fastest first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LbnlDocument {
    /// Version of the document.
    pub version: ReportVersion,
    /// Name of the model.
    pub model: String,
    /// Name of the system.
    pub cluster: String,
    /// Cost model: `lbnl`.
    pub cost: String,
    /// Tensor-parallel strategy.
    pub strategy: String,
    /// Number of devices.
    pub gpus: u64,
    /// Devices of a fast domain.
    pub nvs: u64,
    /// Sequences in a step.
    pub global_batch: u64,
    /// Steps of the training.
    pub steps: f64,
    /// Number of configurations.
    pub candidates: u64,
    /// Number of configurations that fit.
    pub feasible: u64,
    /// Bytes of the smallest configuration.
    pub least_memory_bytes: Option<f64>,
    /// Bytes of a device.
    pub device_memory_bytes: f64,
    /// Seconds of the search.
    pub seconds: f64,
    /// Configurations that it settled in a second.
    pub candidates_per_second: f64,
    /// Configurations, fastest first.
    pub plans: Vec<LbnlEntry>,
}

/// A configuration with its price.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LbnlEntry {
    /// The configuration.
    pub layout: LbnlLayout,
    /// Seconds of a step.
    pub time_s: f64,
    /// Seconds of its parts.
    pub parts_s: LbnlParts,
    /// FLOPs of a device in a step.
    pub flops: f64,
    /// Bytes of a device.
    pub memory_bytes: f64,
    /// Bytes by class.
    pub memory: LbnlMemory,
    /// Days of the training.
    pub days: f64,
}

/// A configuration in the names of LBNL's code.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LbnlLayout {
    /// Data parallelism.
    pub dp: u64,
    /// First tensor-parallel dimension.
    pub tp1: u64,
    /// Second tensor-parallel dimension.
    pub tp2: u64,
    /// Stages of the pipeline.
    pub pp: u64,
    /// Sequences of a microbatch.
    pub microbatch: u64,
    /// Panels of SUMMA.
    pub summa_nb: u64,
    /// Ranks of `tp1` in a fast domain.
    pub nvs_tp1: u64,
    /// Ranks of `tp2` in a fast domain.
    pub nvs_tp2: u64,
    /// Ranks of `dp` in a fast domain.
    pub nvs_dp: u64,
    /// Ranks of `pp` in a fast domain.
    pub nvs_pp: u64,
}

/// Seconds of a step by part.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LbnlParts {
    /// Arithmetic.
    pub compute: f64,
    /// Memory traffic.
    pub memory: f64,
    /// Tensor-parallel communication.
    pub tensor_communication: f64,
    /// Data-parallel communication.
    pub data_communication: f64,
    /// Communication between stages.
    pub pipe_communication: f64,
    /// Bubble of the pipeline.
    pub bubble: f64,
}

/// Bytes of a device by class.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LbnlMemory {
    /// Weights.
    pub weights: f64,
    /// Gradients.
    pub gradients: f64,
    /// States of the optimizer.
    pub optimizer: f64,
    /// Activations.
    pub activations: f64,
}

impl LbnlReport<'_> {
    /// The report as a document.
    pub fn document(&self) -> LbnlDocument {
        let Self { model, search, found, seconds } = self;
        let system = search.system();
        LbnlDocument {
            version: ReportVersion::CURRENT,
            model: model.name.clone(),
            cluster: system.name.to_owned(),
            cost: "lbnl".to_owned(),
            strategy: search.strategy().name().to_owned(),
            gpus: search.devices(),
            nvs: system.fast_domain,
            global_batch: search.global_batch(),
            steps: self.steps(),
            candidates: found.candidates,
            feasible: found.feasible,
            least_memory_bytes: found.least_memory_bytes,
            device_memory_bytes: system.memory_bytes,
            seconds: *seconds,
            candidates_per_second: found.candidates as f64 / seconds,
            plans: found.ranked.iter().map(|ranked| self.entry(ranked)).collect(),
        }
    }

    fn entry(&self, ranked: &Ranked) -> LbnlEntry {
        let price = &ranked.price;
        let [dp, tp1, tp2, pp, microbatch, summa_nb, nvs_tp1, nvs_tp2, nvs_dp, nvs_pp] = ranked.configuration.numbers();
        LbnlEntry {
            layout: LbnlLayout { dp, tp1, tp2, pp, microbatch, summa_nb, nvs_tp1, nvs_tp2, nvs_dp, nvs_pp },
            time_s: price.seconds,
            parts_s: LbnlParts {
                compute: price.compute,
                memory: price.memory,
                tensor_communication: price.tensor_communication,
                data_communication: price.data_communication,
                pipe_communication: price.pipe_communication,
                bubble: price.bubble,
            },
            flops: price.flops,
            memory_bytes: price.memory_bytes(),
            memory: LbnlMemory {
                weights: price.weight_bytes,
                gradients: price.gradient_bytes,
                optimizer: price.optimizer_bytes,
                activations: price.activation_bytes,
            },
            days: self.days(ranked),
        }
    }

    /// For people.
    pub fn text(&self) -> Text {
        let Self { model, search, found, seconds } = self;
        let system = search.system();
        let strategy = search.strategy();
        let gpus = search.devices();
        let global_batch = search.global_batch();
        let gigabytes = |bytes: f64| format!("{:.1} GB", bytes / 1e9);
        let mut text = Text::from(format!(
            "{} on {gpus} {} in fast domains of {}, strategy {}, batch {global_batch}, by LBNL's model\n\
             {} of {} configurations fit into {} (searched in {:.2} ms: {} configurations/s)\n",
            model.name,
            system.name,
            system.fast_domain,
            strategy.name(),
            found.feasible,
            found.candidates,
            gigabytes(system.memory_bytes),
            1e3 * seconds,
            decimal(found.candidates as f64 / seconds, "").trim_end(),
        ));
        if let (0, Some(least)) = (found.feasible, found.least_memory_bytes) {
            return text
                + format!("the smallest takes {}; use more GPUs, or GPUs with more memory\n", gigabytes(least));
        }
        let amount = if model.patch_values.is_some() { "80 epochs of 40 years, hourly" } else { "1e12 tokens" };
        text += format!("days: {:.0} steps, {amount}; parts in percent of a step\n\n", self.steps());
        let rows: Vec<_> = found.ranked.iter().map(|ranked| self.row(ranked)).collect();
        text + table(&HEADER.split(',').collect::<Vec<_>>(), &rows).spare(&SPARE)
    }

    fn row(&self, ranked: &Ranked) -> Vec<String> {
        let price = &ranked.price;
        let [dp, tp1, tp2, pp, microbatch, panels, nvs_tp1, nvs_tp2, nvs_dp, nvs_pp] = ranked.configuration.numbers();
        let sizes = [dp, tp1, tp2, pp, microbatch].map(|size| size.to_string());
        let panels = if panels == 0 { "-".to_owned() } else { panels.to_string() };
        let domain = format!("{nvs_dp}*{nvs_tp1}*{nvs_tp2}*{nvs_pp}");
        let parts = [
            price.compute,
            price.memory,
            price.tensor_communication,
            price.data_communication,
            price.pipe_communication,
            price.bubble,
        ];
        let parts = parts.map(|part| format!("{:.1}", 100.0 * part / price.seconds));
        let memory = format!("{:.1} GB", price.memory_bytes() / 1e9);
        let step = format!("{:.4} s", price.seconds);
        let days = format!("{:.2}", self.days(ranked));
        [step].into_iter().chain(sizes).chain([panels, domain]).chain(parts).chain([memory, days]).collect()
    }

    /// For comma-separated values: a header, then the ranking in the columns of LBNL's saved outputs.
    pub fn rows(&self) -> Vec<Vec<String>> {
        let Self { model, search, found, .. } = self;
        let shape = search.shape();
        let system = search.system();
        let strategy = search.strategy();
        let gpus = search.devices();
        let global_batch = search.global_batch();
        let row = |(ranked, rank): (&Ranked, u64)| {
            let names = [strategy.name(), shape.published_name().unwrap_or(&model.name), system.name];
            let sizes = [system.fast_domain, gpus, rank].into_iter().chain(ranked.configuration.numbers());
            let sizes = sizes.chain([global_batch]).map(|size| size.to_string());
            let (times, memory) = published_units(&ranked.price);
            let numbers = times.into_iter().chain(memory).chain([global_batch as f64 / ranked.price.seconds]);
            names.map(str::to_owned).into_iter().chain(sizes).chain(numbers.map(shortest)).collect()
        };
        std::iter::once(columns(CSV_COLUMNS)).chain(found.ranked.iter().zip(1..).map(row)).collect()
    }

    fn steps(&self) -> f64 {
        training_steps(self.model, self.search.global_batch())
    }

    fn days(&self, ranked: &Ranked) -> f64 {
        self.steps() * ranked.price.seconds / 86_400.0
    }
}

/// Lines of a table with their prices, for comma-separated values: a header, then a row for each line, in the columns and
/// units of the tables that LBNL's code writes: seconds, GB of 1e9 bytes, TFLOP.
pub fn priced_rows(lines: &[PricedLine]) -> Vec<Vec<String>> {
    let header = INPUTS.map(str::to_owned).into_iter().chain(columns(PRICE_COLUMNS)).collect();
    let row = |PricedLine { inputs, price }: &PricedLine| {
        let (times, memory) = published_units(price);
        let outputs = times.into_iter().chain([price.flops / 1e12]).chain(memory);
        inputs.iter().cloned().chain(outputs.map(shortest)).collect()
    };
    std::iter::once(header).chain(lines.iter().map(row)).collect()
}

/// The same for people, with numbers of four digits; columns that all rows have alike stand above it.
pub fn priced_table(rows: &[Vec<String>]) -> Text {
    let Some((header, rows)) = rows.split_first() else { return Text::new() };
    let short = |cell: &String| match cell.parse::<f64>() {
        Ok(number) if cell.contains(['.', 'e']) && number != 0.0 && number.is_finite() => {
            let digits = (3 - number.abs().log10().floor() as i32).max(0) as usize;
            if (1e-3..1e9).contains(&number.abs()) { format!("{number:.digits$}") } else { format!("{number:.3e}") }
        }
        _ => cell.clone(),
    };
    let is_same = |at: &usize| rows.len() > 1 && rows.iter().all(|row| row[*at] == rows[0][*at]);
    let (mut same, mut apart): (Vec<usize>, Vec<usize>) = (0..header.len()).partition(is_same);
    if apart.is_empty() {
        // Rows that are alike in everything are rows all the same.
        apart = same.drain(..1).collect();
    }
    let names: Vec<&str> = apart.iter().map(|at| header[*at].as_str()).collect();
    let cells: Vec<Vec<String>> = rows.iter().map(|row| apart.iter().map(|at| short(&row[*at])).collect()).collect();
    let alike =
        same.iter().map(|at| format!("{} {}", header[*at], short(&rows[0][*at]))).collect::<Vec<_>>().join(", ");
    let head = if same.is_empty() { String::new() } else { format!("all rows: {alike}\n\n") };
    Text::from(head) + table(&names, &cells)
}

/// What the tables of LBNL's code tell of a price: `t`, `mem`, the six parts of `t`; then weights, gradients, optimizer
/// and activations. Seconds, and GB of 1e9 bytes.
fn published_units(price: &Price) -> ([f64; 8], [f64; 4]) {
    let times = [
        price.seconds,
        price.memory_bytes() / 1e9,
        price.compute,
        price.memory,
        price.tensor_communication,
        price.data_communication,
        price.pipe_communication,
        price.bubble,
    ];
    let memory = [price.weight_bytes, price.gradient_bytes, price.optimizer_bytes, price.activation_bytes];
    (times, memory.map(|bytes| bytes / 1e9))
}
