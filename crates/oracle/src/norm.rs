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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rms_norm_of_a_constant_row() {
        // sqrt(3^2 + 7) = 4: every number becomes 3/4, where layer norm leaves nothing.
        let x = [3.0; 4];
        let gamma = [1.0, 2.0, -1.0, 0.0];
        assert_eq!(forward(Norm::Rms, &x, &gamma, None, 7.0), [0.75, 1.5, -0.75, 0.0]);
        assert_eq!(forward(Norm::Layer, &x, &gamma, Some(&[0.5; 4]), 7.0), [0.5; 4]);

        // With dy = 1: dgamma is the normed row; mean(gamma dy x/4) = 3/8, so that dx = (gamma - 3/4 * 3/8) / 4.
        let d = backward(Norm::Rms, &[1.0; 4], &x, &gamma, 7.0);
        assert_eq!(d.gamma, [0.75; 4]);
        assert_eq!(d.x, gamma.map(|gamma| (gamma - 0.28125) / 4.0));
    }

    #[test]
    fn rms_norm_of_three_and_four() {
        // Mean square 12.5, and 12.5^(1/2) = 5 / 2^(1/2).
        let y = forward(Norm::Rms, &[3.0, 4.0], &[1.0, 10.0], None, 0.0);
        let expected = [0.6, 8.0].map(|share| share * 2.0_f64.sqrt());
        assert!(y.iter().zip(expected).all(|(y, expected)| (y - expected).abs() < 1e-14), "{y:?}");
    }
}
