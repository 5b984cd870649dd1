//! The loss of predicted patches: the mean over all numbers of `(prediction - target)^2`.

/// The mean squared error from `predictions[n, values]` and `targets[n, values]`.
pub(crate) fn forward(predictions: &[f64], targets: &[f64]) -> f64 {
    let total: f64 = predictions.iter().zip(targets).map(|(p, t)| (p - t).powi(2)).sum();
    total / targets.len() as f64
}

/// `dpredictions[n, values]` of the mean squared error.
pub(crate) fn backward(predictions: &[f64], targets: &[f64]) -> Vec<f64> {
    let derivative = |(p, t): (&f64, &f64)| 2.0 * (p - t) / targets.len() as f64;
    predictions.iter().zip(targets).map(derivative).collect()
}
