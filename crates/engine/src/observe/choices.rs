//! Experts that tokens have chosen, for comparison with another model's.

use quadrille_step::{ChunkProgram, Layer, Operation, ValueId};
use quadrille_tensor::{Element, Stored};
use serde::{Deserialize, Serialize};

use crate::interpreter::Interpreter;
use crate::{Backend, EngineError};

/// The experts that a token has chosen in a block.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chosen {
    /// The block.
    pub block: usize,
    /// The token, by number in the global batch.
    pub token: usize,
    /// The experts, in the order of choice.
    pub experts: Vec<usize>,
}

/// Records the choices of a forward pass that lie in `routes`, if choices are recorded; padding has none.
pub(crate) fn record_choices<B: Backend>(
    interpreter: &mut Interpreter<'_, B>,
    routes: ValueId,
) -> Result<(), EngineError> {
    if interpreter.observers.choices.is_none() {
        return Ok(());
    }
    let Interpreter { rank, backend, step, .. } = &*interpreter;
    let operations = rank.program.chunks.iter().flat_map(ChunkProgram::sections).flat_map(|section| &section.ops);
    let layer = operations.filter(|op| matches!(op.operation, Operation::Route(route) if route.output == routes));
    let Some(Layer::Block(block)) = layer.map(|op| op.layer).next() else { return Ok(()) };
    let rows = step.rows_of(routes);
    let cols = rank.value(routes).local_cols;
    let chosen: Vec<Chosen> = backend.download(interpreter.read(routes)?, |routes| {
        let experts = |row: &[B::Real]| row[..cols / 3].iter().map(|id| id.to_f64() as usize).collect();
        let tokens = routes.chunks_exact(cols).enumerate().filter(|(_, ids)| ids[0] >= B::Real::ZERO);
        let rows = tokens.map(|(row, ids)| (rows.logical(row), experts(ids)));
        rows.map(|(token, experts)| Chosen { block, token, experts }).collect()
    })?;
    interpreter.observers.choices.iter_mut().for_each(|choices| choices.extend_from_slice(&chosen));
    Ok(())
}
