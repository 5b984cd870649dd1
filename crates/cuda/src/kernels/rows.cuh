// Where the token rows of a rank lie in the global batch.
#pragma once
#include "random.cuh"

// The part `part` of each sequence's tokens: of 2 * parts equal chunks one from either end.
struct Part {
    i64 part, parts;
};
DEVICE i64 chunk_len(Part part, i64 seq_len) { return part.parts == 1 ? seq_len : quotient(seq_len, 2 * part.parts); }
// The position of a local token.
DEVICE i64 position_of(Part part, i64 token, i64 seq_len) {
    i64 len = chunk_len(part, seq_len);
    return token < len ? part.part * len + token : (2 * part.parts - 2 - part.part) * len + token;
}

// The sequence of the first row of the rank's share, the first row counted in that share, tokens of a sequence.
struct Rows {
    i64 first_sequence, first;
    Part part;
    i64 seq_len;
};
// Tokens of a sequence that the rank has.
DEVICE i64 tokens_of(Rows rows) { return quotient(rows.seq_len, rows.part.parts); }
DEVICE i64 sequence_of(Rows rows, i64 row) {
    return rows.first_sequence + quotient(rows.first + row, tokens_of(rows));
}
DEVICE i64 token_of(Rows rows, i64 row) { return rest(rows.first + row, tokens_of(rows)); }
DEVICE i64 logical(Rows rows, i64 row) {
    return sequence_of(rows, row) * rows.seq_len + position_of(rows.part, token_of(rows, row), rows.seq_len);
}

// Positions of rows: in a pass of generation those behind `starts`, by sequence, below the capacity.
struct Positions {
    Rows rows;
    const u32* starts;
    i64 capacity;
};
DEVICE i64 position(Positions at, i64 row) {
    i64 position = position_of(at.rows.part, token_of(at.rows, row), at.rows.seq_len);
    if (!at.starts) return position;
    position += at.starts[sequence_of(at.rows, row)];
    return position < at.capacity ? position : at.capacity - 1;
}
// The row of a table of angles, which has those of the rank's own tokens, or in a pass of generation of all positions.
DEVICE i64 angle(Positions at, i64 row) { return at.starts ? position(at, row) : token_of(at.rows, row); }

// Which elements of a local matrix stay: by their logical rows and columns, of `cols`.
struct ElementMask {
    Draw draw;
    Rows rows;
    i64 first_col, cols;
};
DEVICE R factor(const ElementMask& mask, i64 row, i64 col) {
    return factor(mask.draw, logical(mask.rows, row) * mask.cols + mask.first_col + col);
}
