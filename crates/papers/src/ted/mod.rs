//! Tensor, expert and data parallel training of mixtures of experts (TED: Singh's dissertation, chapter 7): parameters, bytes
//! of their states, the spike of the update, what GPUs send for rows at experts.
//!
//! Letters: `NP` parameters of the base model, `E` experts of every second block, `G` GPUs, `G_t` of them in a tensor
//! parallel group. An expert parallel group has `E` GPUs. `r(n) = (n - 1)/n` is the part of a buffer that a ring of `n`
//! GPUs sends of it.

mod sent;

pub use sent::{Dispatch, Sent, passes};

/// Bytes of a gradient in f32, into which the update turns one of 16 bits; section 7.2.
pub const GRADIENT_BYTES: f64 = 4.0;
/// Bytes of a parameter that ZeRO's first stage leaves on every replica (weight and gradient in 16 bits), and of what it
/// cuts over them (master weight and two moments in f32); section 7.1.1.
const REPLICATED_BYTES: f64 = 2.0 + 2.0;
const SHARDED_BYTES: f64 = 4.0 + 4.0 + 4.0;

/// A mixture made of a base model: every second perceptron is replaced by experts of its size.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Mixture {
    /// Parameters of the base model, `NP`. Two thirds are taken to be of perceptrons, tables to be of none.
    pub base: f64,
    /// Experts in the place of a perceptron, `E`.
    pub experts: usize,
}

impl Mixture {
    /// Parameters of all experts, equation 7.2: `E/2 (2/3) NP`.
    pub fn expert_parameters(&self) -> f64 {
        self.experts as f64 / 2.0 * (2.0 / 3.0) * self.base
    }

    /// Parameters of attention and of the other perceptrons, equation 7.3: `(1/2 2/3 + 1/3) NP`.
    pub fn other_parameters(&self) -> f64 {
        (0.5 * (2.0 / 3.0) + 1.0 / 3.0) * self.base
    }

    /// All parameters.
    pub fn parameters(&self) -> f64 {
        self.expert_parameters() + self.other_parameters()
    }
}

/// How a mixture lies on GPUs: expert parallel groups have a GPU for each of its experts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Placed {
    /// The model.
    pub mixture: Mixture,
    /// GPUs, `G`.
    pub gpus: usize,
    /// GPUs of a tensor parallel group, `G_t`.
    pub tensor: usize,
}

impl Placed {
    /// GPUs with the same part of a parameter that is no expert's, equation 7.1: `G/G_t`.
    pub fn other_replicas(&self) -> f64 {
        self.gpus as f64 / self.tensor as f64
    }

    /// GPUs with the same part of an expert, equation 7.7: `G/(G_t E)`.
    pub fn expert_replicas(&self) -> f64 {
        self.other_replicas() / self.mixture.experts as f64
    }

    /// Parameters of a GPU, `[of experts, others]`: `NP_exp/(G_t E)` and `NP_nonexp/G_t`, section 7.1.1.
    fn of_gpu(&self) -> [f64; 2] {
        let tensor = self.tensor as f64;
        let experts = self.mixture.expert_parameters() / (tensor * self.mixture.experts as f64);
        [experts, self.mixture.other_parameters() / tensor]
    }

    /// Bytes that a GPU needs at least, equation 7.4: states with ZeRO's first stage, without activations and buffers.
    pub fn least_bytes(&self) -> f64 {
        let bytes = |parameters: f64, replicas: f64| (REPLICATED_BYTES + SHARDED_BYTES / replicas) * parameters;
        let [experts, others] = self.of_gpu();
        bytes(experts, self.expert_replicas()) + bytes(others, self.other_replicas())
    }

    /// Bytes of gradients in f32 in a GPU's update, section 7.2: of all parameters whose states it has.
    pub fn spike_bytes(&self) -> f64 {
        let [experts, others] = self.of_gpu();
        GRADIENT_BYTES * (experts / self.expert_replicas() + others / self.other_replicas())
    }

    /// The same where parameters are updated in tiles of so many: one tile at a time, section 7.2.
    pub fn tiled_spike_bytes(&self, tile: f64) -> f64 {
        self.spike_bytes().min(GRADIENT_BYTES * tile)
    }

    /// The mixture on as many GPUs, in the smallest tensor parallel groups (1, 2, 4 and so on) with which
    /// [`Placed::least_bytes`] is no more than `bytes`. `None`: there are none.
    pub fn least_tensor(mixture: Mixture, gpus: usize, bytes: f64) -> Option<Self> {
        let degrees = (0..usize::BITS).map(|power| 1 << power).take_while(|tensor| tensor * mixture.experts <= gpus);
        degrees.map(|tensor| Self { mixture, gpus, tensor }).find(|placed| placed.least_bytes() <= bytes)
    }
}

/// Parameters of the largest base model in `bytes` of a GPU, however many there are; equation 7.6: `G_t/4 M`.
pub fn largest_base(bytes: f64, tensor: usize) -> f64 {
    tensor as f64 * bytes / REPLICATED_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIX: Mixture = Mixture { base: 6.7e9, experts: 16 };

    #[test]
    fn experts_take_the_place_of_every_second_perceptron() {
        // Equations 7.2 and 7.3: 12 of 3 parameters of perceptrons that 24 experts replace, and 2 that stay.
        let mixture = Mixture { base: 3.0, experts: 24 };
        let parts = [mixture.expert_parameters(), mixture.other_parameters(), mixture.parameters()];
        assert!(parts.into_iter().zip([24.0, 2.0, 26.0]).all(|(part, by_hand)| (part - by_hand).abs() < 1e-12));
        let one = Mixture { experts: 1, ..mixture };
        assert!((one.parameters() - 3.0).abs() < 1e-12, "one expert is the base model");
    }

    #[test]
    fn equation_7_4_is_7_5_and_falls_to_7_6() {
        for (gpus, tensor) in [(32, 1), (32, 2), (256, 4), (4096, 8)] {
            let bytes = Placed { mixture: SIX, gpus, tensor }.least_bytes();
            let by_7_5 = 4.0 * SIX.base * (1.0 / tensor as f64 + (16.0 + 2.0) / gpus as f64);
            assert!((bytes / by_7_5 - 1.0).abs() < 1e-12, "{gpus} {tensor}");
            assert!(largest_base(bytes, tensor) > SIX.base, "7.6 leaves out what all GPUs share");
        }
        assert_eq!(largest_base(16e9, 1), 4e9);
        let many = Placed { mixture: SIX, gpus: 1 << 40, tensor: 4 };
        assert!((largest_base(many.least_bytes(), 4) / SIX.base - 1.0).abs() < 1e-6);
    }

    #[test]
    fn replicas_and_the_spike_by_hand() {
        // Two GPUs for each of 3 experts, two in a tensor group, so that an expert has no replica.
        let placed = Placed { mixture: Mixture { base: 9.0, experts: 3 }, gpus: 6, tensor: 2 };
        assert_eq!([placed.other_replicas(), placed.expert_replicas()], [3.0, 1.0]);
        // 9 parameters of experts, of which a GPU updates 9/6, and 6 others, of which it updates 1.
        assert!((placed.spike_bytes() - 4.0 * (1.5 + 1.0)).abs() < 1e-12);
        assert_eq!(placed.tiled_spike_bytes(2.0), 8.0);
        assert_eq!(placed.tiled_spike_bytes(1e6), placed.spike_bytes(), "a tile is no larger than the whole");
    }

    #[test]
    fn tensor_groups_grow_until_states_fit() {
        let degree =
            |gpus, gigabytes: f64| Placed::least_tensor(SIX, gpus, gigabytes * 1e9).map(|placed| placed.tensor);
        // 41.9 GB and 28.5 GB; four GPUs of a tensor group for each of 16 experts would be 64.
        assert_eq!([degree(32, 42.0), degree(32, 41.0), degree(32, 28.0)], [Some(1), Some(2), None]);
        assert_eq!([degree(128, 16.0), degree(8, 1000.0)], [Some(4), None]);
    }
}
