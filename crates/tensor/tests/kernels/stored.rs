//! What holds of every kernel on values stored in 16 bits, but for products: its results are those of the `f32` kernel on
//! the widened values, rounded once, bit for bit.

use crate::support::{SHAPES, random};
use half::{bf16, f16};
use quadrille_tensor::{Pool, Stored};

/// A kernel, or several in a row, of some rows and columns.
pub trait Kernel {
    /// Lengths of what is stored and of what is in `f32`.
    fn lengths(rows: usize, cols: usize) -> (Vec<usize>, Vec<usize>);

    /// Runs it in place.
    fn run<S: Stored<Real = f32>>(pool: &Pool, rows: usize, cols: usize, x: &mut [Vec<S>], r: &mut [Vec<f32>]);
}

/// Defines a [`Kernel`] by the names and lengths of its slices.
macro_rules! kernel {
    ($name:ident($pool:ident, $rows:ident, $cols:ident)
        stored [$($x:ident: $x_len:expr),*] real [$($r:ident: $r_len:expr),*] $body:block) => {
        struct $name;

        impl $crate::stored::Kernel for $name {
            fn lengths($rows: usize, $cols: usize) -> (Vec<usize>, Vec<usize>) {
                let _ = ($rows, $cols);
                (vec![$($x_len),*], vec![$($r_len),*])
            }

            fn run<S: Stored<Real = f32>>(
                $pool: &Pool,
                $rows: usize,
                $cols: usize,
                x: &mut [Vec<S>],
                r: &mut [Vec<f32>],
            ) {
                let _ = ($pool, $rows, $cols);
                let [$($x),*] = x else { unreachable!() };
                let [$($r),*] = r else { unreachable!() };
                $body
            }
        }
    };
}
pub(crate) use kernel;

/// Values in [-4, 4), rounded.
pub fn numbers<S: Stored<Real = f32>>(seed: u64, len: usize) -> Vec<S> {
    random::<f32>(seed, len).into_iter().map(|x| S::rounded(x * 4.0)).collect()
}

pub fn widened<S: Stored>(x: &[S]) -> Vec<S::Real> {
    x.iter().map(|x| x.widen()).collect()
}

/// Bits that tell any two values apart.
pub fn bits<S: Stored<Real = f32>>(x: &[S]) -> Vec<u32> {
    x.iter().map(|x| x.widen().to_bits()).collect()
}

/// Where x is not what is expected, rounded by `round`.
fn difference<S: Stored<Real = f32>>(x: &[S], expected: &[f32], round: impl Fn(f32) -> S) -> Option<usize> {
    assert_eq!(x.len(), expected.len());
    let same = |(x, e): (&S, &f32)| x.widen().to_bits() == round(*e).widen().to_bits();
    x.iter().zip(expected).position(|pair| !same(pair))
}

#[track_caller]
pub fn assert_rounded<S: Stored<Real = f32>>(what: &str, x: &[S], expected: &[f32]) {
    if let Some(i) = difference(x, expected, S::rounded) {
        panic!("{} {what}[{i}] is {:?}, not {} rounded", S::NAME, x[i], expected[i]);
    }
}

/// The kernel's results in `S` and, on the widened values, in `f32`.
type Both<S> = ((Vec<Vec<S>>, Vec<Vec<f32>>), (Vec<Vec<f32>>, Vec<Vec<f32>>));

fn both<K: Kernel, S: Stored<Real = f32>>(threads: usize, rows: usize, cols: usize) -> Both<S> {
    let (stored, real) = K::lengths(rows, cols);
    let mut x: Vec<Vec<S>> = (1..).zip(stored).map(|(seed, len)| numbers(seed, len)).collect();
    let positive = |(seed, len)| random::<f32>(seed, len).into_iter().map(|x| x + 1.25).collect::<Vec<_>>();
    let mut r: Vec<Vec<f32>> = (100..).zip(real).map(positive).collect();
    let mut wide_x = x.iter().map(|x| widened(x)).collect::<Vec<_>>();
    let mut wide_r = r.clone();
    K::run(&Pool::new(threads), rows, cols, &mut x, &mut r);
    K::run(&Pool::new(1), rows, cols, &mut wide_x, &mut wide_r);
    ((x, r), (wide_x, wide_r))
}

fn check_at<K: Kernel, S: Stored<Real = f32>>(rows: usize, cols: usize) {
    for threads in [1, 2, 3] {
        let ((x, r), (wide_x, wide_r)) = both::<K, S>(threads, rows, cols);
        let what = |i: usize| format!("{rows} x {cols}, {threads} threads, slice {i}");
        x.iter().zip(&wide_x).enumerate().for_each(|(i, (x, expected))| assert_rounded(&what(i), x, expected));
        for (i, (r, expected)) in r.iter().zip(&wide_r).enumerate() {
            assert!(bits(r) == bits(expected), "{} statistics of {}", S::NAME, what(i));
        }
    }
}

/// Checks a kernel at many sizes.
pub fn check<K: Kernel>(_: K) {
    let some = random::<f64>(7, 32).chunks(2).map(|x| (x[0].abs() * 60.0, x[1].abs() * 90.0)).collect::<Vec<_>>();
    for (rows, cols) in SHAPES.into_iter().chain(some.into_iter().map(|(rows, cols)| (rows as usize, cols as usize))) {
        check_at::<K, bf16>(rows, cols);
        check_at::<K, f16>(rows, cols);
    }
}

kernel! { Scale(pool, rows, cols) stored [x: rows * cols] real [] {
    quadrille_tensor::scale(pool, x, 0.3);
} }

#[test]
fn truncation_is_told_apart() {
    let ((x, _), (wide, _)) = both::<Scale, bf16>(1, 17, 33);
    assert_eq!(difference(&x[0], &wide[0], Stored::rounded), None);
    assert!(difference(&x[0], &wide[0], |x| bf16::from_bits((x.to_bits() >> 16) as u16)).is_some());
    let ((x, _), (wide, _)) = both::<Scale, f16>(1, 17, 33);
    assert_eq!(difference(&x[0], &wide[0], Stored::rounded), None);
    let towards_zero = |x: f32| f16::from_f32(f32::from_bits(x.to_bits() & !0x1fff));
    assert!(difference(&x[0], &wide[0], towards_zero).is_some());
}

#[test]
fn scaling_rounds_once() {
    check(Scale);
}
