//! Queues of experts that drop nothing: as long as tokens choose them, which is known once tokens have chosen.
//!
//! A program counts their rows as if loads were equal. [`Queues`] are those of one pass over a microbatch, from what its
//! routers have counted: they tell how many rows a rank has of a value, and how many it sends to whom.

use std::collections::BTreeMap;

use quadrille_spec::{Axis, AxisSet, CollectiveKind, Coordinate, Layout, most_crowded, usual_room};
use serde::{Deserialize, Serialize};

use crate::{Collective, Extent, StageProgram, Value, ValueId};

/// The queues of one pass, by the value that holds their counts and the microbatch.
pub type Loads = BTreeMap<(ValueId, usize), Queues>;

/// How many rows the ranks that exchange them have for each expert.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Queues {
    /// Of all ranks.
    experts: usize,
    /// By rank, in the order of their group, and expert.
    counts: Vec<usize>,
}

/// Elements of the parts of a collective, by member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Parts {
    /// What each has, or gets, of a whole.
    OfWhole(Vec<usize>),
    /// What this one sends to each, and gets from each.
    Exchanged {
        /// Sent to.
        sent: Vec<usize>,
        /// Received from.
        received: Vec<usize>,
    },
}

/// The axes that cut the tokens that routers see.
pub(crate) fn token_axes(layout: &Layout) -> AxisSet {
    let x = layout.scatters_rows().then_some(Axis::X);
    layout.row_axes().chain(x).collect()
}

/// The axes over which counts are gathered: those whose ranks' rows come to the same experts.
pub(crate) fn counted_axes(layout: &Layout) -> AxisSet {
    let tokens = token_axes(layout);
    layout.experts_over.union(Axis::X.only()).iter().filter(|axis| tokens.contains(*axis)).collect()
}

/// Whether ranks along x, which have the same tokens, send each a part of the rows that these choose.
fn cuts_queues(layout: &Layout) -> bool {
    layout.scatters_places() && !layout.scatters_rows() && layout.grid.size(Axis::X) > 1
}

/// How many times as many rows as equal loads bring a rank can have of a value.
fn most(value: &Value, layout: &Layout) -> Most {
    let Extent::Queues { experts, per_token } = value.extents[0] else { return Most { whole: 1.0, here: 1.0 } };
    let ranks = value.blocks / value.local_blocks;
    let most = most_crowded(experts, per_token, ranks);
    // A part of queues may be all of one rank's.
    let cut = cuts_queues(layout) && !layout.experts_over.contains(Axis::X) && value.sharding.rows.contains(&Axis::X);
    let here = if cut { (most * layout.grid.size(Axis::X) as f64).min(ranks as f64) } else { most };
    Most { whole: most, here }
}

/// How many times as many rows as equal loads bring a rank can have: of whole queues, and of what of them is in a value.
struct Most {
    whole: f64,
    here: f64,
}

/// How many times as many rows as equal loads bring there is room for in a value.
pub(crate) fn room(value: &Value, layout: &Layout) -> f64 {
    let Most { whole, here } = most(value, layout);
    match layout.expert_rows {
        0 if usual_room(whole) < whole => here.min(usual_room(whole)),
        0 => here,
        times => here.min(times as f64),
    }
}

/// How many times as many rows as equal loads bring the fullest rank has of a value, where experts get them so unequally: of each
/// part of queues as many as of the whole.
pub(crate) fn crowd(value: &Value, layout: &Layout, imbalance: f64) -> f64 {
    most(value, layout).whole.min(imbalance)
}

/// Chunk `index` of `rows` in `parts`.
fn chunk(rows: usize, parts: usize, index: usize) -> std::ops::Range<usize> {
    index * rows / parts..(index + 1) * rows / parts
}

impl Queues {
    /// From what each rank of the group has counted of each expert.
    ///
    /// # Panics
    /// If ranks have counted different experts.
    pub fn new(experts: usize, counts: Vec<usize>) -> Self {
        assert!(counts.len().is_multiple_of(experts), "{} counts of {experts} experts", counts.len());
        Self { experts, counts }
    }

    /// By expert, where its queue begins among the rows of a rank's own tokens, and where the last one ends.
    pub fn starts(&self, layout: &Layout, place: Coordinate) -> Vec<usize> {
        let counts = self.counts_of(layout, place);
        let ends = counts.iter().scan(0, |end, count| {
            *end += count;
            Some(*end)
        });
        std::iter::once(0).chain(ends).collect()
    }

    fn counts_of(&self, layout: &Layout, place: Coordinate) -> &[usize] {
        let source = layout.grid.group_index(place, counted_axes(layout));
        &self.counts[source * self.experts..][..self.experts]
    }

    /// Rows for an expert that come from the rank at `place`: of its queue, or, where ranks along x have the same tokens and send
    /// each a part of their rows, of its part.
    fn sent(&self, layout: &Layout, place: Coordinate, expert: usize) -> usize {
        let counts = self.counts_of(layout, place);
        if !cuts_queues(layout) {
            return counts[expert];
        }
        let x = layout.grid.size(Axis::X);
        let before: usize = counts[..expert].iter().sum();
        let part = chunk(counts.iter().sum(), x, place.on(Axis::X));
        (before + counts[expert]).min(part.end).saturating_sub(before.max(part.start))
    }

    /// The experts of which the rank at `place` has rows of a value.
    fn experts_of(value: &Value, layout: &Layout, place: Coordinate) -> std::ops::Range<usize> {
        let first = layout.grid.shard_index(place, &value.sharding.blocks) * value.local_blocks;
        first..first + value.local_blocks
    }

    /// The ranks whose tokens' rows the rank at `place` has of a value, in the order in which they lie.
    fn sources(value: &Value, layout: &Layout, place: Coordinate) -> Vec<Coordinate> {
        let grid = &layout.grid;
        let x = if layout.scatters_places() { Axis::X.only() } else { AxisSet::EMPTY };
        let cut: AxisSet = value.sharding.rows.into_iter().collect();
        let open = token_axes(layout).union(x).without(cut);
        let open: AxisSet = layout.experts_over.union(x).iter().filter(|axis| open.contains(*axis)).collect();
        // What was gathered over x lies rank by rank of x; in each part lies what was exchanged, rank by rank of that group.
        let exchanged: AxisSet = open.iter().filter(|axis| layout.experts_over.contains(*axis)).collect();
        let gathered = open.without(exchanged);
        let members = |place, axes| {
            let ranks = grid.group(grid.rank(place), axes);
            ranks.into_iter().map(|rank| grid.coordinate(rank)).collect::<Vec<_>>()
        };
        members(place, gathered).into_iter().flat_map(|place| members(place, exchanged)).collect()
    }

    /// Rows of a value whose rows y does not cut, that the rank at `place` has: rank by rank that they come from, and of each by
    /// expert.
    pub fn runs(&self, value: &Value, layout: &Layout, place: Coordinate) -> Vec<usize> {
        let experts = Self::experts_of(value, layout, place);
        let sources = Self::sources(value, layout, place);
        let runs = |source| experts.clone().map(move |expert| self.sent(layout, source, expert));
        sources.into_iter().flat_map(runs).collect()
    }

    /// Rows that the rank at `place` has of a value.
    pub fn rows(&self, value: &Value, layout: &Layout, place: Coordinate) -> usize {
        let rows = self.runs(value, layout, place).into_iter().sum();
        if value.sharding.rows.contains(&Axis::Y) {
            chunk(rows, layout.grid.size(Axis::Y), place.on(Axis::Y)).len()
        } else {
            rows
        }
    }

    /// The elements of the parts in which a collective moves such rows; `None` of one that combines the members' whole buffers.
    pub fn parts(&self, program: &StageProgram, collective: &Collective, place: Coordinate) -> Option<Parts> {
        let layout = &program.layout;
        let grid = program.grid();
        let [input, output] = [collective.input, collective.output].map(|value| program.value(value));
        let members = grid.group(grid.rank(place), collective.axes);
        let members = members.into_iter().map(|rank| grid.coordinate(rank));
        match collective.kind {
            CollectiveKind::AllGather => {
                let of = |member| self.rows(input, layout, member) * input.local_cols;
                Some(Parts::OfWhole(members.map(of).collect()))
            }
            CollectiveKind::ReduceScatter => {
                let of = |member| self.rows(output, layout, member) * output.local_cols;
                Some(Parts::OfWhole(members.map(of).collect()))
            }
            CollectiveKind::AllToAll => {
                // On one side rows are with their tokens, on the other with their experts.
                let leaves = input.sharding.blocks.is_empty();
                let experts = if leaves { output } else { input };
                let of = |from, at| -> usize {
                    Self::experts_of(experts, layout, at).map(|expert| self.sent(layout, from, expert)).sum()
                };
                let parts = |to_experts: bool| {
                    let part = |member| if to_experts { of(place, member) } else { of(member, place) };
                    members.clone().map(|member| part(member) * input.local_cols).collect()
                };
                Some(Parts::Exchanged { sent: parts(leaves), received: parts(!leaves) })
            }
            _ => None,
        }
    }
}

impl Parts {
    /// Elements that the member at `index` sends of these parts on a ring, or to each in turn.
    pub fn elements_sent(&self, index: usize, kind: CollectiveKind) -> usize {
        match self {
            Self::OfWhole(parts) => {
                let whole: usize = parts.iter().sum();
                // A gather passes on all but what its neighbour holds from the start, a scatter all but what stays here.
                whole - parts[if kind == CollectiveKind::AllGather { (index + 1) % parts.len() } else { index }]
            }
            Self::Exchanged { sent, .. } => sent.iter().sum::<usize>() - sent[index],
        }
    }
}

impl StageProgram {
    /// The program with the sizes that values have for the rank at `place` in a pass over a microbatch.
    pub(crate) fn loaded(&self, loads: &Loads, microbatch: usize, place: Coordinate) -> Self {
        let mut loaded = self.clone();
        for value in &mut loaded.values {
            let queues = value.counts.and_then(|counts| loads.get(&(counts, microbatch)));
            if let Some(queues) = queues {
                value.local_rows = queues.rows(value, &self.layout, place);
                value.local_elements = value.local_rows * value.local_cols;
            }
        }
        loaded
    }

    /// Whether a collective moves parts of rows whose number is known only once tokens have chosen: always on a ring, or from
    /// each to each in turn.
    pub fn moves_queues(&self, collective: &Collective) -> bool {
        let parts = [CollectiveKind::AllGather, CollectiveKind::ReduceScatter, CollectiveKind::AllToAll];
        parts.contains(&collective.kind) && self.value(collective.input).counts.is_some()
    }

    /// Whether an operation works on rows whose number is known only once tokens have chosen.
    pub(crate) fn counts_rows(&self, operation: &crate::Operation) -> bool {
        operation.operands().all().iter().any(|value| self.value(*value).counts.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ChunkProgram, Operation, StepProgram};
    use quadrille_spec::{Activations, Layout, LayoutRequest, Model};

    const MODEL: &str = "name = 'queues'\nlayers = 1\nhidden = 8\nheads = 4\nvocab = 13\nseq_len = 8\nexperts = 8\n";

    fn program(grid: &str, over: &str, activations: Activations) -> StepProgram {
        let model = Model::from_toml(MODEL, &[]).unwrap();
        let request = LayoutRequest {
            experts_over: Some(over.parse().unwrap()),
            activations,
            ..LayoutRequest::new(grid.parse().unwrap(), 8)
        };
        StepProgram::new(&model, &Layout::new(&model, &request).unwrap()).unwrap()
    }

    /// Choices that are about as unequal as they can be: all tokens of a rank choose the same two experts, but for one of every
    /// other rank.
    fn unequal(program: &StageProgram, group: usize) -> Queues {
        let layout = &program.layout;
        let sources = layout.grid.size_of(counted_axes(layout));
        let x = if layout.scatters_rows() { layout.grid.size(Axis::X) } else { 1 };
        let rows = 2 * layout.rows() / x;
        let of = |source: usize| {
            let first = if (source + group) % 8 == 3 { 4 } else { (source + group) % 8 };
            let last = (0..8).find(|expert| ![3, first].contains(expert)).unwrap();
            let mut counts = vec![0; 8];
            (counts[3], counts[first], counts[last]) = (rows / 2, rows / 2 - source % 2, source % 2);
            counts
        };
        Queues::new(8, (0..sources).flat_map(of).collect())
    }

    #[test]
    fn what_is_sent_is_received_and_all_rows_arrive() {
        let cases = [
            ("x=2,z=2,expert=2", "z,expert", Activations::Scattered),
            ("x=2,y=2,expert=2", "x,expert", Activations::Scattered),
            ("x=2,expert=4", "expert", Activations::Replicated),
            ("x=2,expert=2", "x,expert", Activations::Replicated),
            ("x=2,expert=8", "expert", Activations::Replicated),
            ("x=2,context=2", "none", Activations::Scattered),
        ];
        for (grid, over, activations) in cases {
            let program = program(grid, over, activations);
            let stage = &program.stages[0];
            let grid = stage.grid();
            let queues = unequal(stage, 5);
            let ops = stage.chunks.iter().flat_map(ChunkProgram::sections).flat_map(|section| &section.ops);
            let mut exchanges = 0;
            for collective in ops.filter_map(|op| match op.operation {
                Operation::Issue(it) if stage.moves_queues(&it) => Some(it),
                _ => None,
            }) {
                let rows = |value: ValueId, place| {
                    queues.rows(stage.value(value), &stage.layout, place) * stage.value(value).local_cols
                };
                for rank in 0..grid.ranks() {
                    let place = grid.coordinate(rank);
                    let members = grid.group(rank, collective.axes);
                    let own = grid.group_index(place, collective.axes);
                    let parts = |rank: usize| queues.parts(stage, &collective, grid.coordinate(rank)).unwrap();
                    match parts(rank) {
                        Parts::OfWhole(parts) => {
                            let gathers = collective.kind == CollectiveKind::AllGather;
                            let whole = collective.output;
                            let part = collective.input;
                            let (whole, part) = if gathers { (whole, part) } else { (part, whole) };
                            assert_eq!(parts.iter().sum::<usize>(), rows(whole, place), "{collective:?}");
                            assert_eq!(parts[own], rows(part, place), "{collective:?}");
                        }
                        Parts::Exchanged { sent, received } => {
                            exchanges += 1;
                            assert_eq!(sent.iter().sum::<usize>(), rows(collective.input, place));
                            assert_eq!(received.iter().sum::<usize>(), rows(collective.output, place));
                            for (member, received) in members.into_iter().zip(received) {
                                let Parts::Exchanged { sent, .. } = parts(member) else { panic!("{collective:?}") };
                                assert_eq!(sent[own], received, "{rank} from {member}");
                            }
                        }
                    }
                }
            }
            assert_eq!(exchanges > 0, over != "none", "{over}");
            for value in stage.values.iter().filter(|value| value.counts.is_some()) {
                let rows = (0..grid.ranks()).map(|rank| queues.rows(value, &stage.layout, grid.coordinate(rank)));
                let most = rows.max().unwrap();
                let room = value.room(&stage.layout) / value.local_cols;
                assert!(most <= room, "{} over {over}: {most} rows, room for {room}", value.name);
            }
        }
    }
}
