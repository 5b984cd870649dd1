//! `quadrille plan`: what a search finds, ranked by a cost model.

pub mod arguments;
pub mod atp;
mod axonn;
mod flags;
pub mod lbnl;
mod megatron;
pub mod native;

use clap::ValueEnum;
use quadrille_plan::native::Cancel;
use serde_json::Value;

use self::arguments::{Cost, PlanArguments};
use crate::failure::Failure;

/// Searches and prints the best.
pub fn run(arguments: &PlanArguments) -> Result<(), Failure> {
    refuse_foreign(arguments)?;
    match arguments.cost {
        Cost::Native => native::run(arguments),
        Cost::Axonn => axonn::run(arguments),
        Cost::Lbnl => lbnl::run(arguments),
        Cost::Megatron => megatron::run(arguments),
        Cost::Atp => atp::run(arguments),
    }
}

/// What the native search finds until it is cancelled.
pub fn document(arguments: &PlanArguments, cancel: &Cancel) -> Result<Value, Failure> {
    refuse_foreign(arguments)?;
    match arguments.cost {
        Cost::Native => native::document(arguments, cancel),
        _ => Err(Failure::usage("--cost: documents are of what the native search finds; leave it out")),
    }
}

/// Refuses flags that only other cost models have.
fn refuse_foreign(arguments: &PlanArguments) -> Result<(), Failure> {
    use Cost::{Atp, Axonn, Lbnl, Megatron, Native};
    let PlanArguments { gpus, nodes, nvs, dtype, csv, question, results, lbnl, atp, .. } = arguments;
    let shared: [(_, _, &[Cost], _); 6] = [
        ("--gpus", gpus.is_some(), &[Native, Lbnl, Megatron, Atp], "give --ranks"),
        ("--nodes", nodes.is_some(), &[Native], "say how many GPUs there are"),
        (
            "--nvs",
            nvs.is_some(),
            &[Native, Lbnl],
            if arguments.cost == Atp { "leave it out" } else { "give --per-node" },
        ),
        ("--csv", csv.is_some(), &[Native, Lbnl, Megatron, Atp], "use --json"),
        ("--dtype", dtype.is_some(), &[Native, Axonn, Lbnl, Megatron, Atp], "leave it out"),
        ("--strategy", lbnl.strategy.is_some(), &[Lbnl], "leave it out"),
    ];
    let alone = |of: &'static [Cost]| move |(flag, typed)| (flag, typed, of, "leave it out");
    let native = question.typed().into_iter().chain(results.typed()).map(alone(&[Native]));
    let flags = shared.into_iter().chain(native).chain(atp.typed().into_iter().map(alone(&[Atp])));
    let name = |cost: Cost| cost.to_possible_value().map_or(String::new(), |value| value.get_name().to_owned());
    match flags.into_iter().find(|(_, typed, costs, _)| *typed && !costs.contains(&arguments.cost)) {
        None => Ok(()),
        Some((flag, _, costs, remedy)) => {
            let own = costs.iter().map(|cost| name(*cost)).collect::<Vec<_>>();
            let cost = name(arguments.cost);
            let all = own.join(", ");
            let first = &own[0];
            Err(Failure::usage(format!(
                "{flag} is a flag of --cost {all}, and the cost model is {cost}; {remedy}, or use --cost {first}"
            )))
        }
    }
}
