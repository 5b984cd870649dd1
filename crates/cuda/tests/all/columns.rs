//! Moves of columns.

use quadrille_tensor::{
    GroupShape, JoinShape, PanelShape, Shape, copy_panel_columns, join_heads, pack_columns, pack_keys_values,
    slice_columns, split_heads, store_panel_columns, unpack_columns, unpack_keys_values,
};

use crate::support::{Value, equal, in_each_format, in_every_seed, numbers, pool};

fn blocks_and_panels<S: Value>() {
    let (shape, parts) = (Shape { rows: 13, cols: 42 }, 3);
    let panel = PanelShape { rows: 13, cols: 42, first: 5, count: 9 };
    let (x, n) = (numbers::<S>(1, 13 * 42), 13 * 42);
    let (mut packed, mut back, mut slice, mut few) = (x.clone(), x.clone(), x[..13 * 14].to_vec(), x[..13 * 9].to_vec());
    pack_columns(&pool(), shape, parts, &x, &mut packed);
    unpack_columns(&pool(), shape, parts, &x, &mut back);
    slice_columns(&pool(), shape, 1, parts, &x, &mut slice);
    copy_panel_columns(&pool(), panel, &x, &mut few);
    let mut stored = numbers::<S>(2, n);
    let before = stored.clone();
    store_panel_columns(&pool(), panel, &few, &mut stored);
    let got = in_every_seed(|device| {
        let (queue, x) = (device.queue(), device.up(&x));
        let (a, b, c, d) = (device.poison::<S>(n), device.poison::<S>(n), device.poison::<S>(13 * 14), device.poison::<S>(13 * 9));
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
    let (qkv, other) = (numbers::<S>(1, units * shape.group()), numbers::<S>(2, units * shape.pair()));
    let (mut kv, mut back) = (other.clone(), qkv.clone());
    pack_keys_values(&pool(), shape, &qkv, &mut kv);
    unpack_keys_values(&pool(), shape, &other, &mut back);
    let got = in_every_seed(|device| {
        let (queue, qkv, kv) = (device.queue(), device.up(&qkv), device.poison::<S>(units * shape.pair()));
        queue.pack_keys_values(shape, qkv, kv).unwrap();
        queue.unpack_keys_values(shape, device.up(&other), qkv).unwrap();
        [kv, qkv].map(|x| device.down::<S>(x))
    });
    [kv, back].iter().zip(&got).for_each(|(expected, got)| equal(got, expected));
}

fn joined_heads<S: Value>() {
    let shape = JoinShape { rows: 7, heads: 3, head_dim: 6, value_dim: 5, shared: 2 };
    let lens = [7 * 3 * 6, 7 * 3 * 9, 7 * 2, 7 * 3 * 17];
    let [queries, pairs, shared, dqkv] = [1, 2, 3, 4].map(|name| numbers::<S>(name, lens[name as usize - 1]));
    let (mut qkv, mut dq, mut dp, mut ds) = (dqkv.clone(), queries.clone(), pairs.clone(), shared.clone());
    join_heads(&pool(), shape, &queries, &pairs, &shared, &mut qkv);
    split_heads(&pool(), shape, &dqkv, &mut dq, &mut dp, &mut ds);
    let got = in_every_seed(|device| {
        let (queue, to) = (device.queue(), lens.map(|len| device.poison::<S>(len)));
        let [queries, pairs, shared] = [&queries, &pairs, &shared].map(|x| device.up(x));
        queue.join_heads(shape, queries, pairs, shared, to[3]).unwrap();
        queue.split_heads(shape, device.up(&dqkv), to[0], to[1], to[2]).unwrap();
        to.map(|x| device.down::<S>(x))
    });
    [dq, dp, ds, qkv].iter().zip(&got).for_each(|(expected, got)| equal(got, expected));
}

in_each_format!(blocks_and_panels keys_and_values joined_heads);
