//! Losses and loads of routers of experts in a step.

use quadrille_spec::{Model, fullest_rank};
use quadrille_step::StepProgram;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Totals;

/// What routers of experts have done in a step: losses, which are minimised too, are means over its tokens, summed over blocks.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Routed {
    /// Of unequal loads.
    #[serde(with = "crate::training::not_finite")]
    #[schemars(with = "Option<f64>")]
    pub balance: f64,
    /// Of large logits.
    #[serde(with = "crate::training::not_finite")]
    #[schemars(with = "Option<f64>")]
    pub z: f64,
    /// The part of all choices that found no place.
    pub dropped: f64,
    /// The largest load: how many times as often as the mean of its block an expert was chosen.
    pub most: f64,
    /// Block and number of that expert.
    pub most_at: [usize; 2],
    /// Experts of all blocks that no token has chosen.
    pub idle: usize,
    /// The load of the ranks that have the most loaded experts of a block, as a multiple of the mean, and of that the mean over
    /// blocks.
    pub imbalance: f64,
}

impl Routed {
    /// From the totals of all ranks, how often each expert of all blocks was chosen, and the step's tokens.
    pub(crate) fn new(program: &StepProgram, totals: Totals, chosen: &[u64], tokens: f64) -> Self {
        let layout = &program.layout;
        let mean = |sum: f64| sum / tokens;
        let Totals { balance, router_z, dropped, .. } = totals;
        let choices: u64 = chosen.iter().sum();
        let mut routed = Self {
            balance: mean(balance),
            z: mean(router_z),
            dropped: dropped as f64 / choices as f64,
            most: 0.0,
            most_at: [0; 2],
            idle: chosen.iter().filter(|load| **load == 0).count(),
            imbalance: 0.0,
        };
        let blocks = loads_by_block(&program.model, chosen);
        for (block, loads) in &blocks {
            let times = relative(loads);
            for (expert, times) in times.into_iter().enumerate() {
                if times > routed.most {
                    (routed.most, routed.most_at) = (times, [*block, expert]);
                }
            }
            let ranks = layout.grid.size_of(layout.experts_over);
            routed.imbalance += fullest_rank(loads, ranks) / blocks.len() as f64;
        }
        routed
    }
}

/// As multiples of their mean.
fn relative(loads: &[u64]) -> Vec<f64> {
    let mean = loads.iter().sum::<u64>() as f64 / loads.len() as f64;
    loads.iter().map(|load| *load as f64 / mean).collect()
}

/// The loads of each block that has experts, with its number.
pub fn loads_by_block<'l>(model: &Model, chosen: &'l [u64]) -> Vec<(usize, &'l [u64])> {
    let experts = |block: usize| model.routed_experts(block)..model.routed_experts(block + 1);
    let blocks = (0..model.layers()).map(|block| (block, experts(block))).filter(|(_, experts)| !experts.is_empty());
    blocks.filter_map(|(block, experts)| Some((block, chosen.get(experts)?))).collect()
}
