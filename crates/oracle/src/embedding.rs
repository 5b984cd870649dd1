//! The embedding: a token's row of the table plus its place's row of the positions.

use quadrille_spec::Model;

use crate::Batch;

/// `x[n, h]` from `table[v, h]` and `positions`, `s` rows of it or more.
pub(crate) fn forward(batch: &Batch, table: &[f64], positions: &[f64], h: usize) -> Vec<f64> {
    let mut x = Vec::with_capacity(batch.tokens.len() * h);
    for (row, &token) in batch.tokens.iter().enumerate() {
        let (token, place) = (token as usize, row % batch.seq_len);
        x.extend((0..h).map(|c| table[token * h + c] + positions[place * h + c]));
    }
    x
}

/// `(dtable[v, h], dpositions)` from `dx[n, h]`; positions beyond the batch's sequences stay 0.
pub(crate) fn backward(batch: &Batch, dx: &[f64], model: &Model) -> (Vec<f64>, Vec<f64>) {
    let h = model.hidden;
    let (mut dtable, mut dpositions) = (vec![0.0; model.vocab * h], vec![0.0; model.seq_len * h]);
    for (row, &token) in batch.tokens.iter().enumerate() {
        let (token, place) = (token as usize, row % batch.seq_len);
        for c in 0..h {
            dtable[token * h + c] += dx[row * h + c];
            dpositions[place * h + c] += dx[row * h + c];
        }
    }
    (dtable, dpositions)
}
