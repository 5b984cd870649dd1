//! The loss of predicted tokens: the mean of `-ln softmax(logits)[target]`, in nats, over all targets that are not ignored.

use quadrille_spec::IGNORED;

use crate::attention::softmax;

/// The mean cross-entropy from `logits[n, v]` and `targets[n]`.
pub(crate) fn forward(logits: &[f64], targets: &[u32]) -> f64 {
    let mut total = 0.0;
    for (logits, &target) in rows(logits, targets) {
        let max = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = logits.iter().map(|logit| (logit - max).exp()).sum();
        total += max + sum.ln() - logits[target as usize];
    }
    total / counted(targets)
}

/// `dlogits[n, v]` of the mean cross-entropy.
pub(crate) fn backward(logits: &[f64], targets: &[u32]) -> Vec<f64> {
    let counted = counted(targets);
    let of_row = |(logits, &target): (&[f64], &u32)| {
        if target == IGNORED {
            return vec![0.0; logits.len()];
        }
        let mut dlogits = softmax(logits);
        dlogits[target as usize] -= 1.0;
        dlogits.iter().map(|number| number / counted).collect()
    };
    logits.chunks(logits.len() / targets.len()).zip(targets).flat_map(of_row).collect()
}

/// The rows whose targets count.
fn rows<'a>(logits: &'a [f64], targets: &'a [u32]) -> impl Iterator<Item = (&'a [f64], &'a u32)> {
    let rows = logits.chunks(logits.len() / targets.len()).zip(targets);
    rows.filter(|(_, target)| **target != IGNORED)
}

/// How many targets count.
fn counted(targets: &[u32]) -> f64 {
    targets.iter().filter(|target| **target != IGNORED).count() as f64
}
