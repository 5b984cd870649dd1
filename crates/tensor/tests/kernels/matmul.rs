use crate::support::{assert_close, on_any_threads, random, wide};
use proptest::prelude::*;
use quadrille_tensor::{Buffer, Element, Pool, ProductShape, Transpose, library_matmul, matmul, matmul_as};

/// op(A) op(B) + c by loops.
fn plain(layout: Transpose, m: usize, n: usize, k: usize, a: &[f64], b: &[f64], c: &[f64]) -> Vec<f64> {
    let mut c = c.to_vec();
    for i in 0..m {
        for j in 0..n {
            for l in 0..k {
                let a = if layout == Transpose::Tn { a[l * m + i] } else { a[i * k + l] };
                let b = if layout == Transpose::Nt { b[j * k + l] } else { b[l * n + j] };
                c[i * n + j] += a * b;
            }
        }
    }
    c
}

fn check<T: Element>(layout: Transpose, m: usize, n: usize, k: usize, accumulate: bool) {
    let a = random::<T>(1, m * k);
    let b = random::<T>(2, k * n);
    let old = random::<T>(3, m * n);
    let what = format!("{layout:?} {m}x{n}x{k}");
    let c = on_any_threads(|pool| {
        let mut c = old.clone();
        matmul(pool, ProductShape { stored: layout, m, n, k }, &a, &b, &mut c, accumulate);
        c
    });
    let start = if accumulate { wide(&old) } else { vec![0.0; m * n] };
    let expected = plain(layout, m, n, k, &wide(&a), &wide(&b), &start);
    assert_close(&what, &c, &expected);

    let mut library = old.clone();
    library_matmul(2, ProductShape { stored: layout, m, n, k }, &a, &b, &mut library, accumulate);
    assert_close(&what, &library, &expected);

    for stored in Transpose::ALL {
        let mut c = old.clone();
        matmul_as(
            &Pool::new(2),
            layout,
            ProductShape { stored, m, n, k },
            &a,
            &b,
            &mut c,
            accumulate,
            &mut Buffer::new(0),
        );
        assert_close(&format!("{what} stored {stored:?}"), &c, &plain(stored, m, n, k, &wide(&a), &wide(&b), &start));
    }
}

#[test]
fn products_equal_loops_at_the_edges_of_the_librarys_code_paths() {
    let sizes = [(0, 3, 2), (3, 2, 0), (1, 1, 1), (1, 300, 9), (300, 1, 9), (2, 300, 2), (300, 2, 5), (16, 16, 40)];
    let larger = [
        (64, 64, 70),
        (15, 257, 33),
        (257, 15, 33),
        (1100, 65, 40),
        (70, 66, 600),
        (16, 258, 30),
        (65, 129, 600),
        (300, 270, 17),
    ];
    for (m, n, k) in sizes.into_iter().chain(larger) {
        for layout in Transpose::ALL {
            for accumulate in [false, true] {
                check::<f32>(layout, m, n, k, accumulate);
                check::<f64>(layout, m, n, k, accumulate);
            }
        }
    }
}

/// Only the product, at sizes where each dimension is cut or an operand is transposed apart.
fn check_once<T: Element>(layout: Transpose, m: usize, n: usize, k: usize) {
    let a = random::<T>(1, m * k);
    let b = random::<T>(2, k * n);
    let c = on_any_threads(|pool| {
        let mut c = vec![T::from_f64(f64::NAN); m * n];
        matmul(pool, ProductShape { stored: layout, m, n, k }, &a, &b, &mut c, false);
        c
    });
    assert_close(
        &format!("{layout:?} {m}x{n}x{k}"),
        &c,
        &plain(layout, m, n, k, &wide(&a), &wide(&b), &vec![0.0; m * n]),
    );
}

#[test]
fn products_equal_loops_on_both_sides_of_every_size_at_which_they_are_cut() {
    let around = |size: usize| [size - 1, size, size + 1];
    let mut sizes = Vec::new();
    // Pieces of 128 of one side, if the other has 16: by rows and by columns.
    for long in around(256).into_iter().chain(around(384)) {
        sizes.extend(around(16).into_iter().flat_map(|short| [(long, short, 9), (short, long, 9)]));
    }
    // From where on an operand is transposed apart.
    sizes.extend(around(64).map(|n| (130, n, 20)));
    sizes.extend(around(64).into_iter().flat_map(|m| around(128).map(|n| (m, n, 20))));
    // Blocks of what is transposed: their depth, rows and columns.
    sizes.extend([511, 512, 513, 1024, 1025].into_iter().flat_map(|k| [(65, 64, k), (64, 129, k)]));
    sizes.extend(around(1024).map(|m| (m, 64, 18)));
    sizes.extend(around(256).into_iter().chain(around(512)).map(|n| (64, n, 18)));
    for (m, n, k) in sizes {
        for layout in Transpose::ALL {
            check_once::<f32>(layout, m, n, k);
            check_once::<f64>(layout, m, n, k);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn threads_change_no_bit_of_a_product(
        (m, n, k) in prop_oneof![(1..80_usize, 1..80_usize, 1..80_usize), (1..700_usize, 1..700_usize, 1..40_usize)],
        layout in 0..3_usize,
        accumulate: bool,
    ) {
        check::<f32>(Transpose::ALL[layout], m, n, k, accumulate);
        check::<f64>(Transpose::ALL[layout], m, n, k, accumulate);
    }
}

#[test]
fn nothing_to_contract_gives_zeros() {
    for layout in Transpose::ALL {
        for (m, n) in [(300, 200), (2000, 100), (100, 2000)] {
            let c = on_any_threads(|pool| {
                let mut c = random::<f32>(1, m * n);
                matmul::<f32, f32>(pool, ProductShape { stored: layout, m, n, k: 0 }, &[], &[], &mut c, false);
                c
            });
            assert!(c.iter().all(|c| *c == 0.0), "{layout:?} {m}x{n}x0");
        }
    }
}
