//! The normal distribution.

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};

/// Beyond this the continued fraction converges faster than the series.
const FAR: f64 = 2.0;

/// The part of it below `x`.
pub(crate) fn below(x: f64) -> f64 {
    let above = 0.5 * complement(x.abs() * FRAC_1_SQRT_2);
    if x > 0.0 { 1.0 - above } else { above }
}

/// Its density at `x`.
pub(crate) fn density(x: f64) -> f64 {
    0.5 * FRAC_2_SQRT_PI * FRAC_1_SQRT_2 * (-0.5 * x * x).exp()
}

/// `1 - erf(z)`, `z` not below 0 (Abramowitz and Stegun, 7.1.6 and 7.1.14).
fn complement(z: f64) -> f64 {
    let weight = FRAC_2_SQRT_PI * (-z * z).exp();
    if z < FAR {
        // z + 2 z^3 / 3 + 4 z^5 / 15 + ...
        let mut term = z;
        let mut sum = z;
        for n in 1..100 {
            term *= 2.0 * z * z / f64::from(2 * n + 1);
            sum += term;
        }
        1.0 - weight * sum
    } else {
        // 1 / (z + 1/2 / (z + 1 / (z + 3/2 / (z + ...))))
        let fraction = (1..=200).rev().fold(z, |below, n| z + 0.5 * f64::from(n) / below);
        0.5 * weight / fraction
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Abramowitz and Stegun, table 26.1, and the tail at 5.
    #[test]
    fn parts_are_those_of_tables() {
        for (x, part) in [
            (0.0, 0.5),
            (1.0, 0.841_344_746_068_542_9),
            (2.0, 0.977_249_868_051_820_8),
            (3.0, 0.998_650_101_968_369_9),
            (-1.0, 0.158_655_253_931_457_05),
            (-5.0, 2.866_515_718_791_939e-7),
        ] {
            assert!((below(x) - part).abs() <= 1e-14 * part, "{x}: {} instead of {part}", below(x));
        }
    }

    /// Both ways to compute it agree where one takes over, and the density is the slope.
    #[test]
    fn the_parts_are_smooth() {
        let at = FAR / FRAC_1_SQRT_2;
        let left = below(-at * (1.0 - 1e-15));
        let right = below(-at * (1.0 + 1e-15));
        assert!((left - right).abs() < 1e-12 * right, "{left} and {right}");
        for x in [-4.0, -2.9, -1.0, 0.0, 0.5, 2.0] {
            let slope = (below(x + 1e-5) - below(x - 1e-5)) / 2e-5;
            assert!((slope - density(x)).abs() < 1e-9, "{x}: {slope}");
        }
    }
}
