//! The smallest of the largest keys, found without holding them.

/// Bits of a key that are looked at in one pass.
const BITS: u32 = 16;

/// What a weight is ordered by: larger magnitudes are larger keys, and what was pruned before is below all of them.
pub(super) fn key(weight: f64, kept: bool) -> u64 {
    if kept { 1 + weight.abs().to_bits() } else { 0 }
}

/// Where the kept keys end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Threshold {
    /// Larger keys are kept.
    key: u64,
    /// So many of the keys that are equal to it are kept, the first ones.
    ties: u64,
}

impl Threshold {
    /// Keeps all but what was pruned before.
    pub const PRUNED_BEFORE: Self = Self { key: 0, ties: 0 };

    /// Keeps the `count` largest of the keys that `all` tells, in the same order each time that it is called. There are at
    /// least so many.
    ///
    /// # Errors
    /// Those of `all`.
    pub fn of<E>(count: u64, mut all: impl FnMut(&mut dyn FnMut(u64)) -> Result<(), E>) -> Result<Self, E> {
        if count == 0 {
            return Ok(Self { key: u64::MAX, ties: 0 });
        }
        let mut prefix = 0;
        let mut ties = count;
        for shift in (0..u64::BITS).step_by(BITS as usize).rev() {
            let mut counts = vec![0_u64; 1 << BITS];
            all(&mut |key| {
                if key.checked_shr(shift + BITS).unwrap_or(0) == prefix {
                    counts[(key >> shift) as usize & ((1 << BITS) - 1)] += 1;
                }
            })?;
            let mut digit = counts.len() - 1;
            while counts[digit] < ties {
                ties -= counts[digit];
                digit -= 1;
            }
            prefix = prefix << BITS | digit as u64;
        }
        Ok(Self { key: prefix, ties })
    }

    /// Whether the next key is kept.
    pub fn keeps(&mut self, key: u64) -> bool {
        let is_kept = key > self.key || key == self.key && self.ties > 0;
        self.ties -= u64::from(is_kept && key == self.key);
        is_kept
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// As sorting would: larger first, and of equal ones the first.
        #[test]
        fn the_largest_are_kept_and_of_equal_ones_the_first(
            weights in prop::collection::vec(prop_oneof![Just(0.5), Just(-0.5), Just(0.0), any::<f64>()], 1..60),
            dropped in prop::collection::vec(any::<bool>(), 60),
            part in 0.0..=1.0_f64,
        ) {
            let keys: Vec<u64> = weights.iter().zip(&dropped).map(|(weight, dropped)| key(*weight, !dropped)).collect();
            let count = (part * weights.len() as f64) as usize;
            let mut order: Vec<usize> = (0..keys.len()).collect();
            order.sort_by_key(|index| (std::cmp::Reverse(keys[*index]), *index));
            let mut expected = order[..count].to_vec();
            expected.sort_unstable();

            let found = Threshold::of(count as u64, |tell| {
                keys.iter().for_each(|key| tell(*key));
                Ok::<_, Infallible>(())
            });
            let Ok(mut threshold) = found;
            let kept: Vec<usize> = (0..keys.len()).filter(|index| threshold.keeps(keys[*index])).collect();
            prop_assert_eq!(kept, expected);
        }
    }

    #[test]
    fn larger_magnitudes_are_larger_keys() {
        let ordered = [
            key(7.0, false),
            key(0.0, true),
            key(-1e-300, true),
            key(0.5, true),
            key(-0.75, true),
            key(f64::NAN, true),
        ];
        assert!(ordered.is_sorted_by(|a, b| a < b), "{ordered:?}");
    }
}
