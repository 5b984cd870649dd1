//! Everything that a run needs before its first step, checked.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use quadrille_checkpoint::{About, Checkpoint};
use quadrille_engine::{Hyper, MatmulChoices, OnSaveFailure, Saving, Start, TrainOptions};
use quadrille_step::{Product, StepProgram, predict};
use serde::Serialize;
use serde_json::to_value;

use crate::begin::{Beginning, Place};
use crate::folder::{Description, Event, FILES, Known, checkpoints, has_ended};
use crate::outputs::{Outputs, unwritten};
use crate::refusal::{Refusal, Setting};
use crate::source::OnPreparation;
use crate::tuned::{Recorder, Tuning};
use crate::{
    CheckpointSpec, DataComparison, HeldOut, Processes, RunChanges, RunError, RunSpec, Signals, Source, TuningSpec,
    companions, processes, resources, same_data, written_over,
};

/// A run, as its checkpoints name it.
#[derive(Debug, Clone, Serialize)]
pub struct ProgramRun {
    /// Words of its command line.
    command: Vec<String>,
    /// Version of the program.
    version: &'static str,
}

impl ProgramRun {
    /// Run of this program by a command line.
    pub fn new(command: &[String]) -> Self {
        Self { command: command.to_vec(), version: env!("CARGO_PKG_VERSION") }
    }
}

/// Where a run happens, and who has asked for it.
pub struct Host<'a> {
    /// Where its ranks live.
    pub processes: Processes,
    /// The words by which it was asked for, if there were any: for people.
    pub command: Vec<String>,
    /// Told how many bytes of how many are read while text becomes tokens.
    pub on_preparation: OnPreparation<'a>,
}

impl Default for Host<'_> {
    /// This process, whose threads the ranks are.
    fn default() -> Self {
        Self { processes: Processes::THREADS, command: Vec::new(), on_preparation: &|_, _| {} }
    }
}

/// A run that can begin: everything is checked, its folder is locked and says what it is.
pub struct Prepared {
    /// What ranks execute.
    pub program: StepProgram,
    pub(crate) spec: RunSpec,
    pub(crate) beginning: Beginning,
    pub(crate) source: Source,
    pub(crate) options: TrainOptions,
    pub(crate) about: About,
    pub(crate) outputs: Outputs,
    pub(crate) recorder: Option<Recorder>,
    pub(crate) processes: Processes,
    pub(crate) stop: Arc<AtomicBool>,
    pub(crate) signals: Option<Signals>,
}

impl Prepared {
    /// A new run, in a folder that holds none, or in none: then nothing is left of it but what [`RunSpec::outputs`] names.
    ///
    /// # Errors
    /// The first choice, file or folder that cannot be used.
    pub fn begin(spec: RunSpec, out: Option<&Path>, host: &Host) -> Result<Self, RunError> {
        Self::new(spec, out.map_or(Place::Nowhere, Place::New), DataComparison::Samples, false, host)
    }

    /// The run in a folder, from its newest checkpoint on, as it was decided when it began or last went on, but for `changes`.
    ///
    /// # Errors
    /// The first choice, file or folder that cannot be used; data that are not what the run has read, unless the changes name
    /// them.
    pub fn resume(folder: &Path, changes: RunChanges, host: &Host) -> Result<Self, RunError> {
        let spec = *Description::read(folder)?.spec;
        Self::resume_as(folder, spec, changes, host)
    }

    /// The same of a run that `before` has decided until now, whatever its folder says.
    ///
    /// # Errors
    /// Those of [`Self::resume`].
    pub fn resume_as(folder: &Path, before: RunSpec, changes: RunChanges, host: &Host) -> Result<Self, RunError> {
        let comparison = changes.data.comparison(&before.data);
        let new_log = changes.log.is_some();
        Self::new(changes.apply(before), Place::Resumed(folder), comparison, !new_log, host)
    }

    /// `comparison`: data that have to be those of the run's earlier part. `same_log`: the log is that of the run's earlier part.
    fn new(
        spec: RunSpec,
        place: Place,
        comparison: DataComparison,
        same_log: bool,
        host: &Host,
    ) -> Result<Self, RunError> {
        spec.check()?;
        check_folder(&spec, place)?;
        let processes = &host.processes;
        let beginning = Beginning::new(&spec, place, processes)?;
        let layout = &spec.layout.layout;
        let ranks = layout.grid.ranks();
        processes.check_ranks(ranks)?;
        let hyper = spec.optimizer.hyper(spec.steps)?;
        check_unfinished(place, beginning.start.steps_done(), spec.steps)?;
        let program = beginning.start.program(&spec.model, layout)?;
        let threads = processes.threads(spec.threads, ranks)?;
        resources::check(&program, threads, processes, &spec.states, beside(&spec, place, &program)?)?;
        check_paths(&spec, place)?;
        let source = open_data(&spec, &beginning, comparison, host)?;
        let (tune_matmuls, matmuls, recorder) = tuning(&spec, &program, threads)?;
        let about = about(&spec, &beginning.start, host, hyper, &source)?;
        let stop = Arc::new(AtomicBool::new(false));
        let options = TrainOptions {
            threads,
            timeout: processes::timeout(spec.timeout)?,
            start: beginning.start.clone(),
            states: spec.states.folder().map(Path::to_owned),
            collectives: processes.collectives(spec.collectives.algorithm, &spec.collectives.tiers),
            world: processes.world.clone(),
            tune_matmuls,
            matmuls,
            trace: spec.outputs.trace.is_some(),
            divergence: spec.divergence,
            loss_scale: spec.loss_scale,
            saving: saving(&spec, place, about.clone()),
            stop: Some(Arc::clone(&stop)),
            ..TrainOptions::new(spec.steps, hyper, spec.seed)
        };
        let outputs = if processes.is_first() {
            Outputs::open(&spec.outputs, about.step, same_log.then_some(about.step))?
        } else {
            Outputs::default()
        };
        let processes = processes.clone();
        let signals = None;
        let mut prepared =
            Self { program, spec, beginning, source, options, about, outputs, recorder, processes, stop, signals };
        prepared.describe(place, &host.command)?;
        Ok(prepared)
    }

    /// Writes what the run is, and what belongs to it, into its folder, and opens its records, to which steps are added.
    fn describe(&mut self, place: Place, command: &[String]) -> Result<(), RunError> {
        let (Some(folder), Some(path)) = (&self.beginning.folder, place.path()) else { return Ok(()) };
        companions::keep(&self.spec, &self.beginning.start, self.source.about(), path)?;
        let steps = Some(self.spec.steps);
        let threads = Some(self.options.threads);
        let floor = self.floor();
        let known = Known { steps, threads, floor, kept: self.program.kept.clone() };
        let layout = &self.program.layout;
        let description =
            Description::new(self.spec.clone(), command.to_vec(), layout, &predict(&self.program), known)?;
        let mut records = folder.begin(&description, self.about.step)?;
        if self.spec.checkpoints.on_failure == OnSaveFailure::Continue {
            records.wait_for_space();
        }
        if let Place::Resumed(_) = place {
            let resumed = Event::resumed(self.about.step, &self.program.layout.grid.to_string());
            records.event(&resumed).map_err(unwritten)?;
        }
        self.outputs.records = Some(records);
        Ok(())
    }

    /// Ends the run in good order after the step that it is at, with a checkpoint where it writes them, when the system asks
    /// this process to end or somebody presses Ctrl-C; a second time the process ends at once.
    ///
    /// # Errors
    /// The system's.
    pub fn stop_on_signals(&mut self) -> Result<(), RunError> {
        let signals = Signals::watch()?;
        self.options.stop = Some(Arc::clone(&signals.stop));
        self.stop = Arc::clone(&signals.stop);
        self.signals = Some(signals);
        Ok(())
    }

    /// What decides the run.
    pub fn spec(&self) -> &RunSpec {
        &self.spec
    }

    /// What its ranks compute on; `None`: the processor.
    pub fn device(&self) -> Option<String> {
        // A device that cannot be opened has been told of when its memory was asked for.
        self.processes.device.name().ok().flatten()
    }

    /// What it reads.
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// The checkpoint that it begins with, if it begins with one.
    pub fn checkpoint(&self) -> Option<&Checkpoint> {
        self.beginning.checkpoint()
    }

    /// Steps that are done.
    pub fn done(&self) -> u64 {
        self.about.step
    }

    /// The least mean loss that a model can reach on the data, where that is known.
    pub fn floor(&self) -> Option<f64> {
        self.source.floor().map(|(floor, _)| floor)
    }
}

/// What the run reads, opened; of a run that goes on it is what it has read.
fn open_data(
    spec: &RunSpec,
    beginning: &Beginning,
    comparison: DataComparison,
    host: &Host,
) -> Result<Source, RunError> {
    let checkpoint = beginning.checkpoint();
    let seq_len = spec.layout.layout.seq_len;
    let open = || Source::open(&spec.data, checkpoint, &spec.model, spec.seed, seq_len, host.on_preparation);
    let source = host.processes.first_then_others(open)?;
    if let Start::Resumed(checkpoint) = &beginning.start {
        same_data::check(checkpoint, source.about(), comparison)?;
    }
    Ok(source)
}

/// Whether products are timed, the choices of an earlier run, and where new ones are to be written.
fn tuning(
    spec: &RunSpec,
    program: &StepProgram,
    threads: usize,
) -> Result<(bool, Option<MatmulChoices>, Option<Recorder>), RunError> {
    let choices = match Tuning::open(&spec.tuning, program.layout.dtype, threads)? {
        Tuning::Off => return Ok((false, None, None)),
        Tuning::Measure(recorder) => return Ok((true, None, recorder)),
        Tuning::Replay(choices) => choices,
    };
    if let Some(Product { storage, m, n, k }) = choices.missing(program) {
        return Err(Refusal::new(format!(
            "the tuning file knows nothing of the product {storage:?} {m}x{n}x{k}: it is of another model, layout or batch; \
             name another file"
        ))
        .into());
    }
    Ok((false, Some(choices), None))
}

/// Bytes that a run takes beside its step: copies of the state while it is written, whole tensors with masks if it is pruned,
/// and evaluation's own values.
fn beside(spec: &RunSpec, place: Place, program: &StepProgram) -> Result<u64, RunError> {
    let element = program.layout.dtype.real().bytes();
    let masks = program.model.all_parameters().filter(|parameter| program.kept.contains_key(&parameter.name()));
    let written = 3 * program.model.parameters() + masks.map(|mask| mask.elements()).sum::<u64>();
    let state = if place.path().is_some() { written * element } else { 0 };
    match spec.data.held_out {
        HeldOut::Nothing => Ok(state),
        HeldOut::Share(_) | HeldOut::Files(_) => Ok(state + resources::beside_training(program)?),
    }
}

/// Refuses a run that has nothing left to do. One that was killed after its last step has its end before it.
fn check_unfinished(place: Place, done: u64, steps: u64) -> Result<(), RunError> {
    let finished = match place {
        Place::Resumed(folder) if done == steps && done > 0 => has_ended(folder, steps)?,
        _ => done >= steps,
    };
    if finished {
        let of = if done > steps { ", more than" } else { " of" };
        let rule = format!("the run has done {done} steps{of} {steps}; ask for more with ");
        Err(Refusal::new(rule).name(Setting::Steps).into())
    } else {
        Ok(())
    }
}

/// Refuses checkpoints that have no place.
fn check_folder(spec: &RunSpec, place: Place) -> Result<(), Refusal> {
    match (spec.checkpoints.every, place) {
        (Some(_), Place::Nowhere) => Err(Refusal::of(Setting::CheckpointEvery)
            .text(": checkpoints are written into a run's folder; name it with ")
            .name(Setting::Out)),
        _ => Ok(()),
    }
}

/// What checkpoints say of the run, as it is when it begins or goes on.
fn about(spec: &RunSpec, start: &Start, host: &Host, hyper: Hyper, source: &Source) -> Result<About, RunError> {
    let (step, samples, tokens) = match start {
        Start::Resumed(checkpoint) => {
            let about = checkpoint.about();
            (about.step, about.samples, about.tokens)
        }
        Start::Drawn | Start::Values(_) => (0, 0, 0),
    };
    let hugging_face = match start {
        Start::Values(checkpoint) => companions::origin(checkpoint, source.about())?,
        Start::Resumed(checkpoint) => checkpoint.about().hugging_face.clone(),
        Start::Drawn => None,
    };
    let layout = spec.layout.layout.clone();
    Ok(About {
        model: spec.model.clone(),
        dtype: layout.dtype.real(),
        layout,
        step,
        samples,
        tokens,
        seed: spec.seed,
        hyper: to_value(hyper).map_err(RunError::Document)?,
        data: source.about().clone(),
        run: to_value(ProgramRun::new(&host.command)).map_err(RunError::Document)?,
        hugging_face,
    })
}

fn saving(spec: &RunSpec, place: Place, about: About) -> Option<Saving> {
    let folder = checkpoints(place.path()?).path().to_owned();
    let CheckpointSpec { every, keep, on_failure } = spec.checkpoints;
    Some(Saving { folder, every, keep, on_failure, about })
}

/// Refuses to write over what is read or what the run's folder keeps, or two files into one.
fn check_paths(spec: &RunSpec, place: Place) -> Result<(), Refusal> {
    if let Some(folder) = spec.states.folder().filter(|folder| !folder.is_dir()) {
        let rule = format!(": {} is no folder that is there; name another one", folder.display());
        return Err(Refusal::of(Setting::States).text(rule));
    }
    let log = spec.outputs.log.iter().map(|path| (Setting::Log, path.as_path()));
    let trace = spec.outputs.trace.iter().map(|path| (Setting::Trace, path.as_path()));
    let tuning = match &spec.tuning {
        TuningSpec::File(path) => Some((Setting::Tuning, path.as_path())),
        TuningSpec::Off | TuningSpec::Measure => None,
    };
    let data = spec.data.paths.iter().map(|data| (Setting::Data, data.path.as_path()));
    let held_out = spec.data.held_out_files().iter().map(|data| (Setting::HeldOutFiles, data.path.as_path()));
    // A change of layout reads it again. A preset's name is no file.
    let cluster = Some(Path::new(&spec.layout.cluster)).filter(|path| path.is_file());
    let cluster = cluster.map(|path| (Setting::Cluster, path));
    let own: Vec<_> = place.path().into_iter().flat_map(|folder| FILES.map(|name| folder.join(name))).collect();
    let of = if matches!(place, Place::Resumed(_)) { Setting::Resume } else { Setting::Out };
    let own = own.iter().map(|path| (of, path.as_path()));
    let written: Vec<_> = log.chain(trace).chain(tuning).collect();
    match written_over(&written, &data.chain(held_out).chain(cluster).chain(own).collect::<Vec<_>>()) {
        None => Ok(()),
        Some([(name, path), (of, other)]) => Err(Refusal::of(name)
            .text(format!(" {} would be written over or into ", path.display()))
            .name(of)
            .text(format!(" {}; name another file", other.display()))),
    }
}
