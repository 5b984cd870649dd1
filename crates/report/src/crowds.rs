//! What a rank computes and sends at most and at least where experts drop nothing.

use quadrille_run::units::{bytes, decimal};
use quadrille_spec::{RankLedger, Routing};
use quadrille_step::{Loads, StepProgram, Verdict, predict_rank_loaded};
use serde_json::{Value, json};

/// What a rank does in a step with the loads that are the least equal.
pub struct Crowds {
    rank: usize,
    most: Work,
    least: Work,
    /// Whether the rank has room for the rows of the most.
    has_room: bool,
}

/// FLOPs and bytes of a step.
#[derive(Clone, Copy)]
struct Work {
    flops: u64,
    wire_bytes: u64,
}

/// Of a rank; `None` of a model none of whose experts gets rows as they come, or whose ranks all have all experts.
pub fn crowds(program: &StepProgram, rank: usize) -> Option<Crowds> {
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
        Work { flops: all(one.flops, equal.flops), wire_bytes: all(one.wire_bytes, equal.wire_bytes) }
    };
    let has_room = stage.has_room(&most, place);
    let most = of_step(&most);
    Some(Crowds { rank, most, least: of_step(&stage.deserted(place)), has_room })
}

fn work(ledger: &RankLedger) -> Work {
    let wire_bytes = ledger.axes.values().flat_map(|kinds| kinds.values()).map(|transfer| transfer.wire_bytes).sum();
    Work { flops: ledger.flops.total(), wire_bytes }
}

impl Crowds {
    /// Lines behind the rank's ledger.
    pub fn text(&self) -> String {
        let [most, least] = [self.most, self.least].map(|Work { flops, wire_bytes }| {
            format!("{}, {} on the wire", decimal(flops as f64, "FLOP"), bytes(wire_bytes))
        });
        let ends = if self.has_room { "" } else { " (more rows than it has room for: the step ends)" };
        format!(
            "loads: taken to be equal; with as many choices of its experts as there can be\n  {most}{ends}; with as few {least}\n"
        )
    }

    /// FLOPs and bytes with both loads.
    pub fn document(&self) -> Value {
        let [most, least] = [self.most, self.least]
            .map(|Work { flops, wire_bytes }| json!({ "flops": flops, "wire_bytes": wire_bytes }));
        json!({ "rank": self.rank, "most": most, "least": least, "has_room_for_most": self.has_room })
    }
}
