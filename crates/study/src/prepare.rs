//! Everything that a study needs before its first step, checked.

use quadrille_checkpoint::{About, Checkpoint};
use quadrille_engine::{ForwardOptions, Hyper, LossScale, Start, TrainOptions};
use quadrille_run::{Host, Processes, ProgramRun, RunError, Signals, StatesSpec, resources};
use quadrille_step::{StepError, StepProgram};
use serde_json::to_value;

use crate::corpus::{Corpus, Wanted};
use crate::learn::Learning;
use crate::order::Order;
use crate::place::{self, Place};
use crate::progress::OnProgress;
use crate::refusal::{Refusal, Setting};
use crate::{Conditions, Findings, StudyError, StudySpec};

/// A study that can begin.
pub struct Prepared {
    /// What ranks execute while they train.
    pub program: StepProgram,
    spec: StudySpec,
    corpus: Corpus,
    order: Order,
    train: TrainOptions,
    forward: ForwardOptions,
    /// What checkpoints say of a run.
    about: About,
    processes: Processes,
}

impl Prepared {
    /// Checks all choices, opens the text and takes documents of it.
    ///
    /// # Errors
    /// The first choice, file or folder that cannot be used; a machine that is too small; text that has too few documents.
    pub fn new(spec: StudySpec, host: &Host) -> Result<Self, StudyError> {
        let processes = &host.processes;
        place::check(&spec, processes)?;
        spec.model.check_next_token().map_err(StepError::from)?;
        spec.check()?;
        let layout = &spec.layout;
        let seed = spec.seed;
        let generate_tokens = spec.generate_tokens;
        let epochs = &spec.epochs;
        let per_bucket = spec.documents_per_bucket;
        let order = Order::new(epochs, per_bucket, spec.warmup_steps, spec.steps, layout.global_batch, seed)?;
        let hyper = Hyper { warmup_steps: spec.warmup_steps, ..spec.optimizer.hyper(order.steps)? };
        let start = spec.from.clone().map_or(Start::Drawn, Start::Values);
        let program = start.program(&spec.model, layout)?;
        let threads = processes.threads(spec.threads, layout.grid.ranks())?;
        let timeout = quadrille_run::timeout(spec.timeout)?;
        resources::check(&program, threads, processes, &StatesSpec::Memory, 0)?;
        let documents = epochs.len() * per_bucket as usize;
        let wanted = Wanted { documents, seq_len: layout.seq_len, prompt: layout.seq_len - generate_tokens };
        let from = spec.from.as_deref();
        let corpus = processes
            .first_then_others(|| Corpus::open(&spec.text, &spec.model, from, seed, wanted, host.on_preparation))?;
        check_background(&corpus, &order)?;
        let collectives = processes.collectives(spec.collectives.algorithm, &spec.collectives.tiers);
        let train = TrainOptions {
            threads,
            timeout,
            start,
            collectives: collectives.clone(),
            world: processes.world.clone(),
            loss_scale: LossScale::usual(program.layout.dtype),
            ..TrainOptions::new(order.steps, hyper, seed)
        };
        let forward = ForwardOptions { threads, timeout, collectives, world: processes.world.clone() };
        let about = about(&program, seed, hyper, &corpus, from, host)?;
        let processes = processes.clone();
        let prepared = Self { program, spec, corpus, order, train, forward, about, processes };
        let (first, _) = prepared.learning(None).programs(0).map_err(StudyError::Generation)?;
        resources::check(&first.prefill, threads, &prepared.processes, &StatesSpec::Memory, 0)?;
        Ok(prepared)
    }

    /// Files, documents, skipped lines and the tokenizer in lines of text.
    pub fn overview(&self) -> &str {
        &self.corpus.overview
    }

    /// What the documents are, and how they are seen.
    pub fn conditions(&self) -> Conditions {
        let spec = &self.spec;
        Conditions {
            epochs: spec.epochs.clone(),
            documents_per_bucket: spec.documents_per_bucket,
            seq_len: spec.layout.seq_len,
            generate_tokens: spec.generate_tokens,
            warmup_steps: spec.warmup_steps,
            steps: self.order.steps,
            seed: spec.seed,
        }
    }

    /// Trains a model with each loss, then has the documents continued. Where ranks are processes, all of them find the same.
    ///
    /// # Errors
    /// The ranks', a folder that cannot be written, a signal that has come.
    pub fn run(self, signals: Option<&Signals>, on_progress: OnProgress) -> Result<Findings, StudyError> {
        let learning = self.learning(signals);
        let mut runs = Vec::new();
        for goldfish in &self.spec.losses {
            let name = if goldfish.is_some() { "goldfish" } else { "plain" };
            let place = Place::new(&self.spec, name, &self.processes)?;
            runs.push(learning.run(*goldfish, name, place.path(), on_progress)?);
        }
        let conditions = self.conditions();
        let data = self.corpus.about;
        Ok(Findings { model: self.spec.model, layout: self.spec.layout, conditions, data, runs })
    }

    fn learning<'a>(&'a self, signals: Option<&'a Signals>) -> Learning<'a> {
        let Self { program, spec, corpus, order, train, forward, about, processes } = self;
        let generate_tokens = spec.generate_tokens;
        let epochs = spec.epochs.as_slice();
        Learning { program, corpus, order, train, about, forward, generate_tokens, epochs, processes, signals }
    }
}

/// What checkpoints say of a run when it begins.
///
/// # Errors
/// None that is known: all of it is plain data.
fn about(
    program: &StepProgram,
    seed: u64,
    hyper: Hyper,
    corpus: &Corpus,
    from: Option<&Checkpoint>,
    host: &Host,
) -> Result<About, RunError> {
    Ok(About {
        model: program.model.clone(),
        layout: program.layout.clone(),
        dtype: program.layout.dtype.real(),
        step: 0,
        samples: 0,
        tokens: 0,
        seed,
        hyper: to_value(hyper).map_err(RunError::Document)?,
        data: corpus.about.clone(),
        run: to_value(ProgramRun::new(&host.command)).map_err(RunError::Document)?,
        hugging_face: from.and_then(|checkpoint| checkpoint.about().hugging_face.clone()),
    })
}

/// Refuses a warm-up or spare room that no text is left for.
fn check_background(corpus: &Corpus, order: &Order) -> Result<(), Refusal> {
    if corpus.background.is_some() || !order.reads_other_text() {
        return Ok(());
    }
    let rule = "beside the documents of the buckets there is less than a sequence of other text; use more ";
    let refusal = Refusal::new(rule).name(Setting::Data).text(", or ").name(Setting::WarmupSteps);
    Err(refusal.text(" 0 and a ").name(Setting::GlobalBatch).text(" that the documents fill"))
}
