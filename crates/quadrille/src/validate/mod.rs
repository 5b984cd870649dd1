//! `quadrille validate`: predictions of the native model held against measured steps.

pub mod local;
mod published;

use clap::{Args, Subcommand};

use self::local::ValidateLocalArguments;
use self::published::ValidatePublishedArguments;
use crate::failure::Failure;
use crate::launch::Launch;

#[derive(Debug, Args)]
pub struct ValidateArguments {
    #[command(subcommand)]
    pub validate: Validate,
}

#[derive(Debug, Subcommand)]
pub enum Validate {
    /// Step times, memory and out-of-memory outcomes of published runs, by the native model
    Published(ValidatePublishedArguments),
    /// Step times of layouts, predicted by the native model and measured on this machine
    Local(Box<ValidateLocalArguments>),
}

/// Runs one of the comparisons.
pub fn run(arguments: &ValidateArguments, launch: &Launch) -> Result<(), Failure> {
    match &arguments.validate {
        Validate::Published(arguments) => published::run(arguments),
        Validate::Local(arguments) => local::run(arguments, launch),
    }
}
