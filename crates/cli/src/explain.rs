//! `quadrille explain`: what a layout does, without running it.

use std::path::{Path, PathBuf};

use clap::Args;
use quadrille_cost::native::Framework;
use quadrille_engine::Hyper;
use quadrille_pages::explain_page;
use quadrille_plan::native::framework;
use quadrille_report::explained::{ExplainReport, Explained};
use quadrille_report::lesson::Chosen;
use quadrille_run::{FILES, KnownRun, LayoutDefaults, LayoutSpec, RunError, SaidLayout};
use quadrille_spec::{Cluster, ElementType, Field, Layout, Model, Sparsity};
use quadrille_step::{KeptCounts, Layer, Shown, StepProgram};
use serde_json::Value;

use crate::arguments::ModelArguments;
use crate::bars;
use crate::failure::Failure;
use crate::layout_arguments::LayoutArguments;
use crate::output::{json_value, print_json, print_text, write_file, written};
use crate::parse::whole;
use crate::paths;
use crate::plan::priced::{self, PriceArguments};
use crate::terminal;
use crate::timeline::MachineArguments;

/// The model where none is named.
pub const MODEL: &str = "gpt-demo";

/// Columns of text: where nobody sees it, and the fewest and most of a terminal.
const NARROW: usize = 80;
const NARROWEST: usize = 60;
const WIDEST: usize = 140;

/// Most ranks of which all ledgers are told: of a model of 96 layers, the document of each takes 0.8 MB of memory.
const MOST_LEDGERS: usize = 1 << 16;

#[derive(Debug, Args)]
#[command(allow_negative_numbers = true)]
pub struct ExplainArguments {
    #[command(flatten)]
    pub model: ModelArguments,
    /// A run's folder, or a checkpoint: its model in its layout, for its cluster; flags of a layout and --set change it, --cluster
    /// alone moves it there as it is
    #[arg(long, value_name = "DIR", conflicts_with_all = ["model", "from_hf"])]
    pub from: Option<PathBuf>,
    /// Type of the values: f32, f64, or bf16 or f16 with masters in f32 [default: f32]
    #[arg(long, value_name = "TYPE")]
    pub dtype: Option<ElementType>,
    /// Prune this part of the matrices of blocks; what ranks keep of them is estimated
    #[arg(long, value_name = "PART")]
    pub sparsity: Option<Sparsity>,
    /// The step program: operations, shapes, shardings, collectives and why they are there, memory; as wide as the terminal, into a
    /// pipe as wide as it is
    #[arg(long)]
    pub program: bool,
    /// The predicted ledger: bytes per axis and collective, FLOPs, memory per class
    #[arg(long)]
    pub ledger: bool,
    /// One rank only, or of the program its stage [default: all in a ledger and the program, else the first that has the layer]
    #[arg(long, value_name = "N", value_parser = whole::<usize>(..))]
    pub rank: Option<usize>,
    /// The block that is explained; of the program this block only [default: the first of the rank's stage]
    #[arg(long, value_name = "N", value_parser = whole::<usize>(..))]
    pub layer: Option<usize>,
    /// Write a page with the mesh, the collectives and their reasons, the memory and the simulated timeline to this file, in place
    /// of what it holds; it opens in a browser without a network
    #[arg(long, value_name = "FILE.html")]
    pub html: Option<PathBuf>,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
    #[command(flatten, next_help_heading = "Layout")]
    pub layout: LayoutArguments,
    #[command(flatten, next_help_heading = "Simulation")]
    pub machine: MachineArguments,
    #[command(flatten, next_help_heading = "Price")]
    pub price: PriceArguments,
}

/// What is explained or priced.
pub struct Asked {
    /// The model.
    pub model: Model,
    /// The layout.
    pub layout: Layout,
    /// Where it runs.
    pub cluster: Cluster,
    /// Whether somebody named the cluster, now or, with its device, for the run.
    pub is_named: bool,
    /// What runs it.
    pub framework: Framework,
    /// Of a pruned run: how many elements of a tile ranks have room for, by tensor.
    pub kept: KeptCounts,
    /// Whether it is told of in a run's folder.
    pub is_run: bool,
}

/// What a folder tells of; one that holds no run is no failure of the work, as it would be of one that goes on.
fn known(folder: &Path) -> Result<KnownRun, Failure> {
    KnownRun::read(folder).map_err(|error| match error {
        RunError::Checkpoint(error) => Failure::Usage(error.into()),
        error => error.into(),
    })
}

/// What is said, held against its model. It is run by what the layout file was planned for, or `usual`, where nothing is said, a run by
/// this program's engine. What gradients of other frameworks than that are summed in is theirs, and no choice of a layout.
pub fn asked(arguments: &ExplainArguments, usual: &str) -> Result<Asked, Failure> {
    let run = arguments.from.as_deref().map(known).transpose()?;
    let model = match &run {
        None => arguments.model.described(MODEL)?,
        Some(run) => arguments.model.settings_of(&run.model, Hyper::default())?.model,
    };
    let said = arguments.layout.said(arguments.dtype);
    let choices = said.choices.over(&said.read()?);
    let name = arguments.price.framework.as_deref();
    let numbers = arguments.price.numbers.said();
    let usual = match &run {
        None => (usual, LayoutDefaults::USUAL.dtype),
        Some(run) => (Framework::QUADRILLE.name, run.layout.layout.dtype),
    };
    let framework = framework(name, usual, arguments.dtype, arguments.sparsity, numbers, &choices)?;
    let said =
        if framework.is_own() { said } else { SaidLayout { choices: said.choices.without(Field::Gradients), ..said } };
    let (open, layout) = match &run {
        None => {
            let vocab_multiple = framework.vocab_multiple;
            let order = framework.order();
            let usual = LayoutDefaults { vocab_multiple, order, ..LayoutDefaults::USUAL };
            let open = said.open(&usual)?;
            let layout = arguments.layout.held(&arguments.model, MODEL, open.resolve(&model))?;
            (open, layout)
        }
        Some(run) => {
            let open = run.open(&said, &model, &framework)?;
            let layout = open.resolve(&model)?;
            (open, layout)
        }
    };
    open.check_node(&layout)?;
    let framework = framework.on(&open.cluster).in_types_of(&layout);
    let kept = match &run {
        Some(run) if framework.is_own() && framework.sparsity.is_none() => run.kept(&model, &layout)?.clone(),
        _ => KeptCounts::new(),
    };
    // Of a run's cluster that does not describe its device no step can be simulated, and nobody has asked for that.
    let is_of_run = run.as_ref().is_some_and(|run| run.layout.cluster != LayoutSpec::CLUSTER);
    let is_named = arguments.layout.cluster.is_some() || (is_of_run && open.cluster.device.is_some());
    let is_run = run.is_some_and(|run| run.is_run);
    Ok(Asked { model, layout, cluster: open.cluster, is_named, framework, kept, is_run })
}

/// Prints the summary, the program, the ledger, as asked.
pub fn run(arguments: &ExplainArguments) -> Result<(), Failure> {
    match (arguments.price.price, arguments.json) {
        (true, _) => priced::run(arguments),
        (false, true) => print_json(&report(arguments)?),
        (false, false) => {
            let text = |explained: &Explained| {
                let report = bars::counting(|progress| explained.for_text(progress))?;
                Ok(report.text(explained.width)?)
            };
            print_text(explained(arguments, terminal::output().width, false, text)?)?;
            written([&arguments.html, &arguments.machine.trace]);
            Ok(())
        }
    }
}

/// The report, or that of the price, as a document.
pub fn document(arguments: &ExplainArguments) -> Result<Value, Failure> {
    if arguments.price.price { priced::document(arguments) } else { json_value(&report(arguments)?) }
}

fn report(arguments: &ExplainArguments) -> Result<ExplainReport, Failure> {
    explained(arguments, None, true, |explained| Ok(bars::counting(|progress| explained.document(progress))?))
}

/// Tells what it is in so many columns, if they are limited, or as a document.
fn explained<T>(
    arguments: &ExplainArguments,
    columns: Option<usize>,
    is_document: bool,
    tell: impl FnOnce(&Explained) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let asked = asked(arguments, Framework::QUADRILLE.name)?;
    let Asked { model, layout, cluster, is_named: named, framework, kept, is_run } = asked;
    if let (Some(products), Some(device), true) = (framework.numbers.products, &cluster.device, named) {
        products.check_on(device)?;
    }
    let program =
        if kept.is_empty() { framework.program(&model, &layout)? } else { StepProgram::pruned(&model, &layout, kept)? };
    let grid = &layout.grid;
    let ranks = grid.ranks();
    if let Some(rank) = arguments.rank.filter(|rank| *rank >= ranks) {
        return Err(Failure::usage(format!("--rank {rank}: the ranks of {grid} are 0 to {}", ranks - 1)));
    }
    let chosen = Chosen::of(&program, arguments.rank, arguments.layer)
        .map_err(|error| Failure::usage(format!("--layer {error}")))?;
    let machine = &arguments.machine;
    let files = paths::asked([("--trace", &machine.trace), ("--html", &arguments.html)]);
    let read = arguments.from.iter().flat_map(|folder| {
        if is_run {
            FILES.map(|name| ("the run's", folder.join(name))).to_vec()
        } else {
            vec![("--from", folder.clone())]
        }
    });
    let read: Vec<_> = read.collect();
    paths::check(&files, &read.iter().map(|(name, path)| (*name, path.as_path())).collect::<Vec<_>>())?;
    let read: Vec<_> = paths::described(&arguments.model, &arguments.layout).collect();
    paths::check_ready(&files, &read)?;
    // What hides collectives is told in a lesson, of a cluster that somebody named.
    let is_timeline = machine.is_asked() && !is_document;
    let lesson = arguments.html.is_some() || !(arguments.program || arguments.ledger || is_timeline);
    let simulates = machine.is_asked() || arguments.html.is_some() || (named && lesson);
    // All else that is told of a simulation are its passes.
    let events = lesson;
    let one = arguments.rank.is_some() || arguments.layer.is_some();
    let explained = Explained {
        program: &program,
        framework: &framework,
        operations: arguments.program,
        ledgers: arguments.ledger,
        rank: arguments.rank,
        chosen,
        shown: Shown {
            stage: one.then(|| program.of_rank(chosen.rank).stage),
            layer: arguments.layer.map(Layer::Block),
            width: columns,
        },
        width: columns.map_or(NARROW, |columns| columns.clamp(NARROWEST, WIDEST)),
        simulation: None,
        device_memory: cluster.device_memory.filter(|_| named),
        timeline: machine.is_asked(),
    };
    let told = explained.reported_ledgers(is_document);
    if told > MOST_LEDGERS {
        let rule = format!("ledgers of all ranks are told of at most {MOST_LEDGERS}");
        return Err(Failure::usage(format!("{grid} has {told} ranks: {rule}; ask for one with --rank N")));
    }
    // It writes the trace: what is refused is refused before.
    let simulation = simulates.then(|| machine.simulate(&program, &cluster, framework, events)).transpose()?;
    let explained = Explained { simulation: simulation.as_ref(), ..explained };
    if let Some(path) = &arguments.html {
        write_file("--html", path, explain_page(&json_value(&explained.page())?).as_bytes())?;
    }
    tell(&explained)
}
