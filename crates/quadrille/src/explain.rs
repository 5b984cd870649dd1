//! `quadrille explain`: what a layout does, without running it.

use quadrille_cost::native::Framework;
use quadrille_engine::Hyper;
use quadrille_report::explained::Explained;
use quadrille_run::LayoutDefaults;

use crate::arguments::ExplainArguments;
use crate::failure::Failure;
use crate::output::{print_json, print_text};
use crate::plan::native::priced;
use crate::plan::native::question::framework;
use crate::{paths, settings};

/// Prints the summary, the program, the ledger, as asked.
pub fn run(arguments: &ExplainArguments) -> Result<(), Failure> {
    if arguments.price.price {
        return priced::run(arguments);
    }
    let settings = settings::settings(&arguments.model, "gpt-demo", Hyper::default())?;
    let usual = &LayoutDefaults::USUAL;
    let typed = settings::typed(&arguments.layout, arguments.dtype, usual)?;
    let layout = typed.resolve(&settings.model)?;
    let name = arguments.price.framework.as_deref().or(Some(Framework::QUADRILLE.name));
    let framework = framework(name, arguments.dtype, &typed.said)?.in_types_of(&layout);
    let program = framework.program(&settings.model, &layout)?;
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
    if arguments.json { print_json(&explained.document()?) } else { print_text(&explained.text()?) }
}
