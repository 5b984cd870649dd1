//! `quadrille plan`: what a search finds, ranked by a cost model.

mod axonn;
pub mod lbnl;

use crate::arguments::{Cost, PlanArguments};
use crate::failure::Failure;

/// Searches and prints the best.
pub fn run(arguments: &PlanArguments) -> Result<(), Failure> {
    match arguments.cost {
        Cost::Axonn => {
            arguments.lbnl.refuse("axonn")?;
            axonn::run(arguments)
        }
        Cost::Lbnl => lbnl::run(arguments),
    }
}
