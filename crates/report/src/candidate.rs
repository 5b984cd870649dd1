//! Layouts that a search has found, in words.

use quadrille_cost::native::Candidate;
use quadrille_spec::{
    Activations, Axis, AxisSet, Dispatch, KeepWeights, Layout, Linear, Overlap, Recompute, Schedule, Zero,
};

/// `x=8,data=16,pipe=8`: axes above 1.
pub fn sizes(sizes: [usize; Axis::COUNT]) -> String {
    let named = Axis::ALL.into_iter().filter(|axis| sizes[*axis as usize] > 1);
    let named: Vec<_> = named.map(|axis| format!("{axis}={}", sizes[axis as usize])).collect();
    if named.is_empty() { "-".to_owned() } else { named.join(",") }
}

/// `TP4 CP2 PP4 VP5 EP8 DP16`: the axes as most other programs name them, those above 1. Data parallelism has all ranks with
/// sequences of their own but those of FSDP, which share parameters beside it; those of experts may be among it.
pub fn notation(candidate: &Candidate) -> String {
    notation_of(candidate.sizes, candidate.schedule, candidate.chunks, candidate.experts_over)
}

/// The same of a layout.
pub fn layout_notation(layout: &Layout) -> String {
    notation_of(Axis::ALL.map(|axis| layout.grid.size(axis)), layout.schedule, layout.chunks, layout.experts_over)
}

fn notation_of(sizes: [usize; Axis::COUNT], schedule: Schedule, chunks: usize, experts_over: AxisSet) -> String {
    let size = |axis: Axis| sizes[axis as usize];
    let chunks = if size(Axis::Pipe) > 1 && schedule == Schedule::Interleaved { chunks } else { 1 };
    let parts = [
        ("TP", size(Axis::X) * size(Axis::Y)),
        ("CP", size(Axis::Context)),
        ("PP", size(Axis::Pipe)),
        ("VP", chunks),
        ("EP", experts_over.iter().map(size).product()),
        ("FSDP", size(Axis::Z)),
        ("DP", Axis::BATCH.map(size).iter().product()),
    ];
    let named: Vec<_> =
        parts.iter().filter(|(_, size)| *size > 1).map(|(name, size)| format!("{name}{size}")).collect();
    if named.is_empty() { "DP1".to_owned() } else { named.join(" ") }
}

/// The schedule with its chunks; nothing without a pipeline.
pub fn schedule(candidate: &Candidate) -> String {
    match (candidate.size(Axis::Pipe), candidate.schedule, candidate.chunks) {
        (1, ..) => "-".to_owned(),
        (_, Schedule::Interleaved, chunks) => format!("interleaved x{chunks}"),
        (_, schedule, _) => schedule.to_string(),
    }
}

/// What is computed again.
pub fn recompute(candidate: &Candidate) -> String {
    let kept = if candidate.keep_communicated { " cac" } else { "" };
    match candidate.recompute {
        Recompute::None => "-".to_owned(),
        recompute => format!("{recompute}{kept}"),
    }
}

/// Choices that differ from the usual, beside those that have a column of their own.
pub fn others(candidate: &Candidate) -> String {
    let mut told = Vec::new();
    let mut tell = |differs: bool, text: String| told.extend(differs.then_some(text));
    tell(candidate.zero != Zero::Off, format!("zero {}", candidate.zero));
    let mesh = candidate.size(Axis::X) * candidate.size(Axis::Y);
    tell(mesh > 1 && candidate.linear == Linear::Summa, format!("summa/{}", candidate.summa_panels));
    let replicated = candidate.activations == Activations::Replicated;
    tell(mesh > 1 && replicated, "replicated".to_owned());
    tell(candidate.bucket.is_some(), "states offloaded".to_owned());
    tell(candidate.keep_weights == KeepWeights::Step, "weights kept".to_owned());
    tell(candidate.overlap_chunks > 1, format!("{} overlap chunks", candidate.overlap_chunks));
    let spread: AxisSet = candidate.experts_over.iter().filter(|axis| candidate.size(*axis) > 1).collect();
    tell(!spread.is_empty() && spread != Axis::Expert.only(), format!("experts over {spread}"));
    tell(mesh > 1 && candidate.dispatch == Dispatch::Duplicated, "tokens duplicated".to_owned());
    tell(candidate.overlap != Overlap::ALL, format!("overlap {}", candidate.overlap));
    if told.is_empty() { "-".to_owned() } else { told.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_have_the_names_of_other_programs() {
        let of = |sizes, chunks, schedule, experts_over| {
            notation(&Candidate { sizes, chunks, schedule, experts_over, ..Candidate::PLAIN })
        };
        let interleaved = Schedule::Interleaved;
        let usual = Schedule::OneForwardOneBackward;
        let over = Axis::X.only().union(Axis::Expert.only());
        assert_eq!(of([4, 1, 1, 2, 1, 16, 4], 5, interleaved, AxisSet::EMPTY), "TP4 CP2 PP4 VP5 DP16");
        assert_eq!(of([2, 1, 1, 1, 8, 2, 1], 1, usual, over), "TP2 EP16 DP16");
        assert_eq!(of([2, 2, 8, 1, 1, 2, 1], 1, usual, AxisSet::EMPTY), "TP4 FSDP8 DP2");
        assert_eq!(of([1; 7], 3, interleaved, AxisSet::EMPTY), "DP1");
    }
}
