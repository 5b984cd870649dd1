//! Norms of queries and keys: every head's query by one gamma (and beta), every key by another, each over the columns of
//! a head, before they turn.

use quadrille_spec::Normalization;

use crate::Tensors;
use crate::attention::{Attention, Part};
use crate::pass::Pass;

/// Norms the queries and keys in `qkv[n, (a + 2k) d]` of block `i`.
pub(crate) fn forward(pass: &Pass, i: usize, rule: Normalization, qkv: &mut [f64]) {
    let attention = pass.attention(i);
    for (part, name) in parts(i) {
        for at in places(&attention, part) {
            let normed = pass.norm(&name, rule, &qkv[at..at + attention.head_dim]);
            qkv[at..at + attention.head_dim].copy_from_slice(&normed);
        }
    }
}

/// Turns `dqkv` of the normed queries and keys into that of `raw`, those before the norm; the gradients of gammas and betas
/// are added to `gradients`.
pub(crate) fn backward(
    pass: &Pass,
    i: usize,
    rule: Normalization,
    dqkv: &mut [f64],
    raw: &[f64],
    gradients: &mut Tensors,
) {
    let attention = pass.attention(i);
    for (part, name) in parts(i) {
        for at in places(&attention, part) {
            let head = at..at + attention.head_dim;
            let dx = pass.norm_backward(&name, rule, &dqkv[head.clone()], &raw[head.clone()], gradients);
            dqkv[head].copy_from_slice(&dx);
        }
    }
}

fn parts(i: usize) -> [(Part, String); 2] {
    [(Part::Query, format!("block.{i}.query_norm")), (Part::Key, format!("block.{i}.key_norm"))]
}

/// Where each of all queries, or keys, begins.
fn places(attention: &Attention, part: Part) -> Vec<usize> {
    let step = if matches!(part, Part::Query) { 1 } else { attention.group() };
    let of_row = |sequence: usize, row: usize| {
        (0..attention.heads).step_by(step).map(move |head| attention.index(sequence, head, row, part))
    };
    let rows = (0..attention.sequences).flat_map(|sequence| (0..attention.seq_len).map(move |row| (sequence, row)));
    rows.flat_map(|(sequence, row)| of_row(sequence, row)).collect()
}
