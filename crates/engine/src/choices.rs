//! Which experts tokens have chosen, for those who hold them against another model's.

use quadrille_step::{ChunkProgram, Layer, Operation, ValueId};
use quadrille_tensor::{Element, Stored};
use serde::{Deserialize, Serialize};

use crate::{Backend, EngineError, RankEngine};

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

impl<B: Backend> RankEngine<'_, B> {
    /// Switches the recording of choices on or off.
    pub fn record_choices(&mut self, on: bool) {
        self.choices = on.then(Vec::new);
    }

    /// What the rank's tokens have chosen since the last call, if that is recorded.
    pub fn take_choices(&mut self) -> Vec<Chosen> {
        self.choices.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Records the choices of a forward pass that lie in `routes`; padding has none.
    pub(crate) fn note_choices(&mut self, routes: ValueId) -> Result<(), EngineError> {
        if self.choices.is_none() {
            return Ok(());
        }
        let operations = self.program.chunks.iter().flat_map(ChunkProgram::sections).flat_map(|section| &section.ops);
        let layer = operations.filter(|op| matches!(op.operation, Operation::Route(route) if route.output == routes));
        let Some(Layer::Block(block)) = layer.map(|op| op.layer).next() else { return Ok(()) };
        let rows = self.rows_of(routes);
        let cols = self.program.value(routes).local_cols;
        let chosen: Vec<Chosen> = self.backend.download(self.read(routes)?, |routes| {
            let experts = |row: &[B::Real]| row[..cols / 3].iter().map(|id| id.to_f64() as usize).collect();
            let tokens = routes.chunks_exact(cols).enumerate().filter(|(_, ids)| ids[0] >= B::Real::ZERO);
            let rows = tokens.map(|(row, ids)| (rows.logical(row), experts(ids)));
            rows.map(|(token, experts)| Chosen { block, token, experts }).collect()
        })?;
        self.choices.iter_mut().for_each(|choices| choices.extend_from_slice(&chosen));
        Ok(())
    }
}
