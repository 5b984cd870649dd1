//! Most and least work of a rank where experts drop nothing.

use quadrille_run::units::{bytes, decimal};
use quadrille_spec::{RankLedger, Routing};
use quadrille_step::{Loads, StepProgram, Verdict, predict_rank_loaded};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Work of a rank in a step with the loads of experts that are the least equal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UnequalLoads {
    /// The rank.
    pub rank: usize,
    /// Work with as many choices of its experts as there can be.
    pub most: LoadedWork,
    /// Work with as few.
    pub least: LoadedWork,
    /// True if the rank has room for the rows of the most; else the step ends.
    pub has_room_for_most: bool,
}

/// Work of a rank in a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LoadedWork {
    /// FLOPs.
    pub flops: u64,
    /// Bytes that it sends.
    pub wire_bytes: u64,
}

impl UnequalLoads {
    /// Work of a rank; `None` of a model none of whose experts gets rows as they come, or whose ranks all have all experts.
    pub fn new(program: &StepProgram, rank: usize) -> Option<Self> {
        let stage = program.of_rank(rank);
        let place = program.layout.grid.coordinate(rank);
        let routing = Routing::native(program.layout.grid.ranks());
        let work = |loads: &Loads| work(&predict_rank_loaded(program, rank, &routing, Verdict::Kept, loads));
        let most = stage.crowded(place);
        if most.is_empty() {
            return None;
        }
        let equal = work(&Loads::new());
        // These loads are of the first microbatch.
        let of_step = |loads: &Loads| {
            let one = work(loads);
            let microbatches = program.layout.microbatches() as u64;
            // Loads of others are equal ones in it.
            let all = |one: u64, equal: u64| (equal + microbatches * one).saturating_sub(microbatches * equal);
            LoadedWork { flops: all(one.flops, equal.flops), wire_bytes: all(one.wire_bytes, equal.wire_bytes) }
        };
        let has_room_for_most = stage.has_room(&most, place);
        let most = of_step(&most);
        Some(Self { rank, most, least: of_step(&stage.deserted(place)), has_room_for_most })
    }

    /// Lines behind the rank's ledger.
    pub fn text(&self) -> String {
        let [most, least] = [self.most, self.least].map(|LoadedWork { flops, wire_bytes }| {
            format!("{}, {} on the wire", decimal(flops as f64, "FLOP"), bytes(wire_bytes))
        });
        let ends = if self.has_room_for_most { "" } else { " (more rows than it has room for: the step ends)" };
        format!(
            "loads: taken to be equal; with as many choices of its experts as there can be\n  {most}{ends}; with as few {least}\n"
        )
    }
}

fn work(ledger: &RankLedger) -> LoadedWork {
    let wire_bytes = ledger.axes.values().flat_map(|kinds| kinds.values()).map(|transfer| transfer.wire_bytes).sum();
    LoadedWork { flops: ledger.flops.total(), wire_bytes }
}
