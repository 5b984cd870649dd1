//! From what was typed to what it means: models, layouts, optimizer constants, validated.

use std::path::Path;
use std::thread::available_parallelism;
use std::time::Duration;

use quadrille_engine::Hyper;
use quadrille_plan::best;
use quadrille_spec::{Cluster, ElementType, Grid, Layout, LayoutRequest, Model, ModelFile, SpecError};

use crate::arguments::{LayoutArguments, ModelArguments, RunArguments};
use crate::failure::Failure;

/// Fields of training that `--set` takes beside those of the model.
const TRAINING_FIELDS: [&str; 8] =
    ["learning_rate", "final_fraction", "warmup_steps", "beta1", "beta2", "epsilon", "weight_decay", "clip"];

/// A model with its training constants.
pub struct Settings {
    pub model: Model,
    pub hyper: Hyper,
}

/// Reads the model and applies `--set` to it and to the training constants `hyper`.
pub fn settings(arguments: &ModelArguments, default_model: &str, mut hyper: Hyper) -> Result<Settings, Failure> {
    let name = arguments.model.as_deref().unwrap_or(default_model);
    let text = preset_or_file(name, |name| Model::preset_text(name).map(str::to_owned))?;
    let mut file = ModelFile::from_toml(&text)?;
    for assignment in &arguments.set {
        let (key, value) = assignment
            .split_once('=')
            .ok_or_else(|| Failure::usage(format!("--set {assignment}: write it as key=value")))?;
        if TRAINING_FIELDS.contains(&key) {
            set_hyper(&mut hyper, key, value)?;
        } else if ModelFile::FIELDS.contains(&key) {
            file.set(key, value)?;
        } else {
            let known = ModelFile::FIELDS.iter().chain(&TRAINING_FIELDS).map(|field| (*field).to_owned()).collect();
            return Err(SpecError::Unknown { what: "field", name: key.to_owned(), known }.into());
        }
    }
    Ok(Settings { model: file.validate()?, hyper })
}

/// A cluster by preset name or file.
pub fn cluster(name: &str) -> Result<Cluster, Failure> {
    if looks_like_file(name) {
        return Ok(Cluster::from_toml(&read(name)?)?);
    }
    Ok(Cluster::preset(name)?)
}

/// What was typed about the layout, with the number of ranks; `None` for `--grid auto`.
pub fn layout_request(
    arguments: &LayoutArguments,
    dtype: ElementType,
    default_ranks: usize,
) -> Result<(LayoutRequest, usize, bool), Failure> {
    let typed = match arguments.grid.as_deref() {
        None | Some("auto") => None,
        Some(text) => Some(text.parse::<Grid>()?),
    };
    let ranks = match (&typed, arguments.ranks) {
        (Some(grid), Some(ranks)) if grid.ranks() != ranks => {
            return Err(Failure::usage(format!(
                "--ranks {ranks} does not match --grid {grid}, which has {} ranks; leave one of them out",
                grid.ranks()
            )));
        }
        (Some(grid), _) => grid.ranks(),
        (None, Some(0)) => return Err(Failure::usage("--ranks 0: there is at least one rank")),
        (None, Some(ranks)) => ranks,
        (None, None) => default_ranks,
    };
    let auto = typed.is_none();
    let grid = match typed {
        Some(grid) => grid,
        None => Grid::new(ranks, 1, 1, 1)?,
    };
    let request = LayoutRequest {
        grid: grid.with_order(arguments.order),
        per_node: arguments.per_node,
        activations: arguments.activations,
        overlap: arguments.overlap,
        global_batch: arguments.global_batch.unwrap_or(2 * ranks),
        microbatch: arguments.microbatch,
        seq_len: arguments.seq_len,
        dtype,
    };
    Ok((request, ranks, auto))
}

/// The layout that was asked for, or the best legal one by AxoNN's communication model.
pub fn layout(
    arguments: &LayoutArguments,
    model: &Model,
    dtype: ElementType,
    default_ranks: usize,
) -> Result<Layout, Failure> {
    let (request, ranks, auto) = layout_request(arguments, dtype, default_ranks)?;
    if auto && ranks > 1 {
        let cluster = cluster(&arguments.cluster)?;
        return Ok(best(model, &cluster, ranks, &request, dtype.bytes())?.layout);
    }
    Ok(Layout::new(model, &request)?)
}

/// Threads of each rank.
pub fn threads(arguments: &RunArguments, ranks: usize) -> Result<usize, Failure> {
    match arguments.threads {
        Some(0) => Err(Failure::usage("--threads 0: a rank has at least one thread")),
        Some(threads) if threads > 1024 => {
            Err(Failure::usage(format!("--threads {threads}: a rank has at most 1024 threads")))
        }
        Some(threads) => Ok(threads),
        None => Ok((cores() / ranks).max(1)),
    }
}

/// The collectives' time limit.
pub fn timeout(arguments: &RunArguments) -> Result<Duration, Failure> {
    match Duration::try_from_secs_f64(arguments.timeout) {
        Ok(timeout) if !timeout.is_zero() => Ok(timeout),
        _ => Err(Failure::usage(format!("--timeout {}: give a positive number of seconds", arguments.timeout))),
    }
}

/// Applies `--lr` and `--steps` to the training constants.
pub fn hyper(mut hyper: Hyper, run: &RunArguments, steps: u64) -> Result<Hyper, Failure> {
    if let Some(rate) = run.lr {
        set_hyper(&mut hyper, "learning_rate", &rate.to_string())?;
    }
    if steps == 0 {
        return Err(Failure::usage("--steps 0: train at least one step"));
    }
    hyper.steps = steps;
    hyper.warmup_steps = hyper.warmup_steps.min(steps / 2);
    Ok(hyper)
}

/// Logical processors that this process may use.
pub fn cores() -> usize {
    available_parallelism().map_or(1, usize::from)
}

fn set_hyper(hyper: &mut Hyper, key: &str, value: &str) -> Result<(), SpecError> {
    let number = |rule: &str, allowed: fn(f64) -> bool| match value.parse::<f64>() {
        Ok(number) if number.is_finite() && allowed(number) => Ok(number),
        _ => Err(SpecError::invalid(key, value, rule, "give such a number")),
    };
    let fraction = |value| (0.0..1.0).contains(&value);
    match key {
        "learning_rate" => hyper.learning_rate = number("it is a number of at least 0", |value| value >= 0.0)?,
        "final_fraction" => {
            hyper.final_fraction = number("it lies in 0..=1", |value| (0.0..=1.0).contains(&value))?;
        }
        "warmup_steps" => {
            hyper.warmup_steps =
                value.parse().map_err(|_| SpecError::invalid(key, value, "it is a whole number", "e.g. 20"))?;
        }
        "beta1" => hyper.beta1 = number("it lies in [0, 1)", fraction)?,
        "beta2" => hyper.beta2 = number("it lies in [0, 1)", fraction)?,
        "epsilon" => hyper.epsilon = number("it is above 0", |value| value > 0.0)?,
        "weight_decay" => hyper.weight_decay = number("it is at least 0", |value| value >= 0.0)?,
        "clip" if value == "none" => hyper.clip = None,
        "clip" => hyper.clip = Some(number("it is above 0, or 'none'", |value| value > 0.0)?),
        _ => unreachable!("only TRAINING_FIELDS come here"),
    }
    Ok(())
}

/// The text of a preset, or of a file if the name looks like one.
fn preset_or_file(name: &str, preset: impl Fn(&str) -> Result<String, SpecError>) -> Result<String, Failure> {
    if looks_like_file(name) { read(name) } else { Ok(preset(name)?) }
}

fn looks_like_file(name: &str) -> bool {
    name.ends_with(".toml") || name.contains('/') || Path::new(name).is_file()
}

fn read(name: &str) -> Result<String, Failure> {
    std::fs::read_to_string(name).map_err(|error| Failure::usage(format!("cannot read {name}: {error}")))
}
