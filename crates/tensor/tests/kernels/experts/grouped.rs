use crate::stored::{bits, numbers};
use crate::support::{assert_close, on_any_threads, random, wide};
use half::{bf16, f16};
use proptest::prelude::*;
use quadrille_tensor::*;

/// Lengths of A, B and C.
fn lengths(shape: GroupedShape) -> (usize, usize, usize) {
    let GroupedShape { stored, blocks, segments, chunk, n, k } = shape;
    let (rows, weights) = (blocks * segments * chunk, blocks * k * n);
    if stored == Transpose::Tn { (rows * k, rows * n, weights) } else { (rows * k, weights, rows * n) }
}

/// The products by loops, added to c.
fn plain(shape: GroupedShape, a: &[f64], b: &[f64], mut c: Vec<f64>) -> Vec<f64> {
    let GroupedShape { stored, blocks, segments, chunk, n, k } = shape;
    for row in 0..segments * blocks * chunk {
        let block = row / chunk % blocks;
        for i in 0..k {
            for j in 0..n {
                let (x, y) = (a[row * k + i], (block * k + i) * n + j);
                match stored {
                    Transpose::Nn => c[row * n + j] += x * b[y],
                    Transpose::Nt => c[row * n + j] += x * b[(block * n + j) * k + i],
                    Transpose::Tn => c[y] += x * b[row * n + j],
                }
            }
        }
    }
    c
}

fn check<T: Element>(shape: GroupedShape, accumulate: bool) {
    let lengths = lengths(shape);
    let (a, b, old) = (random::<T>(1, lengths.0), random::<T>(2, lengths.1), random::<T>(3, lengths.2));
    let found = on_any_threads(|pool| {
        let mut c = if accumulate { old.clone() } else { vec![T::from_f64(f64::NAN); old.len()] };
        grouped_matmul(pool, shape, &a, &b, &mut c, accumulate);
        c
    });
    let start = if accumulate { wide(&old) } else { vec![0.0; old.len()] };
    assert_close(&format!("{shape:?}"), &found, &plain(shape, &wide(&a), &wide(&b), start));
}

/// Small integers, whose sums are exact in any order: what is stored is the sum, rounded once.
fn rounds_once<S: Stored<Real = f32>, C: Stored<Real = f32>>(shape: GroupedShape, accumulate: bool) {
    let lengths = lengths(shape);
    let values = |seed, len| numbers::<f32>(seed, len).into_iter().map(f32::round).collect::<Vec<_>>();
    let (a, b, old) = (values(1, lengths.0), values(2, lengths.1), values(3, lengths.2));
    let narrow = |x: &[f32]| x.iter().map(|x| S::rounded(*x)).collect::<Vec<_>>();
    let run = |threads: usize| {
        let mut c: Vec<C> = old.iter().map(|x| C::rounded(if accumulate { *x } else { f32::NAN })).collect();
        grouped_matmul(&Pool::new(threads), shape, &narrow(&a), &narrow(&b), &mut c, accumulate);
        c
    };
    let start = if accumulate { wide(&old) } else { vec![0.0; old.len()] };
    let expected = plain(shape, &wide(&a), &wide(&b), start);
    let expected: Vec<C> = expected.into_iter().map(|x| C::rounded(x as f32)).collect();
    let found = run(1);
    // As numbers: a sum of zeros may have either sign.
    assert_eq!(found, expected, "{} to {} {shape:?}", S::NAME, C::NAME);
    for threads in [2, 3] {
        assert!(bits(&found) == bits(&run(threads)), "{} to {} {shape:?} with {threads} threads", S::NAME, C::NAME);
    }
}

fn check_all(shape: GroupedShape) {
    for accumulate in [false, true] {
        check::<f32>(shape, accumulate);
        check::<f64>(shape, accumulate);
        rounds_once::<bf16, bf16>(shape, accumulate);
        rounds_once::<bf16, f32>(shape, accumulate);
        rounds_once::<f16, f16>(shape, accumulate);
    }
}

#[test]
fn products_of_experts_equal_loops_at_the_edges_of_tiles() {
    // Blocks, segments, rows of a piece, n, k.
    let sizes = [
        (0, 1, 3, 4, 5),
        (2, 0, 3, 4, 5),
        (2, 3, 0, 4, 5),
        (2, 3, 4, 0, 5),
        (2, 3, 4, 5, 0),
        (1, 1, 1, 1, 1),
        (3, 1, 49, 65, 2),
        (3, 4, 47, 64, 9),
        (2, 5, 13, 127, 33),
        (1, 3, 171, 63, 5),
        (2, 1, 513, 17, 3),
        (2, 2, 20, 257, 40),
        (2, 2, 9, 20, 530),
        (2, 300, 2, 20, 49),
        (5, 2, 1, 9, 10),
    ];
    for (blocks, segments, chunk, n, k) in sizes {
        for stored in Transpose::ALL {
            check_all(GroupedShape { stored, blocks, segments, chunk, n, k });
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn threads_change_no_bit_of_the_products_of_experts(
        (blocks, segments, chunk) in (1..6_usize, 1..4_usize, 0..60_usize),
        (n, k) in (0..150_usize, 0..80_usize),
        layout in 0..3_usize,
    ) {
        check_all(GroupedShape { stored: Transpose::ALL[layout], blocks, segments, chunk, n, k });
    }
}

#[test]
fn one_block_of_one_segment_is_a_product() {
    let (m, n, k) = (70, 65, 33);
    for stored in Transpose::ALL {
        let (a, b) = (random::<f64>(1, m * k), random::<f64>(2, if stored == Transpose::Tn { m * n } else { k * n }));
        let shape = GroupedShape { stored, blocks: 1, segments: 1, chunk: m, n, k };
        let product = match stored {
            Transpose::Tn => ProductShape { stored, m: k, n, k: m },
            _ => ProductShape { stored, m, n, k },
        };
        let mut found = vec![f64::NAN; product.m * n];
        let mut expected = found.clone();
        grouped_matmul(&Pool::new(1), shape, &a, &b, &mut found, false);
        matmul(&Pool::new(1), product, &a, &b, &mut expected, false);
        assert_close(&format!("{shape:?}"), &found, &expected);
    }
}
