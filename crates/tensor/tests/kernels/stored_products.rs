//! Products of operands stored in 16 bits, within the bound of a sum in `f32`.

use crate::stored::{bits, numbers};
use half::{bf16, f16};
use proptest::prelude::*;
use quadrille_tensor::*;

/// By element the exact product of the widened operands, and the sum of the terms' magnitudes.
fn exact<S: Stored<Real = f32>>(shape: ProductShape, a: &[S], b: &[S]) -> Vec<(f64, f64)> {
    let ProductShape { stored, m, n, k } = shape;
    let a = |i: usize, p: usize| f64::from(a[if stored == Transpose::Tn { p * m + i } else { i * k + p }].widen());
    let b = |p: usize, j: usize| f64::from(b[if stored == Transpose::Nt { j * k + p } else { p * n + j }].widen());
    let terms = |at: usize| (0..k).map(move |p| a(at / n, p) * b(p, at % n));
    (0..m * n).map(|at| (terms(at).sum(), terms(at).map(f64::abs).sum())).collect()
}

/// Half a unit in the last place of `S` relative to a value, and the same of its smallest number.
fn unit<S: Stored>() -> (f64, f64) {
    match S::NAME {
        "bf16" => (2.0_f64.powi(-8), 2.0_f64.powi(-134)),
        "f16" => (2.0_f64.powi(-11), 2.0_f64.powi(-25)),
        _ => (2.0_f64.powi(-24), 2.0_f64.powi(-150)),
    }
}

/// Products within k + 2 roundings in `f32` of all terms' magnitudes, and one of what is stored; on any number of threads
/// the same bits.
fn check<S: Stored<Real = f32>, C: Stored<Real = f32>>(shape: ProductShape, accumulate: bool) {
    let ProductShape { m, n, k, .. } = shape;
    let a: Vec<S> = numbers(1, m * k);
    let b: Vec<S> = numbers(2, k * n);
    let old: Vec<C> = numbers(3, m * n);
    let run = |threads: usize| {
        let mut c = if accumulate { old.clone() } else { vec![C::rounded(f32::NAN); m * n] };
        matmul(&Pool::new(threads), shape, &a, &b, &mut c, accumulate);
        c
    };
    let c = run(1);
    for threads in [2, 3] {
        assert!(bits(&c) == bits(&run(threads)), "{} {shape:?} with {threads} threads", S::NAME);
    }
    for (i, (sum, magnitude)) in exact(shape, &a, &b).into_iter().enumerate() {
        let old = if accumulate { f64::from(old[i].widen()) } else { 0.0 };
        let summing = (k + 2) as f64 * 2.0_f64.powi(-24) * (magnitude + old.abs());
        let (relative, smallest) = unit::<C>();
        let error = (f64::from(c[i].widen()) - (sum + old)).abs();
        let bound = summing + relative * ((sum + old).abs() + summing) + smallest;
        assert!(error <= bound, "{} to {} {shape:?} [{i}]: {:?}, not {}", S::NAME, C::NAME, c[i], sum + old);
    }
}

fn check_all(shape: ProductShape, accumulate: bool) {
    check::<bf16, bf16>(shape, accumulate);
    check::<bf16, f32>(shape, accumulate);
    check::<f16, f16>(shape, accumulate);
    check::<f16, f32>(shape, accumulate);
}

#[test]
fn products_are_within_their_bound_at_the_edges_of_tiles_and_blocks() {
    let sizes =
        [(0, 3, 2), (3, 0, 2), (3, 2, 0), (1, 1, 1), (1, 40, 9), (40, 1, 9), (14, 32, 2), (15, 33, 3), (13, 31, 31)];
    let larger =
        [(29, 65, 33), (225, 17, 16), (17, 513, 65), (300, 270, 17), (9, 10, 2049), (20, 40, 4099), (1030, 5, 7)];
    for (m, n, k) in sizes.into_iter().chain(larger) {
        for stored in Transpose::ALL {
            check_all(ProductShape { stored, m, n, k }, false);
            check_all(ProductShape { stored, m, n, k }, true);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn products_of_any_size_are_within_their_bound(
        (m, n, k) in prop_oneof![(0..80_usize, 0..80_usize, 0..80_usize), (1..500_usize, 1..500_usize, 1..20_usize)],
        layout in 0..3_usize,
        accumulate: bool,
    ) {
        check_all(ProductShape { stored: Transpose::ALL[layout], m, n, k }, accumulate);
    }
}

/// Small integers are summed without rounding, so that the stored result is the exact one, rounded once.
fn check_once<S: Stored<Real = f32>>(k: usize) {
    let shape = ProductShape { stored: Transpose::Nt, m: 5, n: 37, k };
    let integers =
        |seed: u64, len: usize| numbers::<f32>(seed, len).iter().map(|x| S::rounded(x.round())).collect::<Vec<_>>();
    let a = integers(1, 5 * k);
    let b = integers(2, 37 * k);
    let old = integers(3, 5 * 37);
    let mut c = old.clone();
    matmul(&Pool::new(2), shape, &a, &b, &mut c, true);
    for (i, (sum, _)) in exact(shape, &a, &b).into_iter().enumerate() {
        let expected = S::rounded(sum as f32 + old[i].widen());
        assert_eq!(c[i].widen(), expected.widen(), "{} {shape:?} [{i}]", S::NAME);
    }
}

#[test]
fn a_product_is_added_whole_and_rounded_once() {
    for k in [0, 1, 2, 99, 1000, 5001] {
        check_once::<bf16>(k);
        check_once::<f16>(k);
    }
}

/// Operands may be transposed apart, and a copy gives the same product.
fn check_as<S: Stored<Real = f32>>(m: usize, n: usize, k: usize) {
    for (stored, run_as) in Transpose::ALL.into_iter().flat_map(|stored| Transpose::ALL.map(|run_as| (stored, run_as)))
    {
        let shape = ProductShape { stored, m, n, k };
        let pool = Pool::new(2);
        let a: Vec<S> = numbers(1, m * k);
        let b: Vec<S> = numbers(2, k * n);
        let mut c = vec![0.0_f32; m * n];
        let mut direct = vec![0.0_f32; m * n];
        matmul_as(&pool, run_as, shape, &a, &b, &mut c, false, &mut Buffer::new(0));
        matmul(&pool, shape, &a, &b, &mut direct, false);
        assert!(bits(&c) == bits(&direct), "{} {shape:?} as {run_as:?}", S::NAME);
    }
}

#[test]
fn products_run_in_another_layout_have_the_same_bits() {
    for (m, n, k) in [(1, 1, 1), (17, 40, 33), (70, 129, 65)] {
        check_as::<bf16>(m, n, k);
        check_as::<f16>(m, n, k);
    }
}
