//! Sparsity-aware memory optimization (Singh's dissertation, chapter 4): bytes of a pruned model's states, the bubble and
//! the messages of a pipeline.
//!
//! Letters: `φ` parameters before pruning, `p` the share that is pruned, `f = 1 - p`, `B` batch, `mbs` microbatch, `G`
//! GPUs, `G_inter` stages, `t_f` and `t_b` seconds of a microbatch's forward and backward pass through the whole model.

/// Bytes of a parameter's weight, gradient and Adam's moments where all of them are f32, section 4.1.
pub const SINGLE_PRECISION_BYTES: f64 = 4.0 + 4.0 + 8.0;

/// Bytes of a parameter's states by what pruning does to them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Storage {
    /// Stored with its zeros: the weight that products use.
    pub dense: f64,
    /// Stored of kept parameters only: gradients, master weight, moments.
    pub compressed: f64,
    /// Where a kept parameter is.
    pub index: f64,
    /// A copy of a kept parameter at the end of the update.
    pub copy: f64,
}

impl Storage {
    /// Section 4.1.4: weights in 16 bits as they are; gradients in 16 bits and in f32, master weight and moments
    /// compressed; indices of 32 bits; updated weights in 16 bits until they are expanded.
    pub const PUBLISHED: Self = Self { dense: 2.0, compressed: 2.0 + 4.0 + 4.0 + 8.0, index: 4.0, copy: 2.0 };

    /// Bytes of `parameters` parameters without pruning, `M_default`: published `20 φ`.
    pub fn unpruned_bytes(&self, parameters: f64) -> f64 {
        (self.dense + self.compressed) * parameters
    }

    /// Bytes of a kept parameter beside its dense weight: published 24, equation 4.2.
    pub fn kept_bytes(&self) -> f64 {
        self.compressed + self.index + self.copy
    }

    /// Bytes of `parameters` parameters of which the share `sparsity` is pruned, equations 4.1 to 4.3: published
    /// `24 f φ + 2 φ`.
    pub fn pruned_bytes(&self, parameters: f64, sparsity: f64) -> f64 {
        (self.kept_bytes() * (1.0 - sparsity) + self.dense) * parameters
    }

    /// The share of bytes that pruning saves, equations 4.4 and 4.5 over `M_default`: published `(24 p - 6)/20`. Negative
    /// below [`Storage::break_even`].
    pub fn saved(&self, sparsity: f64) -> f64 {
        1.0 - self.pruned_bytes(1.0, sparsity) / self.unpruned_bytes(1.0)
    }

    /// The sparsity at which nothing is saved and nothing lost.
    pub fn break_even(&self) -> f64 {
        1.0 - self.compressed / self.kept_bytes()
    }
}

/// Seconds for which a GPU waits in a batch, equations 4.6 and 4.7: `(t_f + t_b)(1 - 1/G_inter)`.
pub fn bubble_seconds(forward: f64, backward: f64, stages: usize) -> f64 {
    (forward + backward) * (1.0 - 1.0 / stages as f64)
}

/// Messages that a GPU sends and receives in a batch, to which equations 4.9 and 4.10 take the time of transmission to be
/// proportional: `4 (B/mbs) (G_inter/G)`. The first and the last stage have half as many.
pub fn messages(batch: usize, microbatch: usize, stages: usize, gpus: usize) -> f64 {
    4.0 * (batch as f64 / microbatch as f64) * (stages as f64 / gpus as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_of_the_bytes_are_one() {
        for sparsity in [0.0, 0.25, 0.8, 0.9, 1.0] {
            let bytes = Storage::PUBLISHED.pruned_bytes(1e9, sparsity);
            assert!((bytes - (20e9 - (24.0 * sparsity - 6.0) * 1e9)).abs() < 1.0, "{sparsity}: eq. 4.5");
            assert!((Storage::PUBLISHED.saved(sparsity) - (24.0 * sparsity - 6.0) / 20.0).abs() < 1e-12, "{sparsity}");
        }
        assert_eq!(Storage::PUBLISHED.saved(Storage::PUBLISHED.break_even()), 0.0);
    }

    #[test]
    fn fewer_stages_wait_and_send_less() {
        let stages = [1, 2, 4, 8];
        assert_eq!(stages.map(|stages| bubble_seconds(1.0, 2.0, stages)), [0.0, 1.5, 2.25, 2.625]);
        assert_eq!(stages.map(|stages| messages(512, 4, stages, 64)), [8.0, 16.0, 32.0, 64.0]);
    }
}
