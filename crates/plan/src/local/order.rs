//! Two orders of the same layouts.

use crate::statistics::Pair;

/// The place of each value in ascending order, from 1; equal values keep the order in which they stand.
pub fn places(values: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
    let mut places = vec![0; values.len()];
    order.into_iter().zip(1..).for_each(|(at, place)| places[at] = place);
    places
}

/// How many of the `best` least predicted values are among the `best` least measured ones.
pub fn agreement(pairs: &[Pair], best: usize) -> usize {
    let predicted = places(&pairs.iter().map(|pair| pair.predicted).collect::<Vec<_>>());
    let measured = places(&pairs.iter().map(|pair| pair.measured).collect::<Vec<_>>());
    predicted.iter().zip(&measured).filter(|(predicted, measured)| **predicted <= best && **measured <= best).count()
}

/// Pearson's correlation of the logarithms of predicted and measured values, all above 0: 1 where they follow a power
/// law, whatever its factor. `None` where one side is the same everywhere, or of fewer than two pairs.
pub fn pearson_of_logs(pairs: &[Pair]) -> Option<f64> {
    let count = pairs.len() as f64;
    let of = |side: fn(&Pair) -> f64| -> Vec<f64> {
        let logs: Vec<f64> = pairs.iter().map(|pair| side(pair).ln()).collect();
        let mean = logs.iter().sum::<f64>() / count;
        logs.into_iter().map(|log| log - mean).collect()
    };
    let predicted = of(|pair| pair.predicted);
    let measured = of(|pair| pair.measured);
    let product = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let spread = (product(&predicted, &predicted) * product(&measured, &measured)).sqrt();
    // Below this the spread is the rounding of the logarithms.
    (spread > 1e-24 * count).then(|| product(&predicted, &measured) / spread)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(list: &[(f64, f64)]) -> Vec<Pair> {
        list.iter().map(|(predicted, measured)| Pair { predicted: *predicted, measured: *measured }).collect()
    }

    #[test]
    fn places_ascend_and_equal_values_keep_their_order() {
        assert_eq!(places(&[3.0, 1.0, 2.0]), [3, 1, 2]);
        assert_eq!(places(&[2.0, 1.0, 2.0, 1.0]), [3, 1, 4, 2]);
        assert!(places(&[]).is_empty());
    }

    #[test]
    fn agreement_of_a_known_list() {
        // Predicted order a b c d, measured order b c a d.
        let list = pairs(&[(1.0, 30.0), (2.0, 10.0), (3.0, 20.0), (4.0, 40.0)]);
        assert_eq!([1, 2, 3, 4].map(|best| agreement(&list, best)), [0, 1, 3, 4]);
        assert_eq!(agreement(&list, 10), 4);
    }

    #[test]
    fn correlation_of_known_lists() {
        let of = |list: &[(f64, f64)]| pearson_of_logs(&pairs(list));
        let close = |value: Option<f64>, expected: f64| (value.unwrap() - expected).abs() < 1e-12;
        assert!(close(of(&[(1.0, 5.0), (2.0, 20.0), (4.0, 80.0)]), 1.0), "measured = 5 predicted^2");
        assert!(close(of(&[(1.0, 8.0), (2.0, 4.0)]), -1.0));
        // Logarithms to base 2: (0, 0), (1, 2), (2, 1). Deviations (-1, 0, 1) and (-1, 1, 0): 1 / sqrt(2 * 2).
        assert!(close(of(&[(1.0, 1.0), (2.0, 4.0), (4.0, 2.0)]), 0.5));
        assert_eq!((of(&[(1.0, 2.0)]), of(&[(3.0, 1.0), (3.0, 2.0)]), of(&[])), (None, None, None));
    }
}
