//! Some of many layouts.

use quadrille_spec::RandomStream;

/// `wanted` of the numbers `0..total`, ascending, every set of them equally likely: the first of a shuffle (Fisher and
/// Yates) that depends on the seed alone. All of them where there are not more.
pub fn choose(total: usize, wanted: usize, seed: u64) -> Vec<usize> {
    let stream = RandomStream::new(seed, "choice of layouts");
    let mut numbers: Vec<usize> = (0..total).collect();
    for at in 0..wanted.min(total) {
        let other = at + stream.below(at as u64, (total - at) as u64) as usize;
        numbers.swap(at, other);
    }
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
