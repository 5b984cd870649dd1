//! Which layers a stage of the pipeline has, with pieces as equal as possible.

use quadrille_spec::{Axis, Model};

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
        Self { layers: model.layers, stages: c.size(Axis::Pipe), chunks: c.chunks }
    }

    /// Pieces of all stages.
    pub fn pieces(&self) -> usize {
        self.stages * self.chunks
    }

    /// Blocks of a piece: what is left over goes to the pieces nearest the middle.
    pub fn blocks_of(&self, piece: usize) -> usize {
        let pieces = self.pieces();
        let distance = (2 * piece + 1).abs_diff(pieces);
        // Of two pieces at the same distance from the middle the earlier comes first.
        let order = if 2 * piece + 1 < pieces { distance - 1 } else { distance };
        self.layers / pieces + usize::from(order < self.layers % pieces)
    }

    /// Blocks of each piece of a stage.
    pub fn pieces_on(&self, stage: usize) -> impl Iterator<Item = usize> {
        (0..self.chunks).map(move |chunk| self.blocks_of(chunk * self.stages + stage))
    }

    /// Blocks of a stage.
    pub fn blocks_on(&self, stage: usize) -> usize {
        match self.layers % self.pieces() {
            0 => self.layers / self.stages,
            _ => self.pieces_on(stage).sum(),
        }
    }

    /// Blocks of all pieces before one.
    pub fn blocks_before(&self, piece: usize) -> usize {
        let (pieces, more) = (self.pieces(), self.layers % self.pieces());
        let first_of_most = (pieces - more) / 2;
        piece * (self.layers / pieces) + piece.saturating_sub(first_of_most).min(more)
    }

    /// Segments of so many blocks, or what is left of a piece, on all stages.
    pub fn segments(&self, every: usize) -> usize {
        let (pieces, more) = (self.pieces(), self.layers % self.pieces());
        let least = self.layers / pieces;
        (pieces - more) * least.div_ceil(every) + more * (least + 1).div_ceil(every)
    }

    /// The stages among which the busiest and the fullest are, in order, each once: the first; the first and the last with
    /// a piece of most blocks, or the second where all are alike; the last.
    pub fn candidates(&self) -> impl Iterator<Item = usize> + use<> {
        let (pieces, last) = (self.pieces(), self.stages - 1);
        let [begin, end] = match self.layers % pieces {
            0 => [1.min(last); 2],
            more => [(pieces - more) / 2, (pieces - more) / 2 + more - 1],
        };
        let (begin, end) = (begin % self.stages, end % self.stages);
        let between = move |stage: &usize| (1..last).contains(stage);
        let inner = [Some(begin), Some(end).filter(|end| *end != begin)].into_iter().flatten().filter(between);
        [0].into_iter().chain(inner).chain(Some(last).filter(|last| *last > 0))
    }

    /// Whether all pieces have equally many blocks.
    pub fn are_alike(&self) -> bool {
        self.layers.is_multiple_of(self.pieces())
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
                let pieces: Vec<usize> = (0..stages.pieces()).map(|piece| stages.blocks_of(piece)).collect();
                assert_eq!(pieces, layout.stage_blocks);
                let before = |piece: usize| pieces[..piece].iter().sum::<usize>();
                (0..pieces.len()).for_each(|piece| assert_eq!(stages.blocks_before(piece), before(piece)));
            }
        }
    }
}
