use crate::support::{assert_close, on_any_threads, random};
use quadrille_tensor::*;

fn check<T: Element>(layout: Transpose, m: usize, n: usize, k: usize) {
    let a = random::<T>(1, m * k);
    let b = random::<T>(2, k * n);
    let found = on_any_threads(|pool: &Pool| {
        let mut c = vec![T::from_f64(f64::NAN); m * n];
        matmul_few_rows(pool, ProductShape { stored: layout, m, n, k }, &a, &b, &mut c);
        c
    });
    let at = |p: usize, j: usize| if layout == Transpose::Nt { j * k + p } else { p * n + j };
    let product = |i: usize, j: usize| (0..k).map(|p| a[i * k + p].to_f64() * b[at(p, j)].to_f64()).sum::<f64>();
    let exact: Vec<f64> = (0..m * n).map(|at| product(at / n, at % n)).collect();
    assert_close(&format!("{layout:?} {m}x{n}x{k}"), &found, &exact);
}

#[test]
fn products_of_few_rows_equal_loops() {
    for layout in [Transpose::Nn, Transpose::Nt] {
        let sizes = [(1, 1, 1), (1, 7, 5), (3, 130, 33), (1, 1000, 200), (15, 700, 129), (2, 64, 0), (0, 5, 3)];
        // Around four rows of B at a time, 32 lanes of a sum, and pieces of 32768 elements of B.
        let depths = [2, 3, 4, 6, 7, 8, 31, 32].map(|k| (2, 9, k));
        let pieces = [127, 128, 129, 255, 256, 257].map(|n| (3, n, 256));
        for (m, n, k) in sizes.into_iter().chain(depths).chain(pieces) {
            check::<f64>(layout, m, n, k);
            check::<f32>(layout, m, n, k);
        }
    }
}
