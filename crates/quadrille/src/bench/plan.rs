//! `quadrille bench plan`: configurations that complete searches settle in a second, on one core.

use std::time::Instant;

use quadrille_cost::native::Framework;
use quadrille_papers::lbnl::{Search, Shape, Strategy, System};
use quadrille_plan::native::{self, Setting, Space};
use quadrille_spec::{Cluster, Model};
use serde::Serialize;

use crate::bench::arguments::BenchPlanArguments;
use crate::bench::{median, seconds};
use crate::failure::Failure;
use crate::output::{decimal, print_json, print_text, table};

/// Configurations a second of LBNL's own solver: the public Python code of arXiv 2410.00273, revision `54278b0`, run on
/// one core. Not measured here.
const LBNL_SOLVER_PER_S: f64 = 300.0;
/// Configurations a second of Calculon (Isaev et al., SC23; public Python code), run on one core. Not measured here.
const CALCULON_PER_S: f64 = 67.0;

#[derive(Serialize)]
struct Document {
    /// Each with what it is, in configurations a second on one core.
    yardsticks: [Yardstick; 2],
    searches: Vec<Measured>,
    bounded: Bounded,
}

#[derive(Serialize)]
struct Yardstick {
    planner: &'static str,
    configurations_per_second: f64,
}

const YARDSTICKS: [Yardstick; 2] = [
    Yardstick { planner: "LBNL solver", configurations_per_second: LBNL_SOLVER_PER_S },
    Yardstick { planner: "Calculon", configurations_per_second: CALCULON_PER_S },
];

/// A search, run from end to end.
#[derive(Serialize)]
struct Measured {
    search: &'static str,
    case: String,
    /// Configurations that were priced, or shown by bounds not to be among the best.
    configurations: u64,
    /// Median over runs.
    seconds: f64,
    configurations_per_second: f64,
    /// Times the rate of each yardstick.
    ratios: [f64; 2],
}

/// A search that leaves out by bounds what cannot be among the best: no rate of pricing, since most is not priced.
#[derive(Serialize)]
struct Bounded {
    case: String,
    /// Configurations that keep every rule.
    legal: u64,
    /// Configurations that were priced in full.
    priced: u64,
    /// Of one run.
    seconds: f64,
}

impl Measured {
    /// Times `run`, which uses one core and returns how many configurations it settled.
    fn new(search: &'static str, case: String, runs: u32, run: impl Fn() -> u64) -> Self {
        let configurations = run();
        let each = (0..runs).map(|_| {
            seconds(|| {
                std::hint::black_box(run());
            })
        });
        let seconds = median(each.collect());
        let rate = configurations as f64 / seconds;
        let ratios = YARDSTICKS.map(|yardstick| rate / yardstick.configurations_per_second);
        Self { search, case, configurations, seconds, configurations_per_second: rate, ratios }
    }
}

/// Measures and reports.
pub fn run(arguments: &BenchPlanArguments) -> Result<(), Failure> {
    let document = Document {
        yardsticks: YARDSTICKS,
        searches: vec![lbnl(arguments.runs)?, native(arguments.runs)?],
        bounded: bounded()?,
    };
    if arguments.json { print_json(&document) } else { print_text(&text(&document)) }
}

/// The largest search of the LBNL paper's `2d` strategy for GPT3-1T.
fn lbnl(runs: u32) -> Result<Measured, Failure> {
    let (model, gpus, domain, batch) = ("gpt3-1t", 16_384, 64, 4096);
    let system = System::named("b200")?.with_fast_domain(domain)?;
    let case = format!("{model}, 2d, {gpus} {} in domains of {domain}, batch {batch}", system.name);
    let search = Search::new(Shape::named(model)?, system, Strategy::TwoD, gpus, batch)?;
    Ok(Measured::new("lbnl", case, runs, || search.run(10).candidates))
}

/// GPT-3 1T by the native model: every layout that Megatron-LM runs.
fn native(runs: u32) -> Result<Measured, Failure> {
    let (model, cluster, batch, devices) = (Model::preset("gpt3-1t")?, Cluster::preset("selene")?, 1536, 3072);
    let case =
        format!("{}, every layout of megatron, {devices} a100-80 of {}, batch {batch}", model.name, cluster.name);
    let mut space = Space::default();
    space.keep_to(&Framework::MEGATRON);
    let setting = setting(&model, &cluster, batch);
    let search = native::Search { setting, devices, space, top: 10, one_per_grid: false, front: false, prune: true };
    let one = one_core()?;
    search.run(&|| true)?;
    // What can be priced at all was found out above.
    let settled = || one.install(|| search.run(&|| false)).map_or(0, |found| found.counts.legal);
    Ok(Measured::new("native", case, runs, settled))
}

/// Every layout of GPT-3 175B on 128 devices.
fn bounded() -> Result<Bounded, Failure> {
    let (model, cluster, batch, devices) = (Model::preset("gpt3-175b")?, Cluster::preset("selene")?, 512, 128);
    let case = format!("{}, every layout, {devices} a100-80 of {}, batch {batch}", model.name, cluster.name);
    let (setting, space) = (setting(&model, &cluster, batch), Space::default());
    let search = native::Search { setting, devices, space, top: 10, one_per_grid: false, front: false, prune: true };
    let start = Instant::now();
    let counts = one_core()?.install(|| search.run(&|| false))?.counts;
    Ok(Bounded { case, legal: counts.legal, priced: counts.priced, seconds: start.elapsed().as_secs_f64() })
}

fn setting<'a>(model: &'a Model, cluster: &'a Cluster, global_batch: usize) -> Setting<'a> {
    Setting {
        model,
        cluster,
        framework: Framework::MEGATRON,
        global_batch,
        seq_len: model.seq_len,
        per_node: None,
        capacity: cluster.device_memory,
    }
}

fn one_core() -> Result<rayon::ThreadPool, Failure> {
    rayon::ThreadPoolBuilder::new().num_threads(1).build().map_err(|error| Failure::run(error.to_string()))
}

fn text(document: &Document) -> String {
    let rate = |rate: f64| decimal(rate, "").trim_end().to_owned();
    let header = ["search", "case", "settled", "time", "per second", "x LBNL solver", "x Calculon"];
    let row = |measured: &Measured| {
        let times = measured.ratios.map(rate);
        let milliseconds = format!("{:.2} ms", 1e3 * measured.seconds);
        let numbers = [measured.configurations.to_string(), milliseconds, rate(measured.configurations_per_second)];
        [measured.search.to_owned(), measured.case.clone()].into_iter().chain(numbers).chain(times).collect()
    };
    let yardsticks = YARDSTICKS
        .map(|Yardstick { planner, configurations_per_second }| format!("{planner} {configurations_per_second}/s"));
    let Bounded { case, legal, priced, seconds } = &document.bounded;
    format!(
        "complete searches on one core; published planners on one core: {}\n\n{}\n\
         native with bounds ({case}): the best of {legal} legal layouts in {seconds:.2} s, of which {priced} were priced\n",
        yardsticks.join(", "),
        table(&header, &document.searches.iter().map(row).collect::<Vec<_>>())
    )
}
