//! `quadrille memorize`: how much a model learns by heart of documents that it sees again and again, and how much of it
//! the goldfish loss prevents (AxoNN, SC24, section VIII; Hans et al., 2024).

pub mod arguments;
mod corpus;
mod order;
mod report;
mod study;

use std::fs;
use std::path::Path;
use std::sync::Arc;

use quadrille_checkpoint::{About, Checkpoint, Folder};
use quadrille_engine::{ForwardOptions, Hyper, Start, TrainOptions};
use quadrille_report::summary::summary;
use quadrille_run::{Signals, resources};
use quadrille_spec::{ElementType, Layout};
use quadrille_step::StepProgram;
use serde_json::json;

use self::arguments::MemorizeArguments;
use self::corpus::{Corpus, Wanted};
use self::order::Order;
use self::study::{Place, Study};
use crate::failure::Failure;
use crate::launch::Launch;
use crate::output::{print_json, print_text, tell, write_file};
use crate::settings::{self, Defaults, Settings, Typed, settings, settings_of};
use crate::{files, paths};

/// Sequences of a step without `--global-batch`.
const GLOBAL_BATCH: usize = 8;

/// Learning rate of small models without `--lr`.
const RATE: f64 = 5e-3;
/// The same of models that go on from a checkpoint: that of the published study.
const PUBLISHED_RATE: f64 = 3e-4;

/// What was asked for, as reports say it.
pub struct Conditions {
    pub epochs: Vec<u32>,
    pub documents_per_bucket: u32,
    pub seq_len: usize,
    pub generate_tokens: usize,
    pub warmup_steps: u64,
    /// With those of the warm-up.
    pub steps: u64,
    pub seed: u64,
}

/// Trains, has documents continued, and reports.
pub fn run(arguments: &MemorizeArguments, launch: &Launch) -> Result<(), Failure> {
    check_paths(arguments, launch)?;
    let from = arguments.from.as_deref().map(Checkpoint::find).transpose()?.map(Arc::new);
    let (settings, typed, layout) = shape(arguments, from.as_deref(), launch)?;
    let (model, losses) = (&settings.model, arguments.losses());
    let generate_tokens = arguments.generate_tokens as usize;
    study::check(model, layout.seq_len, generate_tokens, &losses)?;
    let (seed, per_bucket) = (arguments.run.seed(), arguments.documents_per_bucket);
    let order =
        Order::new(&arguments.epochs, per_bucket, arguments.warmup_steps, arguments.steps, layout.global_batch, seed)?;
    let hyper = hyper(arguments, &settings, &order)?;
    let program = StepProgram::new(model, &layout)?;
    let threads = settings::threads(&arguments.run, launch, layout.grid.ranks())?;
    let timeout = settings::timeout(&arguments.run)?;
    resources::check(&program, threads, launch, 0)?;
    let documents = arguments.epochs.len() * per_bucket as usize;
    let wanted = Wanted { documents, seq_len: layout.seq_len, prompt: layout.seq_len - generate_tokens };
    let corpus = launch.first_then_others(|| Corpus::open(&arguments.text, model, from.as_deref(), seed, wanted))?;
    check_background(&corpus, &order)?;
    let signals = Signals::watch()?;
    let collectives = launch.collectives(&arguments.run, &typed.cluster);
    let start = match &from {
        Some(checkpoint) => Start::Values(Arc::clone(checkpoint)),
        None => Start::Drawn,
    };
    let train = TrainOptions {
        threads,
        timeout,
        start,
        collectives: collectives.clone(),
        world: launch.world.clone(),
        stop: Some(signals.stop.clone()),
        ..TrainOptions::new(order.steps, hyper, seed)
    };
    let forward = ForwardOptions { threads, timeout, collectives, world: launch.world.clone() };
    let about = about(&program, seed, hyper, &corpus, from.as_deref());
    let study = Study {
        program: &program,
        corpus: &corpus,
        order: &order,
        train: &train,
        about: &about,
        forward: &forward,
        generate_tokens,
        epochs: &arguments.epochs,
        launch,
        signals: &signals,
    };
    let (first, _) = study.programs(0).map_err(|error| Failure::Usage(error.into()))?;
    resources::check(&first.prefill, threads, launch, 0)?;
    let conditions = Conditions {
        epochs: arguments.epochs.clone(),
        documents_per_bucket: per_bucket,
        seq_len: layout.seq_len,
        generate_tokens,
        warmup_steps: arguments.warmup_steps,
        steps: order.steps,
        seed,
    };
    if launch.is_first() && !arguments.json {
        tell(&(summary(&program) + &report::conditions(&conditions)));
    }
    let mut learned = Vec::new();
    for goldfish in losses {
        let place = place(arguments, if goldfish.is_some() { "goldfish" } else { "plain" }, launch)?;
        learned.push(study.run(goldfish, place.path())?);
    }
    if !launch.is_first() {
        return Ok(());
    }
    write_drawings(arguments, &program, &conditions, &learned)?;
    match arguments.json {
        true => print_json(&report::document(&program, &conditions, &corpus.about, &learned))?,
        false => print_text(&report::text(&learned))?,
    }
    match learned.iter().all(|run| run.ledger_equal) {
        true => Ok(()),
        false => Err(Failure::run("the counted ledger differs from the predicted one")),
    }
}

/// The model and the layout: those of the checkpoint, or as flags say.
fn shape(
    arguments: &MemorizeArguments,
    from: Option<&Checkpoint>,
    launch: &Launch,
) -> Result<(Settings, Typed, Layout), Failure> {
    let rate = |learning_rate| Hyper { learning_rate, ..Hyper::default() };
    let settings = match from {
        Some(checkpoint) => settings_of(&checkpoint.about().model, &arguments.model, rate(PUBLISHED_RATE).into())?,
        None => settings(&arguments.model, "gpt-demo", rate(RATE))?,
    };
    let dtype = from.map_or(ElementType::F32, |checkpoint| checkpoint.about().dtype);
    let batch = Some([GLOBAL_BATCH, settings.model.seq_len]);
    let defaults = launch.defaults(&Defaults { ranks: 1, dtype, per_node: None, batch })?;
    let typed = settings::typed(&arguments.layout, arguments.dtype, &defaults)?;
    let layout = settings::resolve(&typed, &settings.model)?;
    launch.check_ranks(layout.grid.ranks())?;
    if dtype == ElementType::F64 && layout.dtype == ElementType::F32 {
        return Err(Failure::usage(
            "--from holds f64 and --dtype is f32; leave it out, or round it once with checkpoint merge --dtype f32",
        ));
    }
    Ok((settings, typed, layout))
}

/// The schedule rises over the warm-up and falls over the steps with the documents.
fn hyper(arguments: &MemorizeArguments, settings: &Settings, order: &Order) -> Result<Hyper, Failure> {
    if arguments.model.set.iter().any(|set| set.starts_with("warmup_steps=")) {
        return Err(Failure::usage("--set warmup_steps: the rate rises before the documents come; use --warmup-steps"));
    }
    let hyper = settings::hyper(settings.optimizer, &arguments.run, order.steps)?;
    Ok(Hyper { warmup_steps: arguments.warmup_steps, ..hyper })
}

/// What checkpoints say of a run when it begins.
fn about(program: &StepProgram, seed: u64, hyper: Hyper, corpus: &Corpus, from: Option<&Checkpoint>) -> About {
    About {
        model: program.model.clone(),
        layout: program.layout.clone(),
        dtype: program.layout.dtype,
        step: 0,
        samples: 0,
        tokens: 0,
        seed,
        hyper: json!(hyper),
        data: corpus.about.clone(),
        run: json!({ "command": ["memorize"], "version": env!("CARGO_PKG_VERSION") }),
        hugging_face: from.and_then(|checkpoint| checkpoint.about().hugging_face.clone()),
    }
}

/// Refuses a warm-up or spare room that no text is left for.
fn check_background(corpus: &Corpus, order: &Order) -> Result<(), Failure> {
    match corpus.background {
        None if order.reads_other_text() => Err(Failure::usage(
            "beside the documents of the buckets there is less than a sequence of other text; use more --data, or \
             --warmup-steps 0 and a --global-batch that the documents fill",
        )),
        _ => Ok(()),
    }
}

/// Where the checkpoint of a run goes.
fn place(arguments: &MemorizeArguments, name: &str, launch: &Launch) -> Result<Place, Failure> {
    let Some(out) = &arguments.out else {
        let folder = tempfile::Builder::new().prefix("quadrille-memorize-").tempdir();
        return folder.map(Place::Temporary).map_err(|error| {
            Failure::run(format!("cannot make a folder for a checkpoint: {error}; name one with --out"))
        });
    };
    let path = out.join(name);
    launch.first_then_others(|| {
        fs::create_dir_all(&path).map_err(|error| Failure::usage(files::unwritable("--out", &path, &error)))
    })?;
    Ok(Place::Kept(path))
}

/// Refuses what cannot be written, or would be written over what is read, before any work.
fn check_paths(arguments: &MemorizeArguments, launch: &Launch) -> Result<(), Failure> {
    if launch.world.is_some() && arguments.out.is_none() {
        return Err(Failure::usage(
            "weights go from training to generation through a checkpoint, which all processes read; name a folder that they \
             share with --out",
        ));
    }
    let written: Vec<_> = arguments.written().collect();
    let data = arguments.text.data.iter().map(|path| ("--data", path.as_path()));
    let from = arguments.from.iter().map(|path| ("--from", path.as_path()));
    let described = paths::described(&arguments.model, &arguments.layout);
    paths::check(&written, &data.chain(from).chain(described).collect::<Vec<_>>())?;
    if launch.is_first() {
        written.iter().try_for_each(|(flag, path)| files::check_writable(flag, path))?;
    }
    arguments.out.as_deref().map_or(Ok(()), check_out)
}

/// Refuses a folder that holds an earlier study.
fn check_out(out: &Path) -> Result<(), Failure> {
    for name in ["plain", "goldfish"] {
        let path = out.join(name);
        if !Folder::new(&path).list()?.is_empty() {
            return Err(Failure::usage(format!(
                "--out {}: {} holds checkpoints already; name another folder",
                out.display(),
                path.display()
            )));
        }
    }
    Ok(())
}

fn write_drawings(
    arguments: &MemorizeArguments,
    program: &StepProgram,
    conditions: &Conditions,
    learned: &[study::Learned],
) -> Result<(), Failure> {
    let shares = report::shares(program, learned);
    if let Some(path) = &arguments.svg {
        write_file("--svg", path, shares.plot().as_bytes())?;
    }
    if let Some(path) = &arguments.html {
        let page = shares.page(&report::conditions(conditions), &report::rows(learned));
        write_file("--html", path, page.as_bytes())?;
    }
    Ok(())
}
