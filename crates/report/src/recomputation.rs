//! How many blocks to recompute from one kept input: the published optimum beside what the programs need.
//!
//! Letters: N blocks of the model, `k` blocks between two kept inputs, G stages.

use quadrille_run::units::bytes;
use quadrille_spec::{Axis, MemoryClass, Recompute};
use quadrille_step::{StepError, StepProgram, predict_rank};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Text, table};

/// Programs that are built at most; the `k` nearest to the optimum are looked at.
const MAX_PROGRAMS: usize = 12;

/// The memory of a rank for every `k` that divides the blocks of a piece of layers, as a document.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Recomputation {
    /// The rank whose memory it is.
    rank: usize,
    /// N.
    layers: usize,
    /// Blocks of the largest piece of layers: N / G, with chunks fewer.
    blocks: usize,
    /// Where the equation says the optimum is: the divisor of `blocks` nearest to the square root of N.
    optimum: usize,
    /// The choice with the least activations, by the programs.
    least: String,
    /// Every choice.
    choices: Vec<RecomputationChoice>,
}

/// Memory with one choice of recomputation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RecomputationChoice {
    /// `full:k`, or what the layout has.
    recompute: String,
    /// `k`; none where not whole blocks are computed again.
    every: Option<usize>,
    /// `N/k + 1 + k`, what activations are proportional to by the dissertation's equation 3.1.
    equation: Option<f64>,
    /// Activations at peak.
    activations_bytes: u64,
    /// All memory at peak.
    peak_bytes: u64,
    /// Whether it is the layout's own choice.
    chosen: bool,
}

impl Recomputation {
    /// Builds the programs, for the memory of a rank of `program`; `None` where recomputation is not asked for and pieces of a pipeline have a block each.
    ///
    /// # Errors
    /// A layout of which no program can be made.
    pub fn of(program: &StepProgram, rank: usize) -> Result<Option<Self>, StepError> {
        let layout = &program.layout;
        let blocks = layout.stage_blocks.iter().copied().max().unwrap_or(0);
        let own = match layout.recompute {
            Recompute::Full { every } => Some(every),
            Recompute::None | Recompute::Selective => None,
        };
        let pipelined = layout.grid.size(Axis::Pipe) > 1 && blocks > 1;
        if blocks == 0 || (own.is_none() && !pipelined) {
            return Ok(None);
        }
        let layers = program.model.layers();
        let mut choices = Vec::new();
        if own.is_none() {
            choices.push(RecomputationChoice::of(program, rank, true));
        }
        for every in candidates(layers, blocks, own) {
            let recomputed = program.with_recompute(Recompute::Full { every })?;
            choices.push(RecomputationChoice::of(&recomputed, rank, own == Some(every)));
        }
        let least = choices.iter().min_by_key(|choice| choice.activations_bytes);
        let least = least.map_or(String::new(), |choice| choice.recompute.clone());
        Ok(Some(Self { rank, layers, blocks, optimum: optimum(layers, blocks), least, choices }))
    }

    /// As a table.
    pub fn text(&self) -> Text {
        let rows = self.choices.iter().map(|choice| {
            let marks = [
                (choice.every == Some(self.optimum), "optimum of the equation"),
                (choice.recompute == self.least, "least activations"),
                (choice.chosen, "this layout"),
            ];
            let marks: Vec<&str> = marks.into_iter().filter(|(is, _)| *is).map(|(_, mark)| mark).collect();
            let marks = if marks.is_empty() { String::new() } else { format!(" ({})", marks.join(", ")) };
            vec![
                choice.recompute.clone() + &marks,
                choice.equation.map_or(String::new(), |value| format!("{value:.1}")),
                bytes(choice.activations_bytes),
                bytes(choice.peak_bytes),
            ]
        });
        let heading = format!(
            "recomputation from the inputs of every k-th of {} blocks, memory of rank {} at peak",
            self.blocks, self.rank
        );
        let header = ["recompute", &format!("{}/k + 1 + k", self.layers), "activations", "all"];
        Text::from("\n") + Text::heading(&heading) + table(&header, &rows.collect::<Vec<_>>())
    }
}

impl RecomputationChoice {
    fn of(program: &StepProgram, rank: usize, chosen: bool) -> Self {
        let recompute = program.layout.recompute;
        let every = match recompute {
            Recompute::Full { every } => Some(every),
            Recompute::None | Recompute::Selective => None,
        };
        let memory = predict_rank(program, rank).memory;
        Self {
            recompute: every.map_or_else(|| recompute.to_string(), |every| format!("full:{every}")),
            every,
            equation: every.map(|every| program.model.layers() as f64 / every as f64 + 1.0 + every as f64),
            activations_bytes: memory.peak_of.get(&MemoryClass::Activations).copied().unwrap_or(0),
            peak_bytes: memory.peak,
            chosen,
        }
    }
}

/// The divisors of `blocks` that are nearest to the optimum, ascending, and the layout's own `k`.
fn candidates(layers: usize, blocks: usize, own: Option<usize>) -> Vec<usize> {
    let mut candidates: Vec<usize> = (1..=blocks).filter(|every| blocks.is_multiple_of(*every)).collect();
    candidates.sort_by(|a, b| distance(layers, *a).total_cmp(&distance(layers, *b)));
    candidates.truncate(MAX_PROGRAMS - 1);
    candidates.extend(own);
    candidates.sort_unstable();
    candidates.dedup();
    candidates
}

/// The divisor of `blocks` nearest to the square root of `layers`; the smaller of two.
fn optimum(layers: usize, blocks: usize) -> usize {
    let divisors = (1..=blocks).filter(|every| blocks.is_multiple_of(*every));
    divisors.min_by(|a, b| distance(layers, *a).total_cmp(&distance(layers, *b))).unwrap_or(1)
}

fn distance(layers: usize, every: usize) -> f64 {
    ((layers as f64).sqrt() - every as f64).abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_optimum_is_a_divisor_near_the_root() {
        // 48 layers on 1, 2, 6 and 24 stages: the root is 6.9.
        let optima = [48, 24, 8, 2].map(|blocks| optimum(48, blocks));
        assert_eq!(optima, [6, 6, 8, 2]);
        assert_eq!(optimum(7, 1), 1);
    }

    #[test]
    fn few_programs_are_built_and_the_own_choice_is_among_them() {
        assert_eq!(candidates(24, 12, None), [1, 2, 3, 4, 6, 12]);
        assert_eq!(candidates(24, 12, Some(5)), [1, 2, 3, 4, 5, 6, 12]);
        // 5040 has 60 divisors.
        let many = candidates(5040, 5040, Some(5040));
        assert_eq!(many.len(), MAX_PROGRAMS);
        assert!(many.contains(&70) && many.contains(&72) && many.contains(&5040), "{many:?}");
    }
}
