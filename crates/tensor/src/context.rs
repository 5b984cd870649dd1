//! The tokens of each sequence that a rank of a context axis holds.

/// A part of every sequence's tokens.
///
/// A sequence of s tokens is cut into `2 * parts` equal chunks, of which `part` holds the chunks
/// `part` and `2 * parts - 1 - part`, in this order: one from each end, so that under a causal
/// mask, where a query costs as much as its position, every part has the same work (the
/// load-balanced assignment of Llama 3, Grattafiori et al. 2024, section 3.3.2). A local token is
/// a number below s / parts; its position is its place in the sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContextPart {
    /// This part, below `parts`.
    pub part: usize,
    /// Parts that a sequence is divided into, at least 1. Above 1, `2 * parts` divides s.
    pub parts: usize,
}

impl ContextPart {
    /// All tokens, of sequences of any length.
    pub const WHOLE: Self = ContextPart { part: 0, parts: 1 };

    /// How many tokens of a sequence of `seq_len` this part holds.
    pub fn tokens(self, seq_len: usize) -> usize {
        seq_len / self.parts
    }

    /// The position in its sequence of a local token.
    pub fn position(self, token: usize, seq_len: usize) -> usize {
        let len = self.chunk_len(seq_len);
        if token < len { self.part * len + token } else { (2 * self.parts - 2 - self.part) * len + token }
    }

    /// Chunks that a sequence is cut into.
    pub(crate) fn chunks(self) -> usize {
        if self.parts == 1 { 1 } else { 2 * self.parts }
    }

    /// Chunks that this part holds.
    pub(crate) fn chunks_held(self) -> usize {
        self.chunks() / self.parts
    }

    /// Tokens in a chunk.
    pub(crate) fn chunk_len(self, seq_len: usize) -> usize {
        seq_len / self.chunks()
    }

    /// The part that holds a chunk of the sequence, and which of its chunks that is.
    pub(crate) fn holder(self, chunk: usize) -> (usize, usize) {
        if chunk < self.parts { (chunk, 0) } else { (2 * self.parts - 1 - chunk, 1) }
    }

    /// # Panics
    /// If a sequence of `seq_len` cannot be divided so.
    pub(crate) fn check(self, seq_len: usize) {
        assert!(self.part < self.parts, "{self:?}");
        assert!(seq_len.is_multiple_of(self.chunks()), "{seq_len} tokens in {} chunks", self.chunks());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_holds_a_chunk_from_either_end() {
        let positions = |part, parts, seq_len| {
            let part = ContextPart { part, parts };
            (0..part.tokens(seq_len)).map(|token| part.position(token, seq_len)).collect::<Vec<_>>()
        };
        assert_eq!(positions(0, 2, 8), [0, 1, 6, 7]);
        assert_eq!(positions(1, 2, 8), [2, 3, 4, 5]);
        assert_eq!(positions(1, 3, 6), [1, 4]);
        assert_eq!(positions(0, 1, 5), [0, 1, 2, 3, 4]);
        assert_eq!(positions(0, 1, 0), []);
    }

    #[test]
    fn the_parts_hold_every_token_once_and_equal_causal_work() {
        for (parts, seq_len) in [(1, 7), (2, 4), (3, 30), (4, 8)] {
            let mut seen = vec![0; seq_len];
            for part in 0..parts {
                let part = ContextPart { part, parts };
                let positions = (0..part.tokens(seq_len)).map(|token| part.position(token, seq_len));
                positions.clone().for_each(|position| seen[position] += 1);
                let work: usize = positions.map(|position| position + 1).sum();
                assert_eq!(work, seq_len * (seq_len + 1) / 2 / parts);
            }
            assert!(seen.iter().all(|times| *times == 1), "{parts} parts of {seq_len}: {seen:?}");
        }
    }

    #[test]
    fn a_chunks_holder_has_it_where_its_positions_say() {
        let parts = 3;
        let seq_len = 12;
        for chunk in 0..2 * parts {
            let (part, held) = ContextPart { part: 0, parts }.holder(chunk);
            let part = ContextPart { part, parts };
            assert_eq!(part.position(held * part.chunk_len(seq_len), seq_len), chunk * part.chunk_len(seq_len));
        }
    }
}
