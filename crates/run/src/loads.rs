//! How often experts were chosen, as runs keep it.

use quadrille_engine::loads_by_block;
use quadrille_spec::Model;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Of a block that has experts: how often each was chosen by the tokens of all ranks, those that it had no place for among them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ExpertLoads {
    /// The block.
    pub block: usize,
    /// By expert.
    pub chosen: Vec<u64>,
}

impl ExpertLoads {
    /// From those of all blocks, one behind the other; none of a model without experts.
    pub fn of(model: &Model, chosen: &[u64]) -> Vec<Self> {
        let blocks = loads_by_block(model, chosen).into_iter();
        blocks.map(|(block, chosen)| Self { block, chosen: chosen.to_vec() }).collect()
    }
}
