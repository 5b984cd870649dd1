use crate::support::{on_any_threads, random};
use quadrille_tensor::*;

const SHAPES: [LatentShape; 5] = [
    LatentShape { rows: 0, heads: 1, head_dim: 2, value_dim: 1, shared: 1 },
    LatentShape { rows: 1, heads: 1, head_dim: 2, value_dim: 1, shared: 1 },
    LatentShape { rows: 5, heads: 3, head_dim: 6, value_dim: 4, shared: 2 },
    LatentShape { rows: 301, heads: 2, head_dim: 7, value_dim: 9, shared: 5 },
    LatentShape { rows: 40, heads: 16, head_dim: 24, value_dim: 16, shared: 8 },
];

/// Every column of a row of `qkv`: of queries (0), of `pairs` (1) or of `shared` (2), and which.
fn sources(shape: LatentShape) -> Vec<(usize, usize)> {
    let LatentShape { heads, head_dim: d, value_dim: v, shared: k, .. } = shape;
    let of_head = |head: usize| {
        let query = (0..d).map(move |i| (0, head * d + i));
        let shared = (0..k).map(|i| (2, i));
        query.chain(shared).chain((0..d - k + v).map(move |i| (1, head * (d - k + v) + i)))
    };
    (0..heads).flat_map(of_head).collect()
}

fn check<T: Element>(shape: LatentShape) {
    let LatentShape { rows, heads, head_dim: d, value_dim: v, shared: k, .. } = shape;
    let widths = [heads * d, heads * (d - k + v), k];
    let parts: Vec<Vec<T>> = widths.iter().zip(1..).map(|(width, seed)| random(seed, rows * width)).collect();
    let columns = sources(shape);
    let qkv = on_any_threads(|pool| {
        let mut qkv = vec![T::ONE; rows * columns.len()];
        join_latent(pool, shape, &parts[0], &parts[1], &parts[2], &mut qkv);
        qkv
    });
    for (at, value) in qkv.iter().enumerate() {
        let row = at / columns.len();
        let (part, col) = columns[at % columns.len()];
        assert_eq!(*value, parts[part][row * widths[part] + col], "{shape:?}, {at}");
    }

    let dqkv = random::<T>(4, qkv.len());
    let split = on_any_threads(|pool| {
        let [mut dqueries, mut dpairs, mut dshared] = widths.map(|width| vec![T::ONE; rows * width]);
        split_latent(pool, shape, &dqkv, &mut dqueries, &mut dpairs, &mut dshared);
        [dqueries, dpairs, dshared].concat()
    });
    let mut expected = widths.map(|width| vec![T::ZERO; rows * width]);
    for (at, value) in dqkv.iter().enumerate() {
        let row = at / columns.len();
        let (part, col) = columns[at % columns.len()];
        expected[part][row * widths[part] + col] += *value;
    }
    assert_eq!(split, expected.concat(), "{shape:?}");
}

#[test]
fn heads_are_joined_and_split_column_by_column() {
    for shape in SHAPES {
        check::<f32>(shape);
        check::<f64>(shape);
    }
}
