//! From what was typed to what it means: models, layouts, optimizer constants, validated.

use std::borrow::Cow;
use std::path::Path;
use std::time::Duration;

use quadrille_engine::Hyper;
use quadrille_files::Document;
use quadrille_hugging_face::CONFIGURATION;
use quadrille_papers::atp::Interconnect;
use quadrille_plan::best;
use quadrille_plan::local::machine;
use quadrille_run::{OptimizerSpec, RunSpec};
use quadrille_spec::{
    Cluster, ElementType, Field, Grid, Layout, LayoutFile, LayoutRequest, Model, ModelFile, SpecError,
};

use crate::arguments::{ModelArguments, RunArguments};
use crate::documents;
use crate::failure::Failure;
use crate::launch::Launch;
use crate::layout_arguments::LayoutArguments;

pub use quadrille_run::{cores, processors};

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
        Some(path) => Model::from_hugging_face(&CONFIGURATION.text(path)?, &overrides)
            .map_err(|error| Failure::usage(format!("{}: {error}", path.display())))?,
        None => {
            let name = arguments.model.as_deref().unwrap_or(default_model);
            Model::from_toml(&preset_or_file(name, &documents::MODEL, Model::preset_text)?, &overrides)?
        }
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

/// What a layout has where neither a flag nor a file says it.
#[derive(Clone, Copy)]
pub struct Defaults {
    pub ranks: usize,
    pub dtype: ElementType,
    /// Ranks that share a node; `None`: as the cluster says.
    pub per_node: Option<usize>,
    /// Sequences in a step and tokens in a sequence, of a run that goes on; `None`: two sequences for each rank, as long as
    /// the model takes.
    pub batch: Option<[usize; 2]>,
}

impl Defaults {
    /// Of `train`, `explain` and `plan`.
    pub const USUAL: Self = Self { ranks: 8, dtype: ElementType::F32, per_node: None, batch: None };
}

/// What was typed about the layout.
pub struct Typed {
    /// Of `--grid auto` only the number of ranks and the order of axes count.
    pub request: LayoutRequest,
    /// Whether the grid is still to be chosen.
    pub auto: bool,
    /// Whether the batch follows from the number of ranks.
    pub usual_batch: bool,
    /// What file and flags say.
    pub said: LayoutFile,
    /// Where it is to run; read, and so checked, whether or not the grid is chosen for it.
    pub cluster: Cluster,
}

/// Reads one of ATP's interconnects.
pub fn interconnect(name: &str) -> Result<Interconnect, Failure> {
    if names_file(name) {
        Interconnect::from_toml(&documents::INTERCONNECT.text(Path::new(name))?)
            .map_err(|error| Failure::usage(format!("{name}: {error}")))
    } else {
        Ok(Interconnect::preset(name)?)
    }
}

/// Reads the layout's file and flags, which win over it; not yet held against a model.
pub fn typed(arguments: &LayoutArguments, dtype: Option<ElementType>, defaults: &Defaults) -> Result<Typed, Failure> {
    typed_over(arguments, dtype, defaults, arguments.cluster(), &LayoutFile::default())
}

/// The same over what was said `before`, on the cluster of that name.
pub fn typed_over(
    arguments: &LayoutArguments,
    dtype: Option<ElementType>,
    defaults: &Defaults,
    cluster_name: &str,
    before: &LayoutFile,
) -> Result<Typed, Failure> {
    let cluster = cluster(cluster_name)?;
    let said = arguments.flags.0.over(&arguments.file()?).over(before);
    let mut request = LayoutRequest { dtype: defaults.dtype, ..LayoutRequest::new(Grid::new(1, 1, 1, 1)?, 1) };
    said.apply(&mut request)?;
    request.dtype = dtype.unwrap_or(request.dtype);
    request.per_node = request.per_node.or(defaults.per_node);
    let chosen = match arguments.grid.as_deref() {
        Some("auto") => None,
        Some(text) => Some(text.parse::<Grid>()?),
        None => said.get(Field::Grid).map(|_| request.grid),
    };
    let ranks = match (&chosen, arguments.ranks) {
        (Some(grid), Some(ranks)) if grid.ranks() != ranks => {
            let whose = match (&arguments.grid, before.get(Field::Grid)) {
                (Some(_), _) => "--grid",
                (None, Some(_)) => "the run's grid",
                (None, None) => "the layout file's grid",
            };
            return Err(Failure::usage(format!(
                "--ranks {ranks} does not match {whose} {grid}, which has {} ranks; leave one of them out",
                grid.ranks()
            )));
        }
        (Some(grid), _) => grid.ranks(),
        (None, Some(0)) => return Err(Failure::usage("--ranks 0: there is at least one rank")),
        (None, Some(ranks)) => ranks,
        (None, None) => defaults.ranks,
    };
    let grid = match chosen {
        Some(grid) => grid,
        None => Grid::new(ranks, 1, 1, 1)?,
    };
    request.grid = grid.with_order(request.grid.order());
    let [sequences, tokens] = defaults.batch.map_or([None; 2], |batch| batch.map(Some));
    let batch = said.size(Field::GlobalBatch).or(sequences);
    request.global_batch = batch.unwrap_or_else(|| usual_batch_of(ranks));
    request.seq_len = request.seq_len.or(tokens);
    request.check_used()?;
    Ok(Typed { request, auto: chosen.is_none(), usual_batch: batch.is_none(), said, cluster })
}

/// Sequences in a step where nobody says how many.
fn usual_batch_of(ranks: usize) -> usize {
    2 * ranks
}

/// The layout that was asked for, or that of the best legal grid by the prices of its programs.
pub fn resolve(typed: &Typed, model: &Model) -> Result<Layout, Failure> {
    let Typed { request, auto, usual_batch, cluster, .. } = typed;
    let ranks = request.grid.ranks();
    if *auto && ranks > 1 {
        let (described, _) = machine::described(cluster.clone(), ranks, 1, processors());
        if described.device.is_none() || described.tiers.is_empty() {
            return Err(Failure::usage(format!(
                "--cluster {}: it does not describe its device and networks, by which an open grid is chosen; give a --grid, or \
                 describe them (see calibrate)",
                cluster.name
            )));
        }
        return Ok(best(model, &described, ranks, request)?.0);
    }
    // What follows from the number of ranks follows from that of a remedy, too.
    let with_batch = |other: &LayoutRequest| LayoutRequest {
        global_batch: match *usual_batch && other.grid.ranks() != ranks {
            true => usual_batch_of(other.grid.ranks()),
            false => other.global_batch,
        },
        ..other.clone()
    };
    // Nodes that nobody has typed hide no other fault.
    Layout::completed(model, request, with_batch)?;
    Ok(Layout::completed(model, request, |other| LayoutRequest {
        per_node: other.per_node.or_else(|| Some(cluster.per_node(other.grid.ranks()))),
        ..with_batch(other)
    })?)
}

/// [`typed`] and [`resolve`].
pub fn layout(
    arguments: &LayoutArguments,
    model: &Model,
    dtype: Option<ElementType>,
    defaults: &Defaults,
) -> Result<Layout, Failure> {
    resolve(&typed(arguments, dtype, defaults)?, model)
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

/// The cluster of a preset or a file.
pub fn cluster(name: &str) -> Result<Cluster, Failure> {
    Ok(Cluster::from_toml(&preset_or_file(name, &documents::CLUSTER, Cluster::preset_text)?)?)
}

/// The text of a preset, or of a file if the name looks like one.
fn preset_or_file(
    name: &str,
    file: &Document,
    preset: fn(&str) -> Result<&'static str, SpecError>,
) -> Result<Cow<'static, str>, Failure> {
    if names_file(name) { Ok(file.text(Path::new(name))?.into()) } else { Ok(preset(name)?.into()) }
}

/// Whether the name looks like a file's.
fn names_file(name: &str) -> bool {
    name.ends_with(".toml") || name.contains('/') || Path::new(name).is_file()
}
