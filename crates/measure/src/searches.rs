//! Configurations that complete searches settle in a second, on one core, beside published planners.

use std::time::Instant;

use quadrille_cost::native::Framework;
use quadrille_papers::lbnl::{Search, Shape, Strategy, System};
use quadrille_plan::native::{self, Setting, Space};
use quadrille_spec::{Cluster, Imbalance, Model};
use schemars::JsonSchema;
use serde::Serialize;

use crate::timing::{median, seconds};
use crate::{MeasureError, OnProgress, Progress};

/// Configurations a second of LBNL's own solver: the public Python code of arXiv 2410.00273, revision `54278b0`, run on
/// one core. Not measured here.
const LBNL_SOLVER_PER_S: f64 = 300.0;
/// Configurations a second of Calculon (Isaev et al., SC23; public Python code), run on one core. Not measured here.
const CALCULON_PER_S: f64 = 67.0;

/// Searches beside their yardsticks.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Searches {
    /// [`YARDSTICKS`].
    pub yardsticks: [Yardstick; 2],
    /// Searches that settle every configuration.
    pub searches: Vec<Measured>,
    /// A search that leaves most out by bounds.
    pub bounded: Bounded,
}

/// A published planner.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Yardstick {
    /// Its name.
    pub planner: &'static str,
    /// On one core, as published.
    pub configurations_per_second: f64,
}

/// What searches are held against.
pub const YARDSTICKS: [Yardstick; 2] = [
    Yardstick { planner: "LBNL solver", configurations_per_second: LBNL_SOLVER_PER_S },
    Yardstick { planner: "Calculon", configurations_per_second: CALCULON_PER_S },
];

/// A search, run from end to end.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Measured {
    /// Whose search.
    pub search: &'static str,
    /// What is searched, in words.
    pub case: String,
    /// Configurations that were priced, or shown by bounds not to be among the best.
    pub configurations: u64,
    /// Median over runs.
    pub seconds: f64,
    /// On one core.
    pub configurations_per_second: f64,
    /// Times the rate of each yardstick.
    pub ratios: [f64; 2],
}

/// A search that leaves out by bounds what cannot be among the best: no rate of pricing, since most is not priced.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Bounded {
    /// What is searched, in words.
    pub case: String,
    /// Configurations that keep every rule.
    pub legal: u64,
    /// Configurations that were priced in full.
    pub priced: u64,
    /// Of one run.
    pub seconds: f64,
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

/// Runs every search so often, after a run that warms up, on one core; tells before each which comes next.
///
/// # Errors
/// A search that cannot be run, or that has no pool of threads.
pub fn measure(runs: u32, told: OnProgress) -> Result<Searches, MeasureError> {
    let mut begin = |done, next| told(Progress { done, of: 3, next: Some(next) });
    begin(0, "lbnl");
    let lbnl = lbnl(runs)?;
    begin(1, "native");
    let native = native(runs)?;
    begin(2, "native, every layout");
    Ok(Searches { yardsticks: YARDSTICKS, searches: vec![lbnl, native], bounded: bounded()? })
}

/// The largest search of the LBNL paper's `2d` strategy for GPT3-1T.
fn lbnl(runs: u32) -> Result<Measured, MeasureError> {
    let model = "gpt3-1t";
    let gpus = 16_384;
    let domain = 64;
    let batch = 4096;
    let system = System::named("b200")?.with_fast_domain(domain)?;
    let case = format!("{model}, 2d, {gpus} {} in domains of {domain}, batch {batch}", system.name);
    let search = Search::new(Shape::named(model)?, system, Strategy::TwoD, gpus, batch)?;
    Ok(Measured::new("lbnl", case, runs, || search.run(10).candidates))
}

/// GPT-3 1T by the native model: every layout that Megatron-LM runs.
fn native(runs: u32) -> Result<Measured, MeasureError> {
    let model = Model::preset("gpt3-1t")?;
    let cluster = Cluster::preset("selene")?;
    let batch = 1536;
    let devices = 3072;
    let case =
        format!("{}, every layout of megatron, {devices} a100-80 of {}, batch {batch}", model.name, cluster.name);
    let mut space = Space::default();
    space.keep_to(&Framework::MEGATRON);
    let setting = setting(&model, &cluster, batch);
    let search = native::Search::new(setting, devices, space, 10);
    let one = one_core()?;
    native::Search { limit: Some(0), ..search.clone() }.run()?;
    // What can be priced at all was found out above.
    let settled = || one.install(|| search.run()).map_or(0, |found| found.counts.legal);
    Ok(Measured::new("native", case, runs, settled))
}

/// Every layout of a model whose states fit on 32 devices.
fn bounded() -> Result<Bounded, MeasureError> {
    let model = Model::preset("megatron-39.1b")?;
    let cluster = Cluster::preset("selene")?;
    let batch = 128;
    let devices = 32;
    let case = format!("{}, every layout, {devices} a100-80 of {}, batch {batch}", model.name, cluster.name);
    let setting = setting(&model, &cluster, batch);
    let space = Space::default();
    let search = native::Search::new(setting, devices, space, 10);
    let start = Instant::now();
    let counts = one_core()?.install(|| search.run())?.counts;
    Ok(Bounded { case, legal: counts.legal, priced: counts.priced, seconds: start.elapsed().as_secs_f64() })
}

fn setting<'a>(model: &'a Model, cluster: &'a Cluster, global_batch: usize) -> Setting<'a> {
    Setting {
        model,
        cluster,
        framework: Framework::MEGATRON,
        imbalance: &Imbalance::EQUAL,
        global_batch,
        seq_len: model.seq_len,
        most_of_node: None,
        per_node: None,
        reserve: None,
        capacity: cluster.device_memory,
        learned: None,
    }
}

fn one_core() -> Result<rayon::ThreadPool, MeasureError> {
    Ok(rayon::ThreadPoolBuilder::new().num_threads(1).build()?)
}
