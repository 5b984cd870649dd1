//! The loss of predicted tokens: the mean over all of `-ln softmax(x table^T)[target]`, in nats.

use crate::attention::softmax;

/// The mean cross-entropy from `x[n, h]`, `table[v, h]` and `targets[n]`.
pub(crate) fn forward(x: &[f64], table: &[f64], targets: &[u32], h: usize) -> f64 {
    let mut total = 0.0;
    for (x, &target) in x.chunks(h).zip(targets) {
        let logits = logits(x, table);
        let max = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = logits.iter().map(|logit| (logit - max).exp()).sum();
        total += max + sum.ln() - logits[target as usize];
    }
    total / targets.len() as f64
}

/// `(dx[n, h], dtable[v, h])` of the mean cross-entropy.
pub(crate) fn backward(x: &[f64], table: &[f64], targets: &[u32], h: usize) -> (Vec<f64>, Vec<f64>) {
    let (mut dx, mut dtable) = (vec![0.0; x.len()], vec![0.0; table.len()]);
    for (row, (x, &target)) in x.chunks(h).zip(targets).enumerate() {
        let probabilities = softmax(&logits(x, table));
        for (id, probability) in probabilities.iter().enumerate() {
            let hit = if id == target as usize { 1.0 } else { 0.0 };
            let dlogit = (probability - hit) / targets.len() as f64;
            for c in 0..h {
                dx[row * h + c] += dlogit * table[id * h + c];
                dtable[id * h + c] += dlogit * x[c];
            }
        }
    }
    (dx, dtable)
}

/// The `v` logits of one row `x[h]`.
fn logits(x: &[f64], table: &[f64]) -> Vec<f64> {
    let dot = |entry: &[f64]| entry.iter().zip(x).map(|(a, b)| a * b).sum();
    table.chunks(x.len()).map(dot).collect()
}
