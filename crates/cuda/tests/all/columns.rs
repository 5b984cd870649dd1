//! Moves of columns.

use quadrille_tensor::{
    GroupShape, LatentShape, PanelShape, Shape, copy_panel_columns, join_heads, join_latent, pack_columns,
    pack_keys_values, slice_columns, split_heads, split_latent, store_panel_columns, unpack_columns,
    unpack_keys_values,
};

use crate::support::{Value, equal, in_each_format, in_every_seed, numbers, pool};

fn blocks_and_panels<S: Value>() {
    let shape = Shape { rows: 13, cols: 42 };
    let parts = 3;
    let panel = PanelShape { rows: 13, cols: 42, first: 5, count: 9 };
    let x = numbers::<S>(1, 13 * 42);
    let n = 13 * 42;
    let mut packed = x.clone();
    let mut back = x.clone();
    let mut slice = x[..13 * 14].to_vec();
    let mut few = x[..13 * 9].to_vec();
    pack_columns(&pool(), shape, parts, &x, &mut packed);
    unpack_columns(&pool(), shape, parts, &x, &mut back);
    slice_columns(&pool(), shape, 1, parts, &x, &mut slice);
    copy_panel_columns(&pool(), panel, &x, &mut few);
    let mut stored = numbers::<S>(2, n);
    let before = stored.clone();
    store_panel_columns(&pool(), panel, &few, &mut stored);
    let got = in_every_seed(|device| {
        let queue = device.queue();
        let x = device.up(&x);
        let a = device.poison::<S>(n);
        let b = device.poison::<S>(n);
        let c = device.poison::<S>(13 * 14);
        let d = device.poison::<S>(13 * 9);
        let e = device.up(&before);
        queue.pack_columns(shape, parts, x, a).unwrap();
        queue.unpack_columns(shape, parts, x, b).unwrap();
        queue.slice_columns(shape, 1, parts, x, c).unwrap();
        queue.copy_panel_columns(panel, x, d).unwrap();
        queue.store_panel_columns(panel, d, e).unwrap();
        [a, b, c, d, e].map(|x| device.down::<S>(x))
    });
    [packed, back, slice, few, stored].iter().zip(&got).for_each(|(expected, got)| equal(got, expected));
}

fn keys_and_values<S: Value>() {
    let shape = GroupShape { rows: 7, groups: 3, heads: 2, head_dim: 5, value_dim: 4 };
    let units = shape.rows * shape.groups;
    let qkv = numbers::<S>(1, units * shape.group());
    let other = numbers::<S>(2, units * shape.pair());
    let mut kv = other.clone();
    let mut back = qkv.clone();
    pack_keys_values(&pool(), shape, &qkv, &mut kv);
    unpack_keys_values(&pool(), shape, &other, &mut back);
    let got = in_every_seed(|device| {
        let queue = device.queue();
        let qkv = device.up(&qkv);
        let kv = device.poison::<S>(units * shape.pair());
        queue.pack_keys_values(shape, qkv, kv).unwrap();
        queue.unpack_keys_values(shape, device.up(&other), qkv).unwrap();
        [kv, qkv].map(|x| device.down::<S>(x))
    });
    [kv, back].iter().zip(&got).for_each(|(expected, got)| equal(got, expected));
}

/// Queries and keys apart from the values and back, beside the values that were there and beside others.
fn heads_apart<S: Value>() {
    let shape = GroupShape { rows: 7, groups: 3, heads: 2, head_dim: 5, value_dim: 4 };
    let units = shape.rows * shape.groups;
    let lens = [units * shape.queries(), units * shape.head_dim, units * shape.group()];
    let [queries, keys, qkv, beside] = [(1, 0), (2, 1), (3, 2), (4, 2)].map(|(name, of)| numbers::<S>(name, lens[of]));
    let mut q = queries.clone();
    let mut k = keys.clone();
    let mut kept = qkv.clone();
    let mut other = qkv.clone();
    split_heads(&pool(), shape, &qkv, &mut q, &mut k);
    join_heads(&pool(), shape, &queries, &keys, None, &mut kept);
    join_heads(&pool(), shape, &queries, &keys, Some(&beside), &mut other);
    let got = in_every_seed(|device| {
        let queue = device.queue();
        let [a, b, d] = [lens[0], lens[1], lens[2]].map(|len| device.poison::<S>(len));
        let queries = device.up(&queries);
        let keys = device.up(&keys);
        let c = device.up(&qkv);
        queue.split_heads(shape, c, a, b).unwrap();
        queue.join_heads(shape, queries, keys, None, c).unwrap();
        queue.join_heads(shape, queries, keys, Some(device.up(&beside)), d).unwrap();
        [a, b, c, d].map(|x| device.down::<S>(x))
    });
    [q, k, kept, other].iter().zip(&got).for_each(|(expected, got)| equal(got, expected));
}

fn joined_latent<S: Value>() {
    let shape = LatentShape { rows: 7, heads: 3, head_dim: 6, value_dim: 5, shared: 2 };
    let lens = [7 * 3 * 6, 7 * 3 * 9, 7 * 2, 7 * 3 * 17];
    let [queries, pairs, shared, dqkv] = [1, 2, 3, 4].map(|name| numbers::<S>(name, lens[name as usize - 1]));
    let mut qkv = dqkv.clone();
    let mut dq = queries.clone();
    let mut dp = pairs.clone();
    let mut ds = shared.clone();
    join_latent(&pool(), shape, &queries, &pairs, &shared, &mut qkv);
    split_latent(&pool(), shape, &dqkv, &mut dq, &mut dp, &mut ds);
    let got = in_every_seed(|device| {
        let queue = device.queue();
        let to = lens.map(|len| device.poison::<S>(len));
        let [queries, pairs, shared] = [&queries, &pairs, &shared].map(|x| device.up(x));
        queue.join_latent(shape, queries, pairs, shared, to[3]).unwrap();
        queue.split_latent(shape, device.up(&dqkv), to[0], to[1], to[2]).unwrap();
        to.map(|x| device.down::<S>(x))
    });
    [dq, dp, ds, qkv].iter().zip(&got).for_each(|(expected, got)| equal(got, expected));
}

in_each_format!(blocks_and_panels keys_and_values heads_apart joined_latent);
