//! `quadrille plan`: what a search finds, ranked by a cost model.

mod axonn;
pub mod lbnl;
pub mod native;

use crate::arguments::{Cost, PlanArguments};
use crate::failure::Failure;

/// Searches and prints the best.
pub fn run(arguments: &PlanArguments) -> Result<(), Failure> {
    match arguments.cost {
        Cost::Native => {
            arguments.lbnl.refuse("native")?;
            refuse_typed(&[("--dtype", arguments.dtype.is_some(), "give --framework")], "axonn", "native")?;
            native::run(arguments)
        }
        Cost::Axonn => {
            arguments.lbnl.refuse("axonn")?;
            refuse_native(arguments, "axonn")?;
            let flags = [
                ("--gpus", arguments.gpus.is_some(), "give --ranks"),
                ("--nvs", arguments.nvs.is_some(), "give --per-node"),
                ("--csv", arguments.csv.is_some(), "use --json"),
            ];
            refuse_typed(&flags, "native", "axonn")?;
            axonn::run(arguments)
        }
        Cost::Lbnl => {
            refuse_native(arguments, "lbnl")?;
            lbnl::run(arguments)
        }
    }
}

/// Refuses the flags of the native search for another cost model.
fn refuse_native(arguments: &PlanArguments, cost: &str) -> Result<(), Failure> {
    let flags = arguments.question.typed().into_iter().chain(arguments.results.typed());
    let flags: Vec<_> = flags.map(|(flag, typed)| (flag, typed, "leave it out")).collect();
    refuse_typed(&flags, "native", cost)
}

/// Refuses the first flag that was typed for another cost model than its own; with each flag what to do instead.
fn refuse_typed(flags: &[(&str, bool, &str)], own: &str, cost: &str) -> Result<(), Failure> {
    match flags.iter().find(|(_, typed, _)| *typed) {
        None => Ok(()),
        Some((flag, _, remedy)) => Err(Failure::usage(format!(
            "{flag} is a flag of --cost {own}, and the cost model is {cost}; {remedy}, or use --cost {own}"
        ))),
    }
}
