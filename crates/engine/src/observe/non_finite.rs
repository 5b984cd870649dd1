//! The search for the first number that is not finite.
//!
//! A gradient that is not finite is never applied. So the passes can be run again from the same state, this time looking at
//! everything that operations write: healthy steps pay nothing.

use quadrille_step::schedule::{Action, Pass};
use quadrille_step::{Layer, Op, Operation, ValueId};
use quadrille_tensor::Element;

use crate::backend::View;
use crate::interpreter::Interpreter;
use crate::{Backend, BatchSource, EngineError, RankEngine};

/// The first number on a rank that is not finite: where it came from, with a number that grows in the order in which numbers
/// flow from one operation to the next.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    found: Option<(u64, String)>,
}

impl<B: Backend> RankEngine<'_, B> {
    /// Runs the passes of the last step again, whose gradient was not applied; returns the rank, layer and operation that was
    /// the first to write a number that is not finite, equal on all ranks.
    pub(crate) fn first_non_finite(&mut self, batch: &BatchSource) -> Result<String, EngineError> {
        let Self { interpreter, pipeline, .. } = self;
        interpreter.settle()?;
        // Ranks agree before the passes, which need all of them.
        if let Some(parameter) = interpreter.communicators.first_text(non_finite_parameter(interpreter)?)? {
            return Ok(parameter);
        }
        interpreter.observers.scan = Some(Scan::default());
        pipeline.run_passes(interpreter, batch)?;
        let scan = interpreter.observers.scan.take().unwrap_or_default();
        interpreter.observers.times.take_breakdown();
        let summed = || "sums of gradients over ranks; every single number was finite".to_owned();
        Ok(interpreter.communicators.first_text(scan.found)?.unwrap_or_else(summed))
    }
}

fn non_finite_parameter<B: Backend>(interpreter: &Interpreter<'_, B>) -> Result<Option<(u64, String)>, EngineError> {
    for parameter in &interpreter.rank.program.parameters {
        if !is_finite(interpreter, parameter.value)? {
            let text = format!("the parameter {}, before the step", parameter.name);
            return Ok(Some((0, text)));
        }
    }
    Ok(None)
}

fn is_finite<B: Backend>(interpreter: &Interpreter<'_, B>, value: ValueId) -> Result<bool, EngineError> {
    let Interpreter { rank, backend, step, .. } = interpreter;
    // Queues of experts have as many rows as tokens choose.
    let valid = match step.queues_of(value) {
        Some(_) => step.local_elements(value),
        None => rank.valid_elements(value),
    };
    let elements = interpreter.read(value)?.part(0..valid);
    backend.download(elements, |numbers| numbers.iter().all(|number| number.to_f64().is_finite()))
}

/// Checks what an operation has written, while a scan runs and nothing was found yet.
pub(crate) fn look<B: Backend>(
    interpreter: &mut Interpreter<'_, B>,
    op: &Op,
    index: usize,
    action: Option<Action>,
) -> Result<(), EngineError> {
    let (Some(Scan { found: None }), Some(action)) = (&interpreter.observers.scan, action) else { return Ok(()) };
    let written = match &op.operation {
        // What is in flight is checked when it lands; a rank with nothing but padding has no largest logit.
        Operation::Issue(_) | Operation::CrossEntropyMax(_) => return Ok(()),
        Operation::Wait(collective) | Operation::WaitCarried(collective) => vec![collective.output],
        operation => operation.operands().writes().to_vec(),
    };
    for value in written {
        if !is_finite(interpreter, value)? {
            let name = &interpreter.rank.value(value).name;
            let Action { microbatch, .. } = action;
            let layer = op.layer;
            let operation = op.operation.name();
            let rank = interpreter.communicators.context.rank();
            let text = format!("{layer}, operation {operation} ({name}), on rank {rank}, microbatch {microbatch}");
            let layers = interpreter.rank.program.model.layers();
            interpreter.observers.scan = Some(Scan { found: Some((order(layers, op.layer, index, action), text)) });
            break;
        }
    }
    Ok(())
}

/// Microbatches one after the other; in each the layers forward, then backward.
fn order(layers: usize, layer: Layer, index: usize, action: Action) -> u64 {
    let last = layers as u64 + 2;
    let position = match layer {
        Layer::Embedding => 0,
        Layer::Block(index) => index as u64 + 1,
        Layer::Head => last - 1,
        Layer::Step => last,
    };
    let (pass, position) = match action.pass {
        Pass::Forward => (1, position),
        Pass::Backward => (2, last - position),
        Pass::WeightGradient => (3, last - position),
    };
    ((action.microbatch as u64 * 4 + pass) << 14 | position) << 22 | index as u64
}
