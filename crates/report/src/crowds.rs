//! What a rank computes and sends at most and at least where experts drop nothing.

use quadrille_run::units::{bytes, decimal};
use quadrille_spec::{RankLedger, Routing};
use quadrille_step::{StepProgram, Verdict, predict_rank_loaded};
use serde_json::{Value, json};

/// The ledgers of a rank with the loads that are the least equal.
pub struct Crowds {
    all: RankLedger,
    none: RankLedger,
}

/// Of a rank; `None` of a model none of whose experts gets rows as they come.
pub fn crowds(program: &StepProgram, rank: usize) -> Option<Crowds> {
    let (stage, place) = (program.of_rank(rank), program.layout.grid.coordinate(rank));
    let (most, least) = (stage.crowded(place), stage.deserted(place));
    let routing = Routing::native(program.layout.grid.ranks());
    let ledger = |loads| predict_rank_loaded(program, rank, &routing, Verdict::Kept, loads);
    (!most.is_empty()).then(|| Crowds { all: ledger(&most), none: ledger(&least) })
}

impl Crowds {
    /// A line behind the rank's ledger.
    pub fn text(&self) -> String {
        let [all, none] = [&self.all, &self.none].map(|ledger| {
            format!("{}, {} on the wire", decimal(ledger.flops.total() as f64, "FLOP"), bytes(wire_bytes(ledger)))
        });
        format!("loads: taken to be equal; if all tokens choose what the rank has: {all}; if none do: {none}\n")
    }

    /// FLOPs and bytes with both loads.
    pub fn document(&self) -> Value {
        let [all, none] = [&self.all, &self.none]
            .map(|ledger| json!({ "flops": ledger.flops.total(), "wire_bytes": wire_bytes(ledger) }));
        json!({ "rank": self.all.rank, "all": all, "none": none })
    }
}

fn wire_bytes(ledger: &RankLedger) -> u64 {
    ledger.axes.values().flat_map(|kinds| kinds.values()).map(|transfer| transfer.wire_bytes).sum()
}
