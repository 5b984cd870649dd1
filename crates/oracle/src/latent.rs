//! Latent attention: queries, keys and values by way of narrow, normed rows (DeepSeek-V2, arXiv 2405.04434, section 2.1).
//! The first numbers of every key are the same for all heads.

use quadrille_spec::Latent;

use crate::Tensors;
use crate::attention::{Attention, Part};
use crate::pass::{Pass, sum};

/// Narrow rows before and after their norm, kept for the backward pass; of queries only where there are such.
pub(crate) struct Saved {
    queries: Option<[Vec<f64>; 2]>,
    keys_values: [Vec<f64>; 2],
}

/// Where of a head a number of `qkv` is from.
enum Source {
    Queries(usize),
    KeysValues(usize),
    Shared(usize),
}

/// `qkv` of block `i` from `x[n, h]`.
pub(crate) fn forward(pass: &Pass, i: usize, latent: Latent, x: &[f64]) -> (Vec<f64>, Saved) {
    let name = |layer: &str| format!("block.{i}.{layer}");
    let rule = pass.block(i).norm;
    let narrow = |layer: &str| {
        let rows = pass.linear(&name(layer), x);
        let normed = pass.norm(&name(&format!("{layer}_norm")), rule, &rows);
        [rows, normed]
    };
    let saved =
        Saved { queries: latent.queries.map(|_| narrow("query_latent")), keys_values: narrow("key_value_latent") };
    let of_queries = saved.queries.as_ref().map_or(x, |[_, normed]| normed);
    let queries = pass.linear(&name("queries"), of_queries);
    let keys_values = pass.linear(&name("keys_values"), &saved.keys_values[1]);
    let shared = pass.linear(&name("shared_key"), x);

    let attention = pass.attention(i);
    let mut qkv = vec![0.0; queries.len() + pass.batch.rows() * attention.heads * attention.pair_width()];
    for (at, source) in sources(&attention, latent) {
        qkv[at] = match source {
            Source::Queries(from) => queries[from],
            Source::KeysValues(from) => keys_values[from],
            Source::Shared(from) => shared[from],
        };
    }
    (qkv, saved)
}

/// `dx[n, h]` from `dqkv`.
pub(crate) fn backward(
    pass: &Pass,
    i: usize,
    latent: Latent,
    dqkv: &[f64],
    x: &[f64],
    saved: &Saved,
    gradients: &mut Tensors,
) -> Vec<f64> {
    let name = |layer: &str| format!("block.{i}.{layer}");
    let attention = pass.attention(i);
    let rows = pass.batch.rows();
    let rule = pass.block(i).norm;
    let own = attention.pair_width() - latent.shared_key;
    let mut dqueries = vec![0.0; rows * attention.heads * attention.head_dim];
    let mut dkeys_values = vec![0.0; rows * attention.heads * own];
    let mut dshared = vec![0.0; rows * latent.shared_key];
    for (at, source) in sources(&attention, latent) {
        match source {
            Source::Queries(to) => dqueries[to] += dqkv[at],
            Source::KeysValues(to) => dkeys_values[to] += dqkv[at],
            Source::Shared(to) => dshared[to] += dqkv[at],
        }
    }
    let mut through = |layer: &str, [rows, normed]: &[Vec<f64>; 2], of: &str, d: &[f64]| {
        let dnormed = pass.linear_backward(&name(of), d, normed, gradients);
        let drows = pass.norm_backward(&name(&format!("{layer}_norm")), rule, &dnormed, rows, gradients);
        pass.linear_backward(&name(layer), &drows, x, gradients)
    };
    let of_pairs = through("key_value_latent", &saved.keys_values, "keys_values", &dkeys_values);
    let of_queries = saved.queries.as_ref().map(|narrow| through("query_latent", narrow, "queries", &dqueries));
    let of_queries = of_queries.unwrap_or_else(|| pass.linear_backward(&name("queries"), &dqueries, x, gradients));
    let of_shared = pass.linear_backward(&name("shared_key"), &dshared, x, gradients);
    sum(&sum(&of_queries, &of_pairs), &of_shared)
}

/// Of every number of `qkv`, where it is from: `queries[n, a d]`, `keys_values[n, a (d - k + v)]` or `shared[n, k]`.
fn sources(attention: &Attention, latent: Latent) -> Vec<(usize, Source)> {
    let Attention { sequences, seq_len, heads, head_dim: d, value_dim: v, .. } = *attention;
    let k = latent.shared_key;
    let own = d - latent.shared_key + v;
    let mut sources = Vec::new();
    for (sequence, row, head) in
        (0..sequences).flat_map(|b| (0..seq_len).flat_map(move |t| (0..heads).map(move |a| (b, t, a))))
    {
        let n = sequence * seq_len + row;
        let index = |part| attention.index(sequence, head, row, part);
        for j in 0..d {
            sources.push((index(Part::Query) + j, Source::Queries((n * heads + head) * d + j)));
            let of_key =
                if j < k { Source::Shared(n * k + j) } else { Source::KeysValues((n * heads + head) * own + j - k) };
            sources.push((index(Part::Key) + j, of_key));
        }
        for j in 0..v {
            sources.push((index(Part::Value) + j, Source::KeysValues((n * heads + head) * own + d - k + j)));
        }
    }
    sources
}
