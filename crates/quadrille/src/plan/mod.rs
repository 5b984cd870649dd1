//! `quadrille plan`: what a search finds, ranked by a cost model.

pub mod atp;
mod axonn;
mod flags;
pub mod lbnl;
mod megatron;

use crate::arguments::{Cost, PlanArguments};
use crate::failure::Failure;

/// Searches and prints the best.
pub fn run(arguments: &PlanArguments) -> Result<(), Failure> {
    match arguments.cost {
        Cost::Axonn => {
            arguments.lbnl.refuse("axonn", &[])?;
            arguments.atp.refuse("axonn")?;
            axonn::run(arguments)
        }
        Cost::Lbnl => {
            arguments.atp.refuse("lbnl")?;
            lbnl::run(arguments)
        }
        Cost::Megatron => megatron::run(arguments),
        Cost::Atp => atp::run(arguments),
    }
}
