//! `quadrille plan --cost lbnl`: every configuration of a strategy of the LBNL paper, ranked by the time of a step.

use std::time::Instant;

use clap::Args;
use quadrille_papers::lbnl::{PUBLISHED_BATCH, Search, Shape, Strategy, System};
use quadrille_report::papers::lbnl::LbnlReport;
use quadrille_spec::{ElementType, Model};

use crate::failure::Failure;
use crate::output::{print_json, print_text, write_rows};
use crate::paths;
use crate::plan::arguments::PlanArguments;
use crate::plan::flags::{LayoutFlags, SEARCHED};
use crate::quantities::Counts;

/// Its flags of layouts.
const FLAGS: LayoutFlags = LayoutFlags {
    model: "LBNL's model",
    taken: &["--global-batch"],
    instead: &[
        ("--ranks", "with --cost lbnl give --gpus"),
        ("--per-node", "with --cost lbnl give --nvs"),
        ("--seq-len", "with --cost lbnl give --set seq_len=N"),
        ("--linear", "with --cost lbnl give --strategy"),
        ("--grid", SEARCHED),
        ("--summa-panels", SEARCHED),
        ("--microbatch", SEARCHED),
    ],
};

/// What only this model asks for.
#[derive(Debug, Args)]
pub struct LbnlArguments {
    /// How blocks are cut: 1d (heads and widths), 2d (these and the sequence) or summa (products in panels)
    #[arg(long, value_name = "NAME")]
    pub strategy: Option<Strategy>,
}

/// Ranks configurations and prints the best.
pub fn run(arguments: &PlanArguments) -> Result<(), Failure> {
    let (model, search) = search(arguments)?;
    let written = paths::asked([("--csv", &arguments.csv)]);
    paths::check_ready(&written, &arguments.model, &arguments.layout)?;
    let start = Instant::now();
    let found = search.run(arguments.top.unwrap_or(10) as usize);
    let seconds = start.elapsed().as_secs_f64();
    if found.candidates == 0 {
        return Err(Failure::usage(search.without_candidates()));
    }
    let report = LbnlReport { model: &model, search: &search, found: &found, seconds };
    write_rows("--csv", arguments.csv.as_deref(), || report.rows())?;
    if arguments.json { print_json(&report.document()) } else { print_text(report.text()) }
}

/// What flags say.
fn search(arguments: &PlanArguments) -> Result<(Model, Search), Failure> {
    FLAGS.check(&arguments.layout)?;
    if arguments.dtype.is_some_and(|dtype| dtype != ElementType::Bf16) {
        return Err(Failure::usage("--dtype: LBNL's model knows values of two bytes only; leave it out"));
    }
    let needed = |flag: &str, example: &str| Failure::usage(format!("--cost lbnl needs {flag}, e.g. {example}"));
    let strategy = arguments.lbnl.strategy.ok_or_else(|| needed("--strategy 1d, 2d or summa", "--strategy 2d"))?;
    let gpus = match arguments.gpus.as_ref().map(Counts::values) {
        Some([gpus]) => *gpus as u64,
        Some(_) => return Err(Failure::usage("--gpus: LBNL's model is searched for one number of GPUs; give one")),
        None => return Err(needed("--gpus", "--gpus 1024")),
    };
    let system = System::named(arguments.layout.cluster()).map_err(|_| {
        Failure::usage(format!(
            "--cluster {}: LBNL's model knows the systems of its paper; use {}",
            arguments.layout.cluster(),
            System::NAMES.join(", ")
        ))
    })?;
    let system = match arguments.nvs {
        Some(nvs) => system.with_fast_domain(nvs as u64)?,
        None => system,
    };
    let model = arguments.model.described("gpt3-1t")?;
    let shape = Shape::try_from(&model)?;
    let global_batch = arguments.layout.batch(model.seq_len)?.map_or(PUBLISHED_BATCH, |batch| batch as u64);
    let search = Search::new(shape, system, strategy, gpus, global_batch)?;
    Ok((model, search))
}
