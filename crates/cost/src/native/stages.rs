//! Which layers a stage of the pipeline has, with pieces as equal as possible.

use std::ops::Range;

use quadrille_spec::{Axis, EvenPieces, Model};

use super::Candidate;

/// The layers of a pipeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stages {
    pub layers: usize,
    /// Stages.
    pub stages: usize,
    /// Pieces of a stage.
    pub chunks: usize,
}

impl Stages {
    /// The most that [`Stages::candidates`] gives.
    pub const MOST_CANDIDATES: usize = 4;

    pub fn of(model: &Model, c: &Candidate) -> Self {
        Self { layers: model.layers(), stages: c.size(Axis::Pipe), chunks: c.chunks }
    }

    /// How the layers are cut.
    pub fn even(&self) -> EvenPieces {
        EvenPieces::new(self.layers, self.stages, self.chunks)
    }

    /// Pieces of all stages.
    pub fn pieces(&self) -> usize {
        self.stages * self.chunks
    }

    /// Blocks of a piece.
    pub fn blocks_of(&self, piece: usize) -> usize {
        self.even().blocks_of(piece)
    }

    /// The chunks of a stage that have a block more than its others: they follow each other.
    pub fn longer_on(&self, stage: usize) -> Range<usize> {
        let longer = self.even().longer();
        // Chunks of the stage before the piece of this number.
        let before = |piece: usize| (piece + self.stages - 1 - stage) / self.stages;
        before(longer.start)..before(longer.end)
    }

    /// The pieces of a stage by their blocks: so many of each length, the shorter ones first.
    pub fn pieces_on(&self, stage: usize) -> [(usize, usize); 2] {
        let (least, longer) = (self.even().least(), self.longer_on(stage).len());
        [(self.chunks - longer, least), (longer, least + 1)]
    }

    /// Blocks of a stage.
    pub fn blocks_on(&self, stage: usize) -> usize {
        self.pieces_on(stage).iter().map(|(pieces, blocks)| pieces * blocks).sum()
    }

    /// Blocks of all pieces before one.
    pub fn blocks_before(&self, piece: usize) -> usize {
        self.even().blocks_before(piece)
    }

    /// Segments of so many blocks, or what is left of a piece, on all stages.
    pub fn segments(&self, every: usize) -> usize {
        let (even, more) = (self.even(), self.even().longer().len());
        (self.pieces() - more) * even.least().div_ceil(every) + more * (even.least() + 1).div_ceil(every)
    }

    /// The stages among which the busiest and the fullest are, in order, each once: the first; the first and the last with
    /// a piece of most blocks, or the second where all are alike; the last.
    pub fn candidates(&self) -> impl Iterator<Item = usize> + use<> {
        let (longer, last) = (self.even().longer(), self.stages - 1);
        let [begin, end] = if longer.is_empty() { [1.min(last); 2] } else { [longer.start, longer.end - 1] };
        let (begin, end) = (begin % self.stages, end % self.stages);
        let between = move |stage: &usize| (1..last).contains(stage);
        let inner = [Some(begin), Some(end).filter(|end| *end != begin)].into_iter().flatten().filter(between);
        [0].into_iter().chain(inner).chain(Some(last).filter(|last| *last > 0))
    }

    /// Whether the embedding is on the stage.
    pub fn is_first(&self, stage: usize) -> bool {
        stage == 0
    }

    /// Whether the head is on the stage.
    pub fn is_last(&self, stage: usize) -> bool {
        stage + 1 == self.stages
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quadrille_spec::{Layout, LayoutRequest, Schedule};

    #[test]
    fn pieces_are_those_of_layouts() {
        for layers in 1..=13 {
            for (stages, chunks) in [(1, 1), (2, 1), (3, 1), (4, 1), (5, 1), (2, 2), (3, 2), (2, 3)] {
                if stages * chunks > layers + 2 {
                    continue;
                }
                let model = Model::gpt(layers, 16, 4, 32, 8);
                let grid = format!("pipe={stages}").parse().unwrap();
                let schedule = if chunks > 1 { Schedule::Interleaved } else { Schedule::Gpipe };
                let request = LayoutRequest { chunks, schedule, ..LayoutRequest::new(grid, stages) };
                let layout = Layout::new(&model, &request).unwrap();
                let stages = Stages { layers, stages, chunks };
                for stage in 0..stages.stages {
                    let of_stage = layout.stage_blocks.iter().skip(stage).step_by(stages.stages).copied();
                    let mut sorted: Vec<usize> = of_stage.clone().collect();
                    sorted.sort_unstable();
                    let pieces = stages.pieces_on(stage).into_iter();
                    assert!(pieces.flat_map(|(pieces, blocks)| vec![blocks; pieces]).eq(sorted));
                    assert_eq!(stages.blocks_on(stage), of_stage.sum::<usize>());
                }
                let segments = |every| layout.stage_blocks.iter().map(|blocks| blocks.div_ceil(every)).sum::<usize>();
                (1..4).for_each(|every| assert_eq!(stages.segments(every), segments(every)));
            }
        }
    }
}
