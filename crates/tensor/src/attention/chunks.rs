//! Where the tokens of a sequence lie: the queries that this part of it holds, tile by tile, and
//! the keys and values of all its tokens, in the order of their positions.

use super::AttentionShape;
use super::pack::{Block, padded};
use super::tile::TILE;

/// Queries whose positions follow one another.
#[derive(Clone, Copy)]
pub(super) struct Queries {
    /// Their first row in packed matrices, where each chunk is padded for itself.
    pub packed: usize,
    /// The first one's local token.
    pub token: usize,
    /// The first one's position in the sequence.
    pub position: usize,
    /// How many they are.
    pub count: usize,
    /// How many they are in packed matrices, with padding.
    pub rows: usize,
}

/// The matrix in which keys and values lie; the key and the value are the last of the columns that a
/// group of heads has in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Columns {
    /// `kv`, of all parts' tokens [parts, sequences, s / parts, kv_heads * (d + v)].
    KeyValue,
    /// `qkv`, of this part's tokens, which are all tokens.
    QueryKeyValue,
}

/// Which of the two.
#[derive(Clone, Copy)]
pub(super) enum Side {
    Key,
    Value,
}

impl AttentionShape {
    /// The chunks of queries that this part holds.
    pub(super) fn chunks(self) -> impl Iterator<Item = Queries> {
        let count = self.context.chunk_len(self.seq_len);
        (0..self.context.chunks_held()).map(move |chunk| {
            let token = chunk * count;
            let rows = padded(count);
            let position = self.context.position(token, self.seq_len);
            Queries { packed: chunk * rows, token, position, count, rows }
        })
    }

    /// Rows of a packed matrix of the queries.
    pub(super) fn packed_queries(self) -> usize {
        self.context.chunks_held() * padded(self.context.chunk_len(self.seq_len))
    }

    /// The queries in tiles, none of which crosses the border of a chunk: its keys would be those
    /// that its last query sees, most of which its first ones do not.
    pub(super) fn tiles(self) -> impl Iterator<Item = Queries> {
        self.chunks().flat_map(|chunk| {
            (0..chunk.count).step_by(TILE).map(move |first| Queries {
                packed: chunk.packed + first,
                token: chunk.token + first,
                position: chunk.position + first,
                count: TILE.min(chunk.count - first),
                rows: TILE.min(chunk.rows - first),
            })
        })
    }

    /// How many of the keys from `first` on the query at position `query` sees.
    pub(super) fn visible(&self, query: usize, first: usize) -> usize {
        let end = if self.causal { query + 1 } else { self.seq_len };
        end.saturating_sub(first)
    }

    /// How many of the keys from `first` on lie before the window of the query at position `query`.
    pub(super) fn passed(&self, query: usize, first: usize) -> usize {
        self.window.map_or(0, |window| (query + 1).saturating_sub(window + first))
    }

    /// The tiles of keys that any of `queries` sees, from the first key of the first query's window to the last query's
    /// last key: their first positions.
    pub(super) fn key_tiles(&self, queries: Queries) -> impl Iterator<Item = usize> + use<> {
        let first = self.passed(queries.position, 0) / TILE * TILE;
        (first..self.visible(queries.position + queries.count - 1, 0)).step_by(TILE)
    }

    /// The rows of a group's keys or values: contiguous runs with the position of their first.
    pub(super) fn runs(
        self,
        columns: Columns,
        side: Side,
        sequence: usize,
        group: usize,
    ) -> impl Iterator<Item = (usize, Block)> {
        let of_group = match columns {
            Columns::KeyValue => self.pair_cols(),
            Columns::QueryKeyValue => self.group_cols(),
        };
        let (cols, to_end) = match side {
            Side::Key => (self.head_dim, self.pair_cols()),
            Side::Value => (self.value_dim, self.value_dim),
        };
        let stride = self.kv_heads * of_group;
        let col = (group + 1) * of_group - to_end;
        let tokens = self.context.tokens(self.seq_len);
        let rows = self.context.chunk_len(self.seq_len);
        (0..self.context.chunks()).map(move |chunk| {
            let (part, held) = self.context.holder(chunk);
            let row = (part * self.sequences + sequence) * tokens + held * rows;
            (chunk * rows, Block { start: row * stride + col, stride, rows, cols })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::ContextPart;

    fn shape(part: usize, parts: usize, seq_len: usize) -> AttentionShape {
        let context = ContextPart { part, parts };
        AttentionShape {
            sequences: 1,
            seq_len,
            context,
            heads: 1,
            kv_heads: 1,
            head_dim: 1,
            value_dim: 1,
            causal: true,
            window: None,
            scale: 1.0,
            cap: None,
        }
    }

    #[test]
    fn tiles_hold_every_query_once_at_its_position() {
        for (parts, seq_len) in [(1, 0), (1, 150), (2, 12), (2, 400), (3, 6 * TILE)] {
            for part in 0..parts {
                let shape = shape(part, parts, seq_len);
                let mut tokens = 0;
                for tile in shape.tiles() {
                    assert_eq!(tile.token, tokens);
                    assert!(tile.count <= tile.rows && tile.packed + tile.rows <= shape.packed_queries());
                    for i in 0..tile.count {
                        assert_eq!(tile.position + i, shape.context.position(tile.token + i, seq_len));
                    }
                    tokens += tile.count;
                }
                assert_eq!(tokens, shape.context.tokens(seq_len));
            }
        }
    }

    #[test]
    fn all_parts_work_on_equally_many_tiles() {
        for (parts, chunk) in [(2, TILE), (3, 2 * TILE), (4, TILE / 2)] {
            let work = |part| {
                let shape = shape(part, parts, 2 * parts * chunk);
                shape.tiles().map(|queries| queries.rows * shape.key_tiles(queries).count()).sum::<usize>()
            };
            let tiles: Vec<_> = (0..parts).map(work).collect();
            assert!(tiles.iter().all(|work| *work == tiles[0]), "{parts} parts, chunks of {chunk}: {tiles:?}");
        }
    }
}
