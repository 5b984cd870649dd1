//! Some of many layouts.

use quadrille_spec::RandomStream;

/// The numbers `0..total` in an order that depends on the seed alone, each order as likely as any other (Fisher and Yates).
pub fn shuffled(total: usize, seed: u64) -> Vec<usize> {
    let stream = RandomStream::new(seed, "order of layouts");
    let mut numbers: Vec<usize> = (0..total).collect();
    for at in 0..total {
        let other = at + stream.below(at as u64, (total - at) as u64) as usize;
        numbers.swap(at, other);
    }
    numbers
}

/// `wanted` of the numbers `0..total`, ascending: the first of [`shuffled`]. All of them where there are not more.
pub fn choose(total: usize, wanted: usize, seed: u64) -> Vec<usize> {
    let mut numbers = shuffled(total, seed);
    numbers.truncate(wanted);
    numbers.sort_unstable();
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_chooses_the_same_set_and_another_seed_another() {
        let chosen = choose(100, 10, 1);
        assert_eq!((chosen.len(), &chosen), (10, &choose(100, 10, 1)));
        assert!(chosen.is_sorted_by(|a, b| a < b) && chosen.iter().all(|number| *number < 100), "{chosen:?}");
        assert_ne!(chosen, choose(100, 10, 2));
    }

    #[test]
    fn an_order_has_every_number_once() {
        let mut order = shuffled(50, 3);
        assert_eq!(order, shuffled(50, 3));
        assert!(!order.is_sorted() && order != shuffled(50, 4));
        order.sort_unstable();
        assert!(order.into_iter().eq(0..50) && shuffled(0, 3).is_empty());
    }

    #[test]
    fn as_many_as_there_are_or_none() {
        assert_eq!(choose(3, 3, 5), [0, 1, 2]);
        assert_eq!(choose(3, 7, 5), [0, 1, 2]);
        assert!(choose(3, 0, 5).is_empty() && choose(0, 3, 5).is_empty());
    }

    /// Each of 5 numbers is in 2 of 5 sets of two: of 2000 seeds in 800, with a standard deviation of 22.
    #[test]
    fn every_number_is_chosen_equally_often() {
        let mut counts = [0; 5];
        (0..2000).flat_map(|seed| choose(5, 2, seed)).for_each(|number| counts[number] += 1);
        assert!(counts.iter().all(|count| (700..900).contains(count)), "{counts:?}");
    }
}
