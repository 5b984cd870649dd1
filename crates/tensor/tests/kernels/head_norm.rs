use crate::support::{assert_close, assert_gradient, dot, on_any_threads, random, wide};
use quadrille_tensor::*;

/// Every normed head of a row, by its first column.
fn heads(norm: HeadNorm) -> Vec<usize> {
    let of_group = |group: usize| {
        let heads = if norm.keys { norm.heads..norm.heads + 1 } else { 0..norm.heads };
        heads.map(move |head| group * group_cols(norm) + head * norm.head_dim)
    };
    (0..norm.groups).flat_map(of_group).collect()
}

fn group_cols(norm: HeadNorm) -> usize {
    (norm.heads + 1) * norm.head_dim + norm.value_dim
}

/// The norm by loops.
fn plain(norm: HeadNorm, x: &[f64], gamma: &[f64], beta: Option<&[f64]>) -> Vec<f64> {
    let d = norm.head_dim;
    let mut y = x.to_vec();
    let cols = norm.groups * group_cols(norm);
    for row in 0..x.len() / cols {
        for head in heads(norm) {
            let at = row * cols + head;
            let of = &x[at..at + d];
            let mean = if norm.centered { of.iter().sum::<f64>() / d as f64 } else { 0.0 };
            let square = of.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / d as f64;
            for i in 0..d {
                let normed = (of[i] - mean) / (square + norm.eps).sqrt();
                y[at + i] = normed * gamma[i] + beta.map_or(0.0, |beta| beta[i]);
            }
        }
    }
    y
}

fn check<T: Element>(norm: HeadNorm, rows: usize) {
    let d = norm.head_dim;
    let len = rows * norm.groups * group_cols(norm);
    let x = random::<T>(1, len);
    let dy = random::<T>(2, len);
    let gamma = random::<T>(3, d);
    let beta = norm.centered.then(|| random::<T>(4, d));
    let all = on_any_threads(|pool| {
        let mut y = x.clone();
        let mut dx = dy.clone();
        let mut dgamma = vec![T::ONE; d];
        let mut dbeta = vec![T::ONE; d];
        let normed = head_norm_forward(pool, norm, &gamma, beta.as_deref(), &mut y);
        let of_beta = norm.centered.then_some(&mut dbeta[..]);
        assert_eq!(head_norm_backward(pool, norm, &x, &gamma, &mut dx, &mut dgamma, of_beta, true), normed);
        assert_eq!(normed, rows * heads(norm).len() * d);
        [y, dx, dgamma, dbeta].concat()
    });
    let (y, rest) = all.split_at(len);
    let (dx, rest) = rest.split_at(len);
    let (dgamma, dbeta) = rest.split_at(d);
    let what = format!("{norm:?}, {rows} rows");
    let x = wide(&x);
    let dy = wide(&dy);
    let gamma = wide(&gamma);
    let beta = beta.map(|beta| wide(&beta));
    let beta = beta.as_deref();
    assert_close(&format!("y of {what}"), y, &plain(norm, &x, &gamma, beta));
    if T::NAME != "f64" {
        return;
    }
    assert_gradient(&what, &x, &wide(dx), |x| dot(&plain(norm, x, &gamma, beta), &dy));
    // One was there before.
    let less = |sums: &[T]| wide(sums).iter().map(|sum| sum - 1.0).collect::<Vec<_>>();
    assert_gradient(&format!("gamma of {what}"), &gamma, &less(dgamma), |gamma| {
        dot(&plain(norm, &x, gamma, beta), &dy)
    });
    if let Some(beta) = beta {
        assert_gradient(&format!("beta of {what}"), beta, &less(dbeta), |beta| {
            dot(&plain(norm, &x, &gamma, Some(beta)), &dy)
        });
    }
}

#[test]
fn head_norms_equal_loops_and_differences() {
    for (rows, groups, heads, head_dim) in [(1, 1, 1, 1), (3, 2, 1, 4), (5, 1, 3, 6), (2, 2, 2, 17), (0, 1, 1, 2)] {
        for (keys, centered) in [(false, false), (true, false), (false, true), (true, true)] {
            for value_dim in [head_dim, head_dim + 3] {
                let norm = HeadNorm { groups, heads, head_dim, value_dim, keys, centered, eps: 0.1 };
                check::<f32>(norm, rows);
                check::<f64>(norm, rows);
            }
        }
    }
}
