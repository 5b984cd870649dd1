//! Norms of queries and keys, before they turn: of every head's query by one gamma (and beta) and of every key by another, each
//! over the columns of a head; or of all queries of a token together, and of all its keys.

use quadrille_spec::{NormedOver, QueryKeyNorm};

use crate::Tensors;
use crate::attention::{Attention, Part};
use crate::pass::Pass;

/// Norms the queries and keys in `qkv[n, a d + k (d + v)]` of block `i`.
pub(crate) fn forward(pass: &Pass, i: usize, norm: QueryKeyNorm, qkv: &mut [f64]) {
    let attention = pass.attention(i);
    for (part, name) in parts(i) {
        for heads in normed_together(&attention, part, norm.over) {
            let normed = pass.norm(&name, norm.rule, &taken(qkv, &heads, attention.head_dim));
            put(qkv, &heads, &normed);
        }
    }
}

/// Turns `dqkv` of the normed queries and keys into that of `raw`, those before the norm; the gradients of gammas and betas
/// are added to `gradients`.
pub(crate) fn backward(
    pass: &Pass,
    i: usize,
    norm: QueryKeyNorm,
    dqkv: &mut [f64],
    raw: &[f64],
    gradients: &mut Tensors,
) {
    let attention = pass.attention(i);
    for (part, name) in parts(i) {
        for heads in normed_together(&attention, part, norm.over) {
            let [dy, x] = [&*dqkv, raw].map(|all| taken(all, &heads, attention.head_dim));
            let dx = pass.norm_backward(&name, norm.rule, &dy, &x, gradients);
            put(dqkv, &heads, &dx);
        }
    }
}

fn parts(i: usize) -> [(Part, String); 2] {
    [(Part::Query, format!("block.{i}.query_norm")), (Part::Key, format!("block.{i}.key_norm"))]
}

/// Of the queries, or keys, that each norm takes together, where they begin, head by head.
fn normed_together(attention: &Attention, part: Part, over: NormedOver) -> Vec<Vec<usize>> {
    let step = if matches!(part, Part::Query) { 1 } else { attention.group() };
    let of_row = |sequence: usize, row: usize| -> Vec<usize> {
        (0..attention.heads).step_by(step).map(|head| attention.index(sequence, head, row, part)).collect()
    };
    let rows = (0..attention.sequences).flat_map(|sequence| (0..attention.seq_len).map(move |row| (sequence, row)));
    let rows = rows.map(|(sequence, row)| of_row(sequence, row));
    match over {
        NormedOver::Head => rows.flatten().map(|head| vec![head]).collect(),
        NormedOver::AllHeads => rows.collect(),
    }
}

/// The numbers of some heads, one after the other.
fn taken(all: &[f64], heads: &[usize], head_dim: usize) -> Vec<f64> {
    heads.iter().flat_map(|at| &all[*at..at + head_dim]).copied().collect()
}

/// Puts them back.
fn put(all: &mut [f64], heads: &[usize], numbers: &[f64]) {
    for (at, numbers) in heads.iter().zip(numbers.chunks(numbers.len() / heads.len())) {
        all[*at..at + numbers.len()].copy_from_slice(numbers);
    }
}
