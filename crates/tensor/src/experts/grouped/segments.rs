//! Rows of several blocks, the experts, as ranks sent them.

use std::ops::Range;

/// Where the rows of blocks lie among those of all: in segments, one from each rank that sends, and in each segment a run
/// of rows of every block, which may have none. A block's rows are counted run by run, in the order of segments.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Segments {
    /// The runs that have rows, block by block.
    runs: Vec<Run>,
    /// The first run of each block, and their number.
    firsts: Vec<usize>,
    /// Rows of all blocks.
    rows: usize,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Run {
    /// Its first row among those of the block.
    first: usize,
    /// Its rows among those of all blocks.
    rows: Range<usize>,
}

impl Run {
    /// Where it ends among the rows of the block.
    fn end(&self) -> usize {
        self.first + self.rows.len()
    }
}

impl Segments {
    /// Runs of the given lengths [segments, blocks], which is the order that they lie in.
    ///
    /// # Panics
    /// If the lengths are not those of whole segments.
    pub fn new(blocks: usize, lengths: &[usize]) -> Self {
        assert!(lengths.len().is_multiple_of(blocks), "{} lengths of {blocks} blocks", lengths.len());
        let mut rows = 0;
        let place = |len: &usize| {
            rows += len;
            rows - len..rows
        };
        let places: Vec<Range<usize>> = lengths.iter().map(place).collect();
        let mut runs = Vec::new();
        let mut firsts = vec![0];
        for block in 0..blocks {
            let mut first = 0;
            for rows in places.iter().skip(block).step_by(blocks).filter(|rows| !rows.is_empty()) {
                runs.push(Run { first, rows: rows.clone() });
                first += rows.len();
            }
            firsts.push(runs.len());
        }
        Segments { runs, firsts, rows }
    }

    /// Runs that all have `chunk` rows.
    pub fn equal(blocks: usize, segments: usize, chunk: usize) -> Self {
        Segments::new(blocks, &vec![chunk; blocks * segments])
    }

    /// Blocks.
    pub fn blocks(&self) -> usize {
        self.firsts.len() - 1
    }

    /// Rows of all blocks.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Rows of a block.
    pub fn rows_of(&self, block: usize) -> usize {
        self.runs(block).last().map_or(0, Run::end)
    }

    /// Where the given rows of a block lie among those of all: piece by piece, none of them empty.
    pub fn pieces(&self, block: usize, rows: Range<usize>) -> impl Iterator<Item = Range<usize>> + Clone + '_ {
        let runs = self.runs(block);
        let first = if rows.is_empty() { runs.len() } else { runs.partition_point(|run| run.end() <= rows.start) };
        let end = rows.end;
        runs[first..].iter().take_while(move |run| run.first < end).map(move |run| {
            let part = rows.start.max(run.first)..rows.end.min(run.end());
            run.rows.start + part.start - run.first..run.rows.start + part.end - run.first
        })
    }

    fn runs(&self, block: usize) -> &[Run] {
        &self.runs[self.firsts[block]..self.firsts[block + 1]]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_lie_where_the_table_of_lengths_puts_them() {
        // Of three blocks, the second without rows, in four segments.
        let segments = Segments::new(3, &[2, 0, 3, 0, 0, 1, 4, 0, 0, 1, 0, 2]);
        assert_eq!((segments.blocks(), segments.rows()), (3, 13));
        assert_eq!([0, 1, 2].map(|block| segments.rows_of(block)), [7, 0, 6]);
        let pieces = |block, rows| segments.pieces(block, rows).collect::<Vec<_>>();
        assert_eq!(pieces(0, 0..7), [0..2, 6..10, 10..11]);
        assert_eq!(pieces(0, 1..5), [1..2, 6..9]);
        assert_eq!(pieces(1, 0..0), []);
        assert_eq!(pieces(2, 2..5), [4..5, 5..6, 11..12]);
        assert_eq!(pieces(2, 3..3), []);
    }
}
