//! The fit itself.

use std::collections::BTreeMap;

use quadrille_cost::native::PriceError;
use rayon::prelude::*;

use super::parameter::Parameter;
use super::sample::Sample;

/// Differences below this, of logarithms, weigh as this: about what runs differ in from one time to the next.
const NOISE: f64 = 0.02;
/// By how much a number is changed to see what that does, in logarithms.
const CHANGE: f64 = 0.03;
/// Steps at most.
const STEPS: usize = 30;
/// A step that gains less, in the mean of differences, is the last.
const GAIN: f64 = 5e-5;
/// How far numbers may lie from where they began, in parts of the range in which they are sought (of logarithms), for what a
/// difference of [`NOISE`] of one source costs: keeps those in place that rows hardly tell.
const REACH: f64 = 1.0;

/// Samples with what each weighs: a source of four times as many twice as much.
struct Weighted<'s> {
    samples: &'s [&'s Sample],
    weights: Vec<f64>,
}

/// The numbers of `parameters`, in logarithms, that `samples` ask for, sought from where each begins.
///
/// # Errors
/// A program that cannot be simulated.
pub fn fit(parameters: &[&Parameter], samples: &[&Sample]) -> Result<Vec<f64>, PriceError> {
    let mut counts: BTreeMap<&str, f64> = BTreeMap::new();
    samples.iter().for_each(|sample| *counts.entry(sample.source).or_default() += 1.0);
    let roots: f64 = counts.values().map(|count| count.sqrt()).sum();
    let weights = samples.iter().map(|sample| 1.0 / (counts[sample.source].sqrt() * roots)).collect();
    let weighted = Weighted { samples, weights };
    let bounds: Vec<[f64; 2]> = parameters.iter().map(|it| [it.least.ln(), it.most.ln()]).collect();
    let held: Vec<f64> = bounds.iter().map(|[least, most]| NOISE / (REACH * (most - least)).powi(2)).collect();
    let mut numbers: Vec<f64> = parameters.iter().map(|it| it.start.ln()).collect();
    let origin = numbers.clone();
    let mut differences = weighted.differences(parameters, &numbers)?;
    let mut error = weighted.error(&differences);
    let mut damping = 1e-3;
    for _ in 0..STEPS {
        let slopes = weighted.slopes(parameters, &numbers, &differences, &bounds)?;
        let mut gained = 0.0;
        while damping < 1e3 {
            let step = weighted.step(&slopes, &differences, &held, [&numbers, &origin], damping);
            let moved = numbers.iter().zip(step).zip(&bounds);
            let next: Vec<f64> = moved.map(|((x, d), [least, most])| (x + d).clamp(*least, *most)).collect();
            let new = weighted.differences(parameters, &next)?;
            let lower = weighted.error(&new);
            if lower < error {
                gained = error - lower;
                (numbers, differences, error) = (next, new, lower);
                damping = (damping / 4.0).max(1e-6);
                break;
            }
            damping *= 8.0;
        }
        if gained < GAIN {
            break;
        }
    }
    Ok(numbers)
}

impl Weighted<'_> {
    fn differences(&self, parameters: &[&Parameter], numbers: &[f64]) -> Result<Vec<f64>, PriceError> {
        self.samples.par_iter().map(|sample| sample.difference(parameters, numbers)).collect()
    }

    fn error(&self, differences: &[f64]) -> f64 {
        differences.iter().zip(&self.weights).map(|(d, weight)| weight * d.abs()).sum()
    }

    /// By how much each difference changes with each number.
    fn slopes(
        &self,
        parameters: &[&Parameter],
        numbers: &[f64],
        differences: &[f64],
        bounds: &[[f64; 2]],
    ) -> Result<Vec<Vec<f64>>, PriceError> {
        let of = |at: usize| {
            // Away from a bound, on which nothing would change.
            let change = if numbers[at] + CHANGE > bounds[at][1] { -CHANGE } else { CHANGE };
            let mut changed = numbers.to_vec();
            changed[at] += change;
            let slope = |(sample, before): (&&Sample, &f64)| {
                if sample.has(parameters[at]) {
                    Ok((sample.difference(parameters, &changed)? - before) / change)
                } else {
                    Ok(0.0)
                }
            };
            self.samples.par_iter().zip(differences).map(slope).collect()
        };
        (0..parameters.len()).map(of).collect()
    }

    /// The step that the weighted squares ask for.
    fn step(
        &self,
        slopes: &[Vec<f64>],
        differences: &[f64],
        held: &[f64],
        [now, origin]: [&[f64]; 2],
        damping: f64,
    ) -> Vec<f64> {
        let weights: Vec<f64> =
            differences.iter().zip(&self.weights).map(|(d, weight)| weight / d.abs().max(NOISE)).collect();
        let product = |a: &[f64], b: &[f64]| -> f64 {
            a.iter().zip(b).zip(&weights).map(|((a, b), weight)| weight * a * b).sum()
        };
        let count = slopes.len();
        let mut matrix = vec![vec![0.0; count]; count];
        let mut right = vec![0.0; count];
        for i in 0..count {
            for j in 0..count {
                matrix[i][j] = product(&slopes[i], &slopes[j]);
            }
            matrix[i][i] += held[i] + damping * (matrix[i][i] + held[i]);
            right[i] = -product(&slopes[i], differences) - held[i] * (now[i] - origin[i]);
        }
        solved(matrix, right)
    }
}

/// The solution of a positive definite system, by Gauss's elimination.
fn solved(mut matrix: Vec<Vec<f64>>, mut right: Vec<f64>) -> Vec<f64> {
    let count = right.len();
    for pivot in 0..count {
        for row in pivot + 1..count {
            let factor = matrix[row][pivot] / matrix[pivot][pivot];
            let (above, below) = matrix.split_at_mut(row);
            below[0].iter_mut().zip(&above[pivot]).skip(pivot).for_each(|(x, y)| *x -= factor * y);
            right[row] -= factor * right[pivot];
        }
    }
    for pivot in (0..count).rev() {
        let known: f64 = (pivot + 1..count).map(|column| matrix[pivot][column] * right[column]).sum();
        right[pivot] = (right[pivot] - known) / matrix[pivot][pivot];
    }
    right
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn systems_are_solved() {
        let solution = solved(vec![vec![4.0, 1.0, 0.5], vec![1.0, 3.0, 0.0], vec![0.5, 0.0, 2.0]], vec![7.5, 7.0, 6.5]);
        for (found, wanted) in solution.iter().zip([1.0, 2.0, 3.0]) {
            assert!((found - wanted).abs() < 1e-12, "{solution:?}");
        }
    }
}
