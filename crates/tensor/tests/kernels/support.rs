//! Random inputs, tolerances, finite differences.

use quadrille_tensor::{Element, Pool};

/// The numbers of threads that must agree to the bit.
pub const THREADS: [usize; 4] = [1, 2, 3, 5];

/// Deterministic values in [-1, 1) for a seed.
pub fn random<T: Element>(seed: u64, len: usize) -> Vec<T> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f64 / f64::from(1 << 23) - 1.0
    };
    next();
    (0..len).map(|_| T::from_f64(next())).collect()
}

pub fn wide<T: Element>(x: &[T]) -> Vec<f64> {
    x.iter().map(|x| x.to_f64()).collect()
}

/// The unit of rounding, times a margin for sums of some thousand terms.
pub fn tolerance<T: Element>() -> f64 {
    if T::NAME == "f32" { 2e-5 } else { 1e-12 }
}

/// Asserts that x equals the expectation relative to the larger of 1 and its largest element.
#[track_caller]
pub fn assert_close<T: Element>(what: &str, x: &[T], expected: &[f64]) {
    assert_eq!(x.len(), expected.len(), "{what}");
    let scale = expected.iter().fold(1.0, |m: f64, e| m.max(e.abs()));
    for (i, (x, e)) in x.iter().zip(expected).enumerate() {
        let error = (x.to_f64() - e).abs();
        assert!(error <= tolerance::<T>() * scale, "{} {what}[{i}] is {x}, not {e}", T::NAME);
    }
}

/// Runs `kernel` on pools of several sizes, asserts that all results have the same bits, and
/// returns them.
#[track_caller]
pub fn on_any_threads<T: Element>(kernel: impl Fn(&Pool) -> Vec<T>) -> Vec<T> {
    let bits = |x: &[T]| x.iter().map(|x| x.to_f64().to_bits()).collect::<Vec<_>>();
    let first = kernel(&Pool::new(1));
    for threads in &THREADS[1..] {
        let other = kernel(&Pool::new(*threads));
        assert!(bits(&first) == bits(&other), "{} with {threads} threads", T::NAME);
    }
    first
}

/// Asserts that `gradient` is that of `f` at x, by central differences in `f64`.
#[track_caller]
pub fn assert_gradient(what: &str, x: &[f64], gradient: &[f64], f: impl Fn(&[f64]) -> f64) {
    const STEP: f64 = 1e-5;
    assert_eq!(x.len(), gradient.len(), "{what}");
    let mut x = x.to_vec();
    for (i, g) in gradient.iter().enumerate() {
        let centre = x[i];
        let mut at = |value: f64| {
            x[i] = value;
            f(&x)
        };
        let slope = (at(centre + STEP) - at(centre - STEP)) / (2.0 * STEP);
        x[i] = centre;
        assert!((slope - g).abs() <= 1e-7 * (1.0 + g.abs()), "{what}[{i}] is {g}, not {slope}");
    }
}

/// The sum of products of two arrays: a scalar function of a kernel's output.
pub fn dot(x: &[f64], y: &[f64]) -> f64 {
    x.iter().zip(y).map(|(x, y)| x * y).sum()
}

/// Shapes (rows, cols) that are empty, tiny, odd, and large enough to be divided: also on both sides of the 32 lanes of a
/// sum along a row, of the 16 blocks of rows of a column sum, and of one and two pieces of 32768 elements.
pub const SHAPES: [(usize, usize); 13] = [
    (0, 5),
    (1, 1),
    (3, 7),
    (15, 31),
    (16, 32),
    (17, 33),
    (40, 96),
    (64, 512),
    (65, 512),
    (128, 512),
    (129, 511),
    (301, 515),
    (2, 40_000),
];

/// Lengths of flat arrays on both sides of 32 lanes, of a cache line of 64, of one and several pieces of 32768 elements,
/// and of blocks of 65536.
pub const LENGTHS: [usize; 18] =
    [0, 1, 31, 32, 33, 63, 64, 65, 1000, 32_767, 32_768, 32_769, 65_535, 65_536, 65_537, 131_072, 131_073, 200_003];
