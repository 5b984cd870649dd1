//! The embedding: a token's row of the table times the model's factor, or a linear layer of a patch's numbers, plus, where
//! positions are learned, the row of its place. Padding has zeros in the place of the row of a token.

use quadrille_spec::PADDING;

use crate::pass::{Pass, accumulate};
use crate::{Samples, Tensors};

/// `x[n, h]` of the batch.
pub(crate) fn forward(pass: &Pass) -> Vec<f64> {
    let h = pass.model.hidden;
    let mut x = match pass.batch.samples {
        Samples::Tokens { inputs, .. } => {
            let rows = rows_of_tokens(inputs, pass.parameter("embedding.table"), h);
            rows.into_iter().map(|number| number * pass.model.embedding_scale).collect()
        }
        Samples::Patches { inputs, .. } => pass.linear("embedding", inputs),
    };
    if pass.model.learned_positions {
        let positions = pass.parameter("embedding.positions");
        for (row, x) in x.chunks_mut(h).enumerate() {
            let place = row % pass.batch.seq_len;
            for c in 0..h {
                x[c] += positions[place * h + c];
            }
        }
    }
    x
}

/// Adds the gradients of the embedding's parameters from `dx[n, h]`; positions beyond the batch's sequences get none.
pub(crate) fn backward(pass: &Pass, dx: &[f64], gradients: &mut Tensors) {
    let h = pass.model.hidden;
    match pass.batch.samples {
        Samples::Tokens { inputs, .. } => {
            let mut dtable = vec![0.0; pass.model.vocab * h];
            for (dx, &token) in dx.chunks(h).zip(inputs).filter(|(_, token)| **token != PADDING) {
                for c in 0..h {
                    dtable[token as usize * h + c] += dx[c] * pass.model.embedding_scale;
                }
            }
            accumulate(gradients, "embedding.table", &dtable);
        }
        Samples::Patches { inputs, .. } => {
            pass.linear_backward("embedding", dx, inputs, gradients);
        }
    }
    if pass.model.learned_positions {
        let mut dpositions = vec![0.0; pass.model.seq_len * h];
        for (row, dx) in dx.chunks(h).enumerate() {
            let place = row % pass.batch.seq_len;
            for c in 0..h {
                dpositions[place * h + c] += dx[c];
            }
        }
        accumulate(gradients, "embedding.positions", &dpositions);
    }
}

fn rows_of_tokens(tokens: &[u32], table: &[f64], h: usize) -> Vec<f64> {
    let row = |&token: &u32| match token {
        PADDING => vec![0.0; h],
        token => table[token as usize * h..][..h].to_vec(),
    };
    tokens.iter().flat_map(row).collect()
}
