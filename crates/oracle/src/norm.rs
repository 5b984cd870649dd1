//! Norms over the columns: layer norm with the biased variance, and RMS norm, which is layer norm without the mean and
//! without beta.

use quadrille_spec::Norm;

/// `y[n, h] = (x - mean) / sqrt(variance + epsilon) * gamma + beta`, or `x / sqrt(mean(x^2) + epsilon) * gamma`, row by
/// row.
pub(crate) fn forward(kind: Norm, x: &[f64], gamma: &[f64], beta: Option<&[f64]>, epsilon: f64) -> Vec<f64> {
    let h = gamma.len();
    let mut y = Vec::with_capacity(x.len());
    for row in x.chunks(h) {
        let (normed, _) = normalize(kind, row, epsilon);
        y.extend((0..h).map(|c| normed[c] * gamma[c] + beta.map_or(0.0, |beta| beta[c])));
    }
    y
}

/// Gradients of a norm, shaped as what they belong to.
pub(crate) struct Gradients {
    pub(crate) x: Vec<f64>,
    pub(crate) gamma: Vec<f64>,
    pub(crate) beta: Vec<f64>,
}

/// Gradients from `dy[n, h]` and the forward's `x` and `gamma`.
pub(crate) fn backward(kind: Norm, dy: &[f64], x: &[f64], gamma: &[f64], epsilon: f64) -> Gradients {
    let h = gamma.len();
    let mut d = Gradients { x: Vec::with_capacity(x.len()), gamma: vec![0.0; h], beta: vec![0.0; h] };
    for (row, dy) in x.chunks(h).zip(dy.chunks(h)) {
        let (normed, deviation) = normalize(kind, row, epsilon);
        let dnormed: Vec<f64> = (0..h).map(|c| dy[c] * gamma[c]).collect();
        let mean_d = match kind {
            Norm::Layer => mean(&dnormed),
            Norm::Rms => 0.0,
        };
        let mean_d_normed = mean(&(0..h).map(|c| dnormed[c] * normed[c]).collect::<Vec<_>>());
        for c in 0..h {
            d.gamma[c] += dy[c] * normed[c];
            d.beta[c] += dy[c];
            d.x.push((dnormed[c] - mean_d - normed[c] * mean_d_normed) / deviation);
        }
    }
    d
}

/// The row with mean 0 and variance 1, or with mean square 1, and what it was divided by.
fn normalize(kind: Norm, row: &[f64], epsilon: f64) -> (Vec<f64>, f64) {
    let centre = match kind {
        Norm::Layer => mean(row),
        Norm::Rms => 0.0,
    };
    let variance = mean(&row.iter().map(|x| (x - centre).powi(2)).collect::<Vec<_>>());
    let deviation = (variance + epsilon).sqrt();
    (row.iter().map(|x| (x - centre) / deviation).collect(), deviation)
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}
