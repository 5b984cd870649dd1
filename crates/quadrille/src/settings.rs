//! From what was typed to what it means: models, layouts, optimizer constants, validated.

use std::path::Path;
use std::time::Duration;

use quadrille_engine::Hyper;
use quadrille_papers::atp::Interconnect;
use quadrille_run::{LayoutDefaults, OpenLayout, OptimizerSpec, RunSpec, described};
use quadrille_spec::{ElementType, Field, Layout, LayoutFile, Model, ModelFile, SpecError};

use crate::arguments::{ModelArguments, RunArguments};
use crate::documents;
use crate::failure::Failure;
use crate::launch::Launch;
use crate::layout_arguments::LayoutArguments;

/// A model with its training constants.
pub struct Settings {
    pub model: Model,
    pub optimizer: OptimizerSpec,
}

/// Reads the model and applies `--set` to it and to the training constants `hyper`.
pub fn settings(arguments: &ModelArguments, default_model: &str, hyper: Hyper) -> Result<Settings, Failure> {
    settings_with(arguments, default_model, hyper.into())
}

/// The same of constants that are known.
pub fn settings_with(
    arguments: &ModelArguments,
    default_model: &str,
    optimizer: OptimizerSpec,
) -> Result<Settings, Failure> {
    let (optimizer, overrides) = overrides(arguments, optimizer)?;
    let model = match &arguments.from_hf {
        Some(path) => described::model_of_hugging_face(path, &overrides)?,
        None => described::model(arguments.model.as_deref().unwrap_or(default_model), &overrides)?,
    };
    Ok(Settings { model, optimizer })
}

/// A model that is known, with `--set` applied to it and to the training constants.
pub fn settings_of(model: &Model, arguments: &ModelArguments, optimizer: OptimizerSpec) -> Result<Settings, Failure> {
    let (optimizer, overrides) = overrides(arguments, optimizer)?;
    let mut file = ModelFile::of(model);
    overrides.iter().try_for_each(|(field, value)| file.set(field, value))?;
    Ok(Settings { model: file.validate()?, optimizer })
}

/// What `--set` says of training, and of the model.
pub fn overrides(
    arguments: &ModelArguments,
    mut optimizer: OptimizerSpec,
) -> Result<(OptimizerSpec, Vec<(String, String)>), Failure> {
    let mut overrides = Vec::new();
    for text in &arguments.set {
        let (key, value) = assignment(text)?;
        if ModelFile::knows(&key) {
            overrides.push((key, value));
        } else if !optimizer.set(&key, &value)? {
            let known = ModelFile::FIELDS.into_iter().chain(OptimizerSpec::names()).map(str::to_owned).collect();
            return Err(SpecError::Unknown { what: "field", name: key, known }.into());
        }
    }
    Ok((optimizer, overrides))
}

/// The key and the value of a `--set`.
pub fn assignment(text: &str) -> Result<(String, String), Failure> {
    let (key, value) =
        text.split_once('=').ok_or_else(|| Failure::usage(format!("--set {text}: write it as key=value")))?;
    Ok((key.to_owned(), value.to_owned()))
}

/// Reads one of ATP's interconnects.
pub fn interconnect(name: &str) -> Result<Interconnect, Failure> {
    if described::names_file(name) {
        Interconnect::from_toml(&documents::INTERCONNECT.text(Path::new(name))?)
            .map_err(|error| Failure::usage(format!("{name}: {error}")))
    } else {
        Ok(Interconnect::preset(name)?)
    }
}

/// Reads the layout's file and flags, which win over it; not yet held against a model.
pub fn typed(
    arguments: &LayoutArguments,
    dtype: Option<ElementType>,
    defaults: &LayoutDefaults,
) -> Result<OpenLayout, Failure> {
    typed_over(arguments, dtype, defaults, arguments.cluster(), &LayoutFile::default())
}

/// The same over what was said `before`, on the cluster of that name.
pub fn typed_over(
    arguments: &LayoutArguments,
    dtype: Option<ElementType>,
    defaults: &LayoutDefaults,
    cluster: &str,
    before: &LayoutFile,
) -> Result<OpenLayout, Failure> {
    let cluster = described::cluster(cluster)?;
    let said = arguments.flags.said.over(&arguments.file()?).over(before);
    let said = match arguments.grid.as_deref() {
        Some("auto") => said.without(Field::Grid),
        Some(text) => said.with(Field::Grid, Field::Grid.parse(text)?),
        None => said,
    };
    let typed = OpenLayout::new(said, arguments.ranks, dtype, defaults, cluster)?;
    let grid = &typed.request.grid;
    match arguments.ranks {
        Some(ranks) if grid.ranks() != ranks => {
            let whose = match (&arguments.grid, before.get(Field::Grid)) {
                (Some(_), _) => "--grid",
                (None, Some(_)) => "the run's grid",
                (None, None) => "the layout file's grid",
            };
            Err(Failure::usage(format!(
                "--ranks {ranks} does not match {whose} {grid}, which has {} ranks; leave one of them out",
                grid.ranks()
            )))
        }
        _ => Ok(typed),
    }
}

/// What was typed, held against the model.
pub fn layout(
    arguments: &LayoutArguments,
    model: &Model,
    dtype: Option<ElementType>,
    defaults: &LayoutDefaults,
) -> Result<Layout, Failure> {
    Ok(typed(arguments, dtype, defaults)?.resolve(model)?)
}

/// Refuses an interval of recomputation that is to be found for one layout, where there are several.
pub fn check_interval(typed: &OpenLayout) -> Result<(), Failure> {
    match typed.least_interval {
        true => Err(Failure::usage(format!(
            "--recompute {}: the interval is found for one layout, and there are several here; give full:K",
            OpenLayout::LEAST_INTERVAL
        ))),
        false => Ok(()),
    }
}

/// Threads of each of so many ranks.
pub fn threads(arguments: &RunArguments, launch: &Launch, ranks: usize) -> Result<usize, Failure> {
    Ok(launch.threads(arguments.threads, ranks)?)
}

/// The collectives' time limit.
pub fn timeout(arguments: &RunArguments) -> Result<Duration, Failure> {
    Ok(quadrille_run::timeout(arguments.timeout.unwrap_or(RunSpec::TIMEOUT))?)
}

/// Applies `--lr` and `--steps` to the training constants.
pub fn hyper(optimizer: OptimizerSpec, run: &RunArguments, steps: u64) -> Result<Hyper, Failure> {
    Ok(with_rate(optimizer, run)?.hyper(steps)?)
}

/// Applies `--lr`.
pub fn with_rate(optimizer: OptimizerSpec, run: &RunArguments) -> Result<OptimizerSpec, Failure> {
    Ok(run.lr.map_or(Ok(optimizer), |rate| optimizer.with_rate(rate))?)
}
