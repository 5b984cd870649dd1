//! Seconds of a piece of work, the middle of several, and operands to work on.

use std::error::Error;
use std::time::Instant;

use quadrille_tensor::{Buffer, Element, Stored};

/// Why a rank stopped.
pub type Fault = Box<dyn Error + Send + Sync>;

/// Seconds that `work` takes.
pub fn seconds(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_secs_f64()
}

/// The middle of the values, the mean of the two middle ones of an even number; 0 of none.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    quantile(&values, 0.5)
}

/// Between the two nearest of the ascending values, by their distance; 0 of none.
pub fn quantile(ascending: &[f64], part: f64) -> f64 {
    let Some(last) = ascending.len().checked_sub(1) else { return 0.0 };
    let place = part * last as f64;
    let (below, above) = (place.floor() as usize, place.ceil() as usize);
    ascending[below] + (place - below as f64) * (ascending[above] - ascending[below])
}

/// Numbers in [-1/2, 1/2) without a pattern that a product could profit from.
pub fn filled<S: Stored>(len: usize) -> Buffer<S> {
    Buffer::from_fn(len, |at| {
        let bits = (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        S::rounded(S::Real::from_f64(bits as f64 / (1u64 << 24) as f64 - 0.5))
    })
}

#[cfg(test)]
mod tests {
    use super::median;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(median(vec![]), 0.0);
    }
}
