//! `quadrille memorize`: how much a model learns by heart of documents that it sees again and again, and how much of it
//! the goldfish loss prevents (AxoNN, SC24, section VIII; Hans et al., 2024). The study itself is `quadrille_study`.

pub mod arguments;

use std::sync::Arc;

use quadrille_checkpoint::Checkpoint;
use quadrille_engine::Hyper;
use quadrille_pages::memorize_page;
use quadrille_report::summary::summary;
use quadrille_run::{CollectivesSpec, Host, LayoutDefaults, RunSpec, Signals};
use quadrille_spec::RealType;
use quadrille_study::{Prepared, StudySpec};

use self::arguments::MemorizeArguments;
use crate::bars::{self, StudyBars};
use crate::failure::Failure;
use crate::launch::Launch;
use crate::output::{check_writable, json_value, print_json, print_text, tell, write_file};
use crate::paths;

/// Sequences of a step without `--global-batch`.
const GLOBAL_BATCH: usize = 8;

/// Trains, has documents continued, and reports.
pub fn run(arguments: &MemorizeArguments, launch: &Launch) -> Result<(), Failure> {
    check_paths(arguments, launch)?;
    let spec = spec(arguments, launch)?;
    let prepared = bars::preparing(|on_preparation| {
        let command = vec!["memorize".to_owned()];
        Prepared::new(spec, &Host { processes: launch.processes().clone(), command, on_preparation })
    })?;
    let signals = Signals::watch()?;
    if launch.is_first() && !arguments.json {
        tell(&(summary(&prepared.program) + prepared.overview() + &prepared.conditions().text()));
    }
    let mut bars = StudyBars::new(launch);
    let findings = prepared.run(Some(&signals), &mut |progress| bars.show(progress));
    bars.clear();
    let findings = findings?;
    if !launch.is_first() {
        return Ok(());
    }
    if let Some(path) = &arguments.html {
        write_file("--html", path, memorize_page(&json_value(&findings.page())?).as_bytes())?;
    }
    if arguments.json {
        print_json(&findings.report())?
    } else {
        print_text(findings.text())?
    }
    findings.check()?;
    Ok(())
}

/// What flags say; model and layout are those of a checkpoint that is named.
fn spec(arguments: &MemorizeArguments, launch: &Launch) -> Result<StudySpec, Failure> {
    let from = arguments.from.as_deref().map(Checkpoint::find).transpose()?.map(Arc::new);
    let rate = |learning_rate| Hyper { learning_rate, ..Hyper::default() };
    let settings = match &from {
        Some(checkpoint) => arguments.model.settings_of(&checkpoint.about().model, rate(StudySpec::PUBLISHED_RATE))?,
        None => arguments.model.settings("gpt-demo", rate(StudySpec::RATE))?,
    };
    let dtype = from.as_ref().map_or(RealType::F32, |checkpoint| checkpoint.about().dtype);
    let batch = Some([GLOBAL_BATCH, settings.model.seq_len]);
    let usual = LayoutDefaults { ranks: 1, dtype: dtype.into(), batch, ..LayoutDefaults::USUAL };
    let defaults = launch.defaults(&usual)?;
    let typed = arguments.layout.said(arguments.dtype).open(&defaults)?;
    let layout = typed.resolve(&settings.model)?;
    launch.check_ranks(layout.grid.ranks())?;
    if dtype == RealType::F64 && layout.dtype.real() == RealType::F32 {
        return Err(Failure::usage(format!(
            "--from holds f64 and the study is in {}; leave --dtype out, or round it once with checkpoint merge --dtype f32",
            layout.dtype
        )));
    }
    if arguments.model.set.iter().any(|set| set.starts_with("warmup_steps=")) {
        return Err(Failure::usage("--set warmup_steps: the rate rises before the documents come; use --warmup-steps"));
    }
    Ok(StudySpec {
        from,
        optimizer: arguments.run.with_rate(settings.optimizer)?,
        seed: arguments.run.seed(),
        epochs: arguments.epochs.clone(),
        documents_per_bucket: arguments.documents_per_bucket,
        warmup_steps: arguments.warmup_steps,
        steps: arguments.steps,
        generate_tokens: arguments.generate_tokens as usize,
        losses: arguments.losses(),
        text: arguments.text.spec(),
        collectives: CollectivesSpec { algorithm: arguments.run.collectives(), tiers: typed.cluster.tiers },
        threads: arguments.run.threads,
        timeout: arguments.run.timeout.unwrap_or(RunSpec::TIMEOUT),
        out: arguments.out.clone(),
        ..StudySpec::new(settings.model, layout)
    })
}

/// Refuses what cannot be written, or would be written over what is read, before any work.
fn check_paths(arguments: &MemorizeArguments, launch: &Launch) -> Result<(), Failure> {
    let written = paths::asked([("--html", &arguments.html)]);
    let data = arguments.text.data.iter().map(|path| ("--data", path.as_path()));
    let from = arguments.from.iter().map(|path| ("--from", path.as_path()));
    let described = paths::described(&arguments.model, &arguments.layout);
    paths::check(&written, &data.chain(from).chain(described).collect::<Vec<_>>())?;
    if launch.is_first() {
        written.iter().try_for_each(|(flag, path)| check_writable(flag, path))?;
    }
    Ok(())
}
