//! The loss of predicted tokens: the mean of `-ln softmax(x table^T)[target]`, in nats, over all targets that are not
//! ignored.

use quadrille_spec::IGNORED;

use crate::attention::softmax;

/// The mean cross-entropy from `x[n, h]`, `table[v, h]` and `targets[n]`.
pub(crate) fn forward(x: &[f64], table: &[f64], targets: &[u32], h: usize) -> f64 {
    let mut total = 0.0;
    for (x, &target) in x.chunks(h).zip(targets).filter(|(_, target)| **target != IGNORED) {
        let logits = logits(x, table);
        let max = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = logits.iter().map(|logit| (logit - max).exp()).sum();
        total += max + sum.ln() - logits[target as usize];
    }
    total / counted(targets)
}

/// `(dx[n, h], dtable[v, h])` of the mean cross-entropy.
pub(crate) fn backward(x: &[f64], table: &[f64], targets: &[u32], h: usize) -> (Vec<f64>, Vec<f64>) {
    let (mut dx, mut dtable) = (vec![0.0; x.len()], vec![0.0; table.len()]);
    let rows = x.chunks(h).zip(targets).enumerate();
    for (row, (x, &target)) in rows.filter(|(_, (_, target))| **target != IGNORED) {
        let probabilities = softmax(&logits(x, table));
        for (id, probability) in probabilities.iter().enumerate() {
            let hit = if id == target as usize { 1.0 } else { 0.0 };
            let dlogit = (probability - hit) / counted(targets);
            for c in 0..h {
                dx[row * h + c] += dlogit * table[id * h + c];
                dtable[id * h + c] += dlogit * x[c];
            }
        }
    }
    (dx, dtable)
}

/// How many targets count.
fn counted(targets: &[u32]) -> f64 {
    targets.iter().filter(|target| **target != IGNORED).count() as f64
}

/// The `v` logits of one row `x[h]`.
pub(crate) fn logits(x: &[f64], table: &[f64]) -> Vec<f64> {
    let dot = |entry: &[f64]| entry.iter().zip(x).map(|(a, b)| a * b).sum();
    table.chunks(x.len()).map(dot).collect()
}
