//! Runs whose folder is of the first version: it has the run's command line, and does not say what decides the run.

use std::ffi::OsString;
use std::path::Path;

use clap::Parser;
use quadrille_data::SpecialTokens;
use quadrille_engine::Hyper;
use quadrille_run::{Description, LayoutDefaults, LayoutSpec, RunChanges, RunSpec, Settings};

use super::arguments::TrainArguments;
use super::flags;
use crate::arguments::{Arguments, Command};
use crate::failure::Failure;

/// What decides such a run: its model and layout as its folder says, all else as its command line says it, where it says
/// nothing as this program has it.
///
/// # Errors
/// A command line that this program does not know; a model or layout that breaks a rule.
pub fn spec(folder: &Path, description: &Description) -> Result<RunSpec, Failure> {
    let arguments = arguments(folder, &description.command)?;
    let broken = |error: String| Failure::usage(format!("{}: {error}", folder.join("run.json").display()));
    let model = description.model().map_err(broken)?;
    let layout = description.layout(&model).map_err(broken)?;
    let typed = arguments.layout.said(arguments.dtype).open(&LayoutDefaults::USUAL)?;
    let (optimizer, _) = Settings::replaced(&arguments.model.set, Hyper::default().into())?;
    let changes = RunChanges {
        layout: Some(LayoutSpec {
            layout: layout.clone(),
            open: typed.following(),
            cluster: arguments.layout.cluster().to_owned(),
        }),
        tiers: Some(typed.cluster.tiers),
        optimizer: Some(arguments.run.with_rate(optimizer)?),
        ..flags::said(&arguments)
    };
    let mut spec = changes.apply(RunSpec::new(model, layout));
    if !spec.data.paths.is_empty() {
        // Documents had no special tokens.
        spec.data.special = SpecialTokens::NONE;
    }
    Ok(spec)
}

fn arguments(folder: &Path, command: &[String]) -> Result<TrainArguments, Failure> {
    let words = ["quadrille".into(), "train".into()].into_iter().chain(command.iter().map(OsString::from));
    match Arguments::try_parse_from(words) {
        Ok(Arguments { command: Command::Train(arguments), .. }) => Ok(*arguments),
        Ok(_) => Err(Failure::usage(format!("{}: its run.json is of no training run", folder.display()))),
        Err(error) => {
            let text = error.render().to_string();
            Err(Failure::usage(text.strip_prefix("error: ").unwrap_or(&text).trim_end()))
        }
    }
}
