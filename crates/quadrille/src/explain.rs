//! `quadrille explain`: what a layout does, without running it.

use clap::Args;
use quadrille_cost::native::Framework;
use quadrille_report::explained::Explained;
use quadrille_run::{LayoutDefaults, OpenLayout, SaidLayout, framework};
use quadrille_spec::{ElementType, Field, Sparsity};

use crate::arguments::ModelArguments;
use crate::failure::Failure;
use crate::layout_arguments::LayoutArguments;
use crate::output::{print_json, print_text};
use crate::paths;
use crate::plan::native::priced::{self, PriceArguments};
use crate::timeline::MachineArguments;

#[derive(Debug, Args)]
#[command(allow_negative_numbers = true)]
pub struct ExplainArguments {
    #[command(flatten)]
    pub model: ModelArguments,
    /// Type of the values: f32, f64, or bf16 or f16 with masters in f32 [default: f32]
    #[arg(long, value_name = "TYPE")]
    pub dtype: Option<ElementType>,
    /// Prune this part of the matrices of blocks; what ranks keep of them is estimated
    #[arg(long, value_name = "PART")]
    pub sparsity: Option<Sparsity>,
    /// The step program: operations, shapes, shardings, collectives, memory; wide, best seen with `| less -S`
    #[arg(long)]
    pub program: bool,
    /// The predicted ledger: bytes per axis and collective, FLOPs, memory per class
    #[arg(long)]
    pub ledger: bool,
    /// One rank only [default: all in a ledger, 0 in the summary]
    #[arg(long, value_name = "N")]
    pub rank: Option<usize>,
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

/// The layout that is said, and what runs it, `usual` where nothing is said. What gradients of other frameworks than this program's
/// engine are summed in is theirs, and no choice of a layout.
pub fn open(arguments: &ExplainArguments, usual: &str) -> Result<(OpenLayout, Framework), Failure> {
    let said = arguments.layout.said(arguments.dtype);
    let choices = said.choices.over(&said.read()?);
    let (name, numbers) = (arguments.price.framework.as_deref().unwrap_or(usual), arguments.price.numbers.said());
    let framework = framework(Some(name), arguments.dtype, arguments.sparsity, numbers, &choices)?;
    let said = match framework.is_own() {
        true => said,
        false => SaidLayout { choices: said.choices.without(Field::Gradients), ..said },
    };
    Ok((said.open(&LayoutDefaults::USUAL)?, framework))
}

/// Prints the summary, the program, the ledger, as asked.
pub fn run(arguments: &ExplainArguments) -> Result<(), Failure> {
    if arguments.price.price {
        return priced::run(arguments);
    }
    let model = arguments.model.described("gpt-demo")?;
    let (typed, framework) = open(arguments, Framework::QUADRILLE.name)?;
    let layout = typed.resolve(&model)?;
    let framework = framework.in_types_of(&layout);
    let program = framework.program(&model, &layout)?;
    let grid = &layout.grid;
    let ranks = grid.ranks();
    if let Some(rank) = arguments.rank.filter(|rank| *rank >= ranks) {
        return Err(Failure::usage(format!("--rank {rank}: the ranks of {grid} are 0 to {}", ranks - 1)));
    }
    let machine = &arguments.machine;
    paths::check_described(&paths::asked([("--trace", &machine.trace)]), &arguments.model, &arguments.layout)?;
    let simulation = machine.is_asked().then(|| machine.simulate(&program, &typed.cluster, framework)).transpose()?;
    let explained = Explained {
        program: &program,
        framework: &framework,
        operations: arguments.program,
        ledgers: arguments.ledger,
        rank: arguments.rank,
        simulation: simulation.as_ref(),
    };
    if arguments.json { print_json(&explained.document()?) } else { print_text(explained.text()?) }
}
