//! The training loop of one rank: steps, records, checkpoints, and the comparison of the two ledgers.

use std::sync::atomic::Ordering;
use std::thread::sleep;
use std::time::{Duration, Instant};

use quadrille_comm::RankContext;
use quadrille_step::{Layer, StepProgram};

use super::loop_state::LoopState;
use super::run_counts::RunCounts;
use super::saving::{Saved, Saver};
use crate::{
    Backend, BatchSource, EngineError, Evaluator, InitialValues, MOST_SKIPPED, OnDivergence, Predictions, RankEngine,
    RankReport, RankTrace, Restore, RunEvent, Start, StepOutcome, StepRecord, TrainOptions, Validation,
};

/// Receives a rank's events.
type Tell<'a> = dyn FnMut(RunEvent) -> Result<(), EngineError> + 'a;

/// Trains as the rank of `context`.
pub(crate) fn run<B: Backend>(
    program: &StepProgram,
    options: &TrainOptions,
    batch: &BatchSource,
    validation: Option<&Validation>,
    context: &RankContext,
    predicted: &Predictions<'_>,
    tell: &mut Tell,
) -> Result<RankReport, EngineError> {
    let engine = prepare::<B>(program, options, context)?;
    let evaluator = validation.map(|validation| engine.evaluator(validation.program)).transpose()?;
    let mut run = RankRun {
        engine,
        validation: validation.zip(evaluator),
        options,
        state: LoopState::of(options),
        skipped: 0,
        saver: options.saving.as_ref().map(|saving| Saver::new(program, saving)),
        tell,
    };
    let mut counts = RunCounts::new(predicted, context.rank());
    let mut trace = None;
    let mut memory = None;
    let first = options.start.steps_done() + 1;
    let tokens = program.layout.tokens_per_step() as u64;
    for step in first..=options.steps {
        if options.trace && step == options.steps {
            run.engine.record_spans(true);
        }
        let start = Instant::now();
        let StepResult { outcome, spike, loss_scale, overflow } = run.step(batch)?;
        let seconds = start.elapsed().as_secs_f64();
        counts.add(&mut run.engine, &outcome, seconds, step == first);
        if step == first {
            // All ranks are there: none goes on before they agree.
            memory = run.engine.interpreter.backend.memory()?;
        }
        if options.trace && step == options.steps {
            trace = Some(RankTrace::new(run.engine.take_spans(), context.take_spans()));
            run.engine.record_spans(false);
        }
        let record = StepRecord {
            step,
            loss: outcome.loss,
            grad_norm: outcome.gradient_norm,
            router: outcome.router,
            lr: outcome.learning_rate,
            tokens: options.start.tokens() + (step + 1 - first) * tokens,
            seconds,
            tokens_per_second: tokens as f64 / seconds,
            applied: outcome.applied,
            repeated: outcome.repeated,
            spike,
            loss_scale,
            overflow,
        };
        counts.records.push(record);
        (run.tell)(RunEvent::Step(&record))?;
        if !outcome.applied {
            run.reject(&record, batch)?;
            run.check_skipped(&record)?;
        }
        let stops = run.is_stopped()?;
        let last = stops || step == options.steps;
        // What is saved does not wait for the validation, nor is it lost by one that fails.
        run.save(step, last)?;
        if last {
            run.complete()?;
        }
        // Validation sets aside what belongs to the next step: nothing of what ranks agreed by does.
        run.engine.forget_transfers();
        if !stops {
            run.validate(step, last)?;
        }
        if stops {
            (run.tell)(RunEvent::Stopped(step))?;
            break;
        }
        run.engine.forget_transfers();
    }
    if first > options.steps {
        run.validate(options.steps, true)?;
    }
    let mut report = counts.report(trace, run.engine.interpreter.products.clone(), memory);
    report.device_graphs = run.engine.interpreter.backend.graphs();
    Ok(report)
}

/// The rank with everything that it starts from.
fn prepare<'a, B: Backend>(
    program: &'a StepProgram,
    options: &TrainOptions,
    context: &'a RankContext,
) -> Result<RankEngine<'a, B>, EngineError> {
    let TrainOptions { threads, hyper, seed, .. } = *options;
    let initial = InitialValues::Training;
    let states = options.states.as_deref();
    let mut engine = RankEngine::<B>::with_states_in(program, context, threads, hyper, seed, initial, states)?;
    match &options.start {
        Start::Drawn => {}
        Start::Values(checkpoint) => engine.load(checkpoint, Restore::Values)?,
        Start::Resumed(checkpoint) => engine.load(checkpoint, Restore::Everything)?,
    }
    if let Some(choices) = &options.matmuls {
        engine.use_matmuls(choices.clone())?;
    } else if options.tune_matmuls {
        engine.tune_matmuls()?;
    }
    Ok(engine)
}

/// A step that was done, beside those before it.
struct StepResult {
    outcome: StepOutcome,
    /// Whether its loss stands out.
    spike: bool,
    /// By what its gradients were multiplied, if they were.
    loss_scale: Option<u32>,
    /// Whether it is skipped because they left their range by that.
    overflow: bool,
}

struct RankRun<'a, B: Backend> {
    engine: RankEngine<'a, B>,
    options: &'a TrainOptions,
    validation: Option<(&'a Validation<'a>, Evaluator<'a, B>)>,
    state: LoopState,
    /// Steps in a row whose gradient was not applied, up to the last step of this process.
    skipped: u64,
    saver: Option<Saver<'a>>,
    tell: &'a mut Tell<'a>,
}

impl<B: Backend> RankRun<'_, B> {
    /// One step; what follows from it for the next ones is noted.
    fn step(&mut self, batch: &BatchSource) -> Result<StepResult, EngineError> {
        let LoopState { losses, scaler } = &mut self.state;
        self.engine.interpreter.optimizer.loss_limit = losses.limit(self.options.divergence);
        self.engine.set_loss_scale(scaler.scale());
        let outcome = self.engine.step(batch)?;
        let spike = losses.is_spike(outcome.loss);
        let loss_scale = scaler.shown();
        self.skipped = if outcome.applied { 0 } else { self.skipped + 1 };
        if outcome.applied {
            losses.push(outcome.loss);
        }
        Ok(StepResult { outcome, spike, loss_scale, overflow: scaler.see(&outcome) })
    }

    /// Says where a loss or gradient that cannot be used came from, and stops if that is asked for; not before the
    /// checkpoint of an earlier step is complete. A scale that was too large is no failure.
    fn reject(&mut self, record: &StepRecord, batch: &BatchSource) -> Result<(), EngineError> {
        let StepRecord { step, loss, grad_norm, .. } = *record;
        if let Some(scale) = record.loss_scale.filter(|_| record.overflow) {
            let next = self.state.scaler.scale();
            let reason = format!("its gradient is not finite at the loss scale {scale}, which is {next} from here on");
            return (self.tell)(RunEvent::Skipped { step, reason });
        }
        let (quantity, value) =
            if loss.is_finite() && !grad_norm.is_finite() { ("gradient norm", grad_norm) } else { ("loss", loss) };
        let origin = if value.is_finite() {
            format!(
                "the largest that is applied, from the losses before, is {:.4}",
                self.engine.interpreter.optimizer.loss_limit
            )
        } else {
            format!("the first number that is not finite is in {}", self.engine.first_non_finite(batch)?)
        };
        let origin = match record.loss_scale {
            Some(scale) if loss.is_finite() && !grad_norm.is_finite() => {
                format!("{origin}; gradients were multiplied by {scale}: {}", self.state.scaler.remedy())
            }
            _ => origin,
        };
        match self.options.divergence.action {
            OnDivergence::Stop => {
                self.complete()?;
                let reason = format!("its {quantity} is {value}; {origin}");
                (self.tell)(RunEvent::Diverged { step, reason })?;
                self.engine.interpreter.communicators.enter(Layer::Step, "look at the loss")?;
                Err(EngineError::Diverged { step, quantity, value, origin })
            }
            OnDivergence::Skip => {
                (self.tell)(RunEvent::Skipped { step, reason: format!("its {quantity} is {value}; {origin}") })
            }
        }
    }

    /// Ends a run that skips one step after the other: with an error, after the checkpoint of an earlier step is
    /// complete.
    fn check_skipped(&mut self, record: &StepRecord) -> Result<(), EngineError> {
        if self.skipped < MOST_SKIPPED {
            return Ok(());
        }
        let StepRecord { step, loss, grad_norm, loss_scale, .. } = *record;
        let at = loss_scale.map_or(String::new(), |scale| format!(" at the loss scale {scale}"));
        let cause = match (loss.is_finite(), grad_norm.is_finite()) {
            (true, false) => format!("gradient norm is {grad_norm}{at}; {}", self.state.scaler.remedy()),
            (true, true) => format!("loss is {loss:.4}{at}; lower the learning rate, or raise `run.largest_loss`"),
            (false, _) if loss_scale.is_some() => {
                format!("loss is {loss}{at}; lower the learning rate, or use `layout.dtype` bf16 or f32")
            }
            (false, _) => format!("loss is {loss}; lower the learning rate, or go on from an earlier checkpoint"),
        };
        self.complete()?;
        let reason = format!("it is one of {MOST_SKIPPED} in a row that were skipped; its {cause}");
        (self.tell)(RunEvent::Diverged { step, reason })?;
        self.engine.interpreter.communicators.enter(Layer::Step, "look at skipped steps")?;
        Err(EngineError::NothingApplied { step, cause })
    }

    /// Whether somebody wants the run to end; all ranks agree.
    fn is_stopped(&self) -> Result<bool, EngineError> {
        let Some(stop) = &self.options.stop else { return Ok(false) };
        let asked = if stop.load(Ordering::Relaxed) { 1.0 } else { 0.0 };
        Ok(self.engine.interpreter.communicators.largest_of_all(vec![asked])?[0] > 0.0)
    }

    /// The loss over the validation samples, if it is due.
    fn validate(&mut self, step: u64, last: bool) -> Result<(), EngineError> {
        match &mut self.validation {
            Some((validation, evaluator)) if last || step.is_multiple_of(validation.every) => {
                let evaluation = self.engine.evaluate(evaluator, validation.samples, validation.batch)?;
                (self.tell)(RunEvent::Validated(step, evaluation))
            }
            _ => Ok(()),
        }
    }

    /// Goes on with the checkpoint that is under way, and begins the one that is due.
    fn save(&mut self, step: u64, last: bool) -> Result<(), EngineError> {
        let Some(saver) = &mut self.saver else { return Ok(()) };
        if saver.is_under_way() {
            let agreed = self.engine.interpreter.communicators.largest_of_all(vec![saver.state()])?[0];
            let saved = saver.go_on(&self.engine, agreed)?;
            tell_saved(self.tell, saved)?;
        }
        if saver.is_due(step, last) {
            complete(saver, &self.engine, self.tell)?;
            saver.begin(&mut self.engine, step, &self.state)?;
        }
        Ok(())
    }

    /// Waits for the checkpoint that is under way.
    fn complete(&mut self) -> Result<(), EngineError> {
        self.saver.as_mut().map_or(Ok(()), |saver| complete(saver, &self.engine, self.tell))
    }
}

/// Waits until no checkpoint is under way: in short pieces, since a rank that waits long in a collective is taken for
/// lost.
fn complete<B: Backend>(saver: &mut Saver, engine: &RankEngine<B>, tell: &mut Tell) -> Result<(), EngineError> {
    let mut pause = Duration::from_micros(100);
    while saver.is_under_way() {
        sleep(pause);
        pause = (2 * pause).min(Duration::from_millis(100));
        let agreed = engine.interpreter.communicators.largest_of_all(vec![saver.state()])?[0];
        tell_saved(tell, saver.go_on(engine, agreed)?)?;
    }
    Ok(())
}

fn tell_saved(tell: &mut Tell, saved: Option<Saved>) -> Result<(), EngineError> {
    match saved {
        None => Ok(()),
        Some(Saved::Done(step, unremoved)) => tell(RunEvent::Saved { step, unremoved }),
        Some(Saved::Failed(step, reason)) => tell(RunEvent::NotSaved { step, reason }),
    }
}
