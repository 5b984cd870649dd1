//! Checkpoints of a run, written behind training.
//!
//! Each rank copies its tiles between two steps and goes on; a thread of its own writes them. After every step ranks
//! agree on how far all are: once all files are on disk, a thread of the first rank commits the checkpoint. These
//! agreements are the only communication; they lie between steps and are not part of a step's ledger.

use std::borrow::Cow;
use std::error::Error;
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::thread::{JoinHandle, spawn};

use quadrille_checkpoint::{About, CheckpointError, Draft, Folder, TensorShape};
use quadrille_step::StepProgram;
use serde::{Deserialize, Serialize};

use super::loop_state::LoopState;
use crate::{Backend, EngineError, RankEngine, tensor_shapes, writers};

/// What a run does when a checkpoint cannot be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnSaveFailure {
    /// It ends with an error, after the step that it is at.
    #[default]
    Stop,
    /// It goes on, and tries again when the next checkpoint is due.
    Continue,
}

/// Where and when a run writes checkpoints.
#[derive(Debug, Clone)]
pub struct Saving {
    /// The folder of the run's checkpoints.
    pub folder: PathBuf,
    /// Steps between two of them; `None`: only at the end, and when the run is asked to stop.
    pub every: Option<u64>,
    /// How many are kept.
    pub keep: usize,
    /// What happens if one cannot be written.
    pub on_failure: OnSaveFailure,
    /// What they say of the run; step, samples and tokens are those of its beginning.
    pub about: About,
}

/// What became of a checkpoint.
#[derive(Debug)]
pub(crate) enum Saved {
    /// It is complete; why older ones could not be removed, if so, on the first rank.
    Done(u64, Option<String>),
    /// It is not, for this reason, and the run is to go on.
    Failed(u64, String),
}

/// What a rank has done for a checkpoint.
enum Part {
    /// Its tiles are written.
    Tiles(Draft),
    /// Nothing more is to be done; older checkpoints that could not be removed.
    Rest(Option<String>),
}

type Written = Result<Part, CheckpointError>;

/// A checkpoint that is being written.
struct UnderWay {
    step: u64,
    /// What this rank does for it, until it is done.
    task: Option<JoinHandle<Written>>,
    /// What came of it.
    result: Option<Written>,
    /// What it is to say.
    about: About,
}

/// What ranks tell each other; the largest counts.
const DONE: f64 = 0.0;
const BUSY: f64 = 1.0;
const FAILED: f64 = 2.0;

/// The checkpoints of a rank.
pub(crate) struct Saver<'a> {
    saving: &'a Saving,
    shapes: Vec<TensorShape>,
    writers: Vec<usize>,
    /// Whether some of them may have nothing to write.
    is_pruned: bool,
    /// Samples and tokens of a step.
    per_step: [u64; 2],
    under_way: Option<UnderWay>,
    /// The last step of which a checkpoint was begun.
    begun: u64,
}

impl<'a> Saver<'a> {
    pub fn new(program: &StepProgram, saving: &'a Saving) -> Self {
        let per_step = [program.layout.global_batch as u64, program.layout.tokens_per_step() as u64];
        let shapes = tensor_shapes(program);
        let writers = writers(program);
        let is_pruned = !program.kept.is_empty();
        Self { saving, shapes, writers, is_pruned, per_step, under_way: None, begun: saving.about.step }
    }

    /// Whether a checkpoint is due after a step: every so many, and at the end.
    pub fn is_due(&self, step: u64, last: bool) -> bool {
        self.begun < step && (last || self.saving.every.is_some_and(|every| step.is_multiple_of(every)))
    }

    /// Whether a checkpoint is not complete yet.
    pub fn is_under_way(&self) -> bool {
        self.under_way.is_some()
    }

    /// Copies this rank's tiles and begins to write them. No other checkpoint may be under way.
    pub fn begin<B: Backend>(
        &mut self,
        engine: &mut RankEngine<B>,
        step: u64,
        state: &LoopState,
    ) -> Result<(), EngineError> {
        let tiles = engine.own_tiles()?;
        let rank = engine.interpreter.communicators.context.rank();
        let folder = self.saving.folder.clone();
        let task = spawn(move || {
            let draft = Draft::begin(&folder, step)?;
            let tiles: Vec<_> = tiles.into_iter().map(|(tile, numbers)| (tile, Cow::Owned(numbers))).collect();
            draft.write::<B::Real>(rank, &tiles)?;
            Ok(Part::Tiles(draft))
        });
        let about = self.about(step, state, engine.interpreter.optimizer.updates);
        self.under_way = Some(UnderWay { step, task: Some(task), result: None, about });
        self.begun = step;
        Ok(())
    }

    /// How far this rank is, to agree on.
    pub fn state(&mut self) -> f64 {
        self.look(false)
    }

    /// Takes in what this rank's thread has done, if it has ended, or once it has.
    fn look(&mut self, wait: bool) -> f64 {
        let Some(UnderWay { task, result, .. }) = &mut self.under_way else { return DONE };
        if let Some(task) = task.take_if(|task| wait || task.is_finished()) {
            *result = Some(task.join().unwrap_or_else(|panic| resume_unwind(panic)));
        }
        match result {
            None => BUSY,
            Some(Ok(_)) => DONE,
            Some(Err(_)) => FAILED,
        }
    }

    /// Goes on once ranks have agreed on their states.
    pub fn go_on<B: Backend>(&mut self, engine: &RankEngine<B>, agreed: f64) -> Result<Option<Saved>, EngineError> {
        if agreed == BUSY {
            return Ok(None);
        }
        if agreed == FAILED {
            return self.give_up(engine);
        }
        let Some(at) = self.under_way.take() else { return Ok(None) };
        let UnderWay { step, result, about, .. } = at;
        let (task, result) = match result {
            Some(Ok(Part::Rest(unremoved))) => return Ok(Some(Saved::Done(step, unremoved))),
            Some(Ok(Part::Tiles(draft))) if engine.interpreter.communicators.context.rank() == 0 => {
                (Some(self.commit(draft, about.clone())), None)
            }
            _ => (None, Some(Ok(Part::Rest(None)))),
        };
        self.under_way = Some(UnderWay { step, task, result, about });
        Ok(None)
    }

    /// Description of the run in a checkpoint of this step, after so many updates.
    fn about(&self, step: u64, state: &LoopState, updates: u64) -> About {
        let mut about = self.saving.about.clone();
        let steps = step - about.step;
        about.step = step;
        about.samples += steps * self.per_step[0];
        about.tokens += steps * self.per_step[1];
        state.write(&mut about.run, updates);
        about
    }

    /// Makes the checkpoint complete, and removes what is not kept.
    fn commit(&self, draft: Draft, about: About) -> JoinHandle<Written> {
        let shapes = self.shapes.clone();
        let writers = self.writers.clone();
        let is_pruned = self.is_pruned;
        let folder = Folder::new(&self.saving.folder);
        let keep = self.saving.keep;
        spawn(move || {
            // Who has kept elements to write, masks say.
            let writers = if is_pruned { draft.written(&writers) } else { writers };
            draft.commit(&about, &shapes, &writers)?;
            // The checkpoint is complete, whatever becomes of older ones.
            Ok(Part::Rest(folder.prune(keep).err().map(|error| with_causes(&error))))
        })
    }

    /// Leaves nothing of a checkpoint that a rank could not write; all ranks tell the same reason.
    fn give_up<B: Backend>(&mut self, engine: &RankEngine<B>) -> Result<Option<Saved>, EngineError> {
        self.look(true);
        let Some(UnderWay { step, result, .. }) = self.under_way.take() else { return Ok(None) };
        let mut draft = None;
        let mut reason = None;
        match result {
            Some(Ok(Part::Tiles(written))) => draft = Some(written),
            Some(Ok(Part::Rest(_))) | None => {}
            Some(Err(error)) => reason = Some((0, with_causes(&error))),
        }
        // From here on no rank writes any more.
        let reason = engine.interpreter.communicators.first_text(reason)?.unwrap_or_default();
        if engine.interpreter.communicators.context.rank() == 0 {
            let draft = draft.map_or_else(|| Draft::begin(&self.saving.folder, step), Ok);
            // The disk may refuse this as well; what is left is no checkpoint, and the next run removes it.
            let _ = draft.and_then(Draft::discard);
        }
        match self.saving.on_failure {
            OnSaveFailure::Stop => Err(EngineError::Checkpoint { step, reason }),
            OnSaveFailure::Continue => Ok(Some(Saved::Failed(step, reason))),
        }
    }
}

/// An error with what caused it.
fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text += &format!(": {error}");
        cause = error.source();
    }
    text
}
