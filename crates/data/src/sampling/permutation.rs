//! An order of numbers that is computed, not stored.

use quadrille_spec::RandomStream;

/// Rounds of the network: each mixes one half with a random function of the other. Four suffice to look random to whoever
/// sees a few numbers (Luby and Rackoff); small domains want more.
const ROUNDS: u64 = 8;

/// A keyed bijection on `0..len`: a Feistel network over the least power of four that holds them, walked along its cycle
/// until it comes back among them (Black and Rogaway, 2002). Takes no memory; on average less than four walks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Permutation {
    stream: RandomStream,
    len: u64,
    /// Bits of each half.
    half: u32,
}

impl Permutation {
    /// The order of `0..len` that `stream` keys.
    pub fn new(stream: RandomStream, len: u64) -> Self {
        let bits = u64::BITS - len.saturating_sub(1).leading_zeros();
        Self { stream, len, half: bits.div_ceil(2).max(1) }
    }

    /// What stands at place `index`, which is below the length.
    ///
    /// # Panics
    /// For an `index` that is not: there the walk might never end.
    pub fn at(&self, index: u64) -> u64 {
        assert!(index < self.len, "place {index} of {}", self.len);
        let mut value = self.network(index);
        while value >= self.len {
            value = self.network(value);
        }
        value
    }

    fn network(&self, value: u64) -> u64 {
        let mask = (1_u64 << self.half) - 1;
        let mut left = value >> self.half;
        let mut right = value & mask;
        for round in 0..ROUNDS {
            // Halves have 32 bits at most: rounds and halves share a counter.
            let [word, ..] = self.stream.words(round << 32 | right);
            (left, right) = (right, left ^ (u64::from(word) & mask));
        }
        left << self.half | right
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn permutation(seed: u64, len: u64) -> Permutation {
        Permutation::new(RandomStream::new(seed, "test"), len)
    }

    proptest! {
        #[test]
        fn every_number_occurs_once(seed in any::<u64>(), len in 1_u64..3000) {
            let order = permutation(seed, len);
            let mut seen = vec![false; len as usize];
            for index in 0..len {
                let value = order.at(index) as usize;
                prop_assert!(!seen[value], "{} twice", value);
                seen[value] = true;
            }
        }

        #[test]
        fn large_lengths_stay_within(seed in any::<u64>(), bits in 0_u32..64, index in any::<u64>()) {
            let len = u64::MAX >> bits;
            prop_assert!(permutation(seed, len).at(index % len) < len);
        }
    }

    #[test]
    fn every_place_of_a_short_order_gets_every_number_equally_often() {
        let mut counts = [[0_u32; 5]; 5];
        for seed in 0..5000 {
            let order = permutation(seed, 5);
            (0..5).for_each(|index| counts[index as usize][order.at(index) as usize] += 1);
        }
        assert!(counts.iter().flatten().all(|count| (880..1120).contains(count)), "{counts:?}");
    }

    #[test]
    fn neighbours_go_far_apart() {
        let order = permutation(1, 1 << 20);
        let mean = (1..4096).map(|index| order.at(index).abs_diff(order.at(index - 1)) as f64).sum::<f64>() / 4095.0;
        let expected = f64::from(1 << 20) / 3.0;
        assert!((mean / expected - 1.0).abs() < 0.05, "{mean} {expected}");
        assert_ne!(order.at(0), permutation(2, 1 << 20).at(0));
    }
}
