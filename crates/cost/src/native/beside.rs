//! What runs take of a device beside their tensors. It differs from run to run, so it is a distribution: normal, with the mean and
//! the deviation of a [`Framework`], on a single device less ([`Framework::on_devices`]).

use super::{Framework, Memory};

/// Bytes that runs on A100 of 80 GB took beyond their tensors, in the mean, and one deviation: a normal distribution, fitted on the bytes
/// of BigScience's runs and on which of Hagemann et al.'s ran out of memory, see `quadrille validate published`. Of smaller devices
/// less: [`Framework::reserved_on`].
pub(super) const BESIDE_TENSORS: [u64; 2] = [14_000_000_000, 6_000_000_000];

/// Bytes of PyTorch's FSDP: the driver's context, NCCL's buffers of one group, workspaces; PyTorch's allocator gives back what it
/// caches before it fails. Assumed: llm-foundry's 91 runs, whose microbatches are as large as they could be, left 5.4 GiB of 40 GiB and
/// 9 GiB of 80 GiB to it, see `quadrille validate published`.
pub(super) const BESIDE_FSDP: [u64; 2] = [4_000_000_000, 2_000_000_000];

/// Bytes on a single device, which has no communicators: the context, of 1.5 GB in BigScience's log, and workspaces. Assumed.
const BESIDE_ALONE: [u64; 2] = [2_500_000_000, 1_000_000_000];

/// Bytes of the devices of the runs that are known.
const KNOWN_DEVICE: f64 = 80.0 * (1u64 << 30) as f64;

impl Framework {
    /// The framework on this number of devices: on a single device runs reserve less memory, where the reserve of runs differs.
    #[must_use]
    pub fn on_devices(self, devices: usize) -> Self {
        Self { is_alone: devices == 1 && self.reserved_deviation > 0, ..self }
    }

    /// Bytes that runs take beside tensors in the mean, and their deviation.
    fn beside(&self) -> [u64; 2] {
        let [bytes, deviation] = [self.reserved_bytes, self.reserved_deviation];
        match BESIDE_ALONE {
            [alone, differs] if self.is_alone => [bytes.min(alone), deviation.min(differs)],
            _ => [bytes, deviation],
        }
    }

    /// Bytes that runs take beside tensors of a device of so many bytes, in the mean: where they differ, of a smaller device than
    /// those of the runs that are known in proportion, of a larger one as much. `None`: its bytes are not known.
    pub fn reserved_on(&self, device: Option<u64>) -> u64 {
        (self.beside()[0] as f64 * self.scale(device)) as u64
    }

    /// By how much they differ there.
    fn deviation_on(&self, device: u64) -> f64 {
        self.beside()[1] as f64 * self.scale(Some(device))
    }

    fn scale(&self, device: Option<u64>) -> f64 {
        match device {
            Some(device) if self.reserved_deviation > 0 => (device as f64 / KNOWN_DEVICE).min(1.0),
            _ => 1.0,
        }
    }

    /// The part of runs that would fit into a device of `device` bytes, if each took `memory` but for what it takes beside
    /// tensors; of a framework of which no deviation is known all of them or none.
    pub fn fitting_runs(&self, memory: &Memory, device: u64) -> f64 {
        let free = device as f64 - memory.total() as f64;
        match self.reserved_deviation {
            0 if free >= 0.0 => 1.0,
            0 => 0.0,
            _ => normal_below(free / self.deviation_on(device)),
        }
    }

    /// Bytes beyond the mean that this part of runs does not exceed on a device of `device` bytes, from 0 to below 1; at least 0.
    pub fn reserve_of_runs(&self, part: f64, device: u64) -> u64 {
        (deviations(part).max(0.0) * self.deviation_on(device)) as u64
    }
}

/// The part of a standard normal distribution below `x`: Abramowitz and Stegun, equation 26.2.17, to 1e-7.
pub fn normal_below(x: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.231_641_9 * x.abs());
    let terms = [0.319_381_530, -0.356_563_782, 1.781_477_937, -1.821_255_978, 1.330_274_429];
    let sum = terms.iter().rev().fold(0.0, |sum, term| t * (term + sum));
    let above = (-x * x / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt() * sum;
    if x >= 0.0 { 1.0 - above } else { above }
}

/// Below how many deviations from the mean this part of a normal distribution lies.
fn deviations(part: f64) -> f64 {
    let mut low = -8.0;
    let mut high = 8.0;
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        if normal_below(middle) < part { low = middle } else { high = middle }
    }
    (low + high) / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_the_distribution_are_those_of_tables() {
        for (x, part) in [(0.0, 0.5), (1.0, 0.841_344_7), (1.959_964, 0.975), (-1.644_854, 0.05), (3.0, 0.998_650_1)] {
            assert!((normal_below(x) - part).abs() < 2e-7, "{x}: {}", normal_below(x));
            assert!((deviations(part) - x).abs() < 3e-5, "{part}: {}", deviations(part));
        }
    }

    /// FSDP's own, and fewer bytes where there is nobody to communicate with; this program's engine has none.
    #[test]
    fn each_framework_has_its_own_and_a_single_device_less() {
        let [megatron, fsdp] = [Framework::MEGATRON, Framework::FSDP].map(|framework| {
            let on = |devices| framework.on_devices(devices).reserved_on(Some(80 << 30));
            assert_eq!(on(2), framework.reserved_on(Some(80 << 30)));
            assert!(on(1) < on(2) && on(1) > 1_500_000_000, "{}", framework.name);
            on(8)
        });
        assert!(fsdp < megatron, "{fsdp} and {megatron}");
        // What llm-foundry's runs left on devices of 40 GiB.
        let least = (5.4 * f64::from(1u32 << 30)) as u64;
        let device = 40 << 30;
        assert!(Framework::FSDP.reserved_on(Some(device)) + Framework::FSDP.reserve_of_runs(0.95, device) < least);
        assert_eq!(Framework::QUADRILLE.on_devices(1), Framework::QUADRILLE);
    }

    #[test]
    fn what_is_reserved_for_a_part_of_runs_lets_that_part_fit() {
        let framework = Framework { reserved_deviation: 6_000_000_000, ..Framework::MEGATRON };
        let memory = Memory { parameters: 4_000_000_000, ..Memory::default() };
        for (device, scale) in [(40 << 30, 0.5), (80 << 30, 1.0), (160 << 30, 1.0)] {
            assert_eq!(framework.reserved_on(Some(device)), (scale * framework.reserved_bytes as f64) as u64);
            for part in [0.5, 0.7, 0.97] {
                let reserve = framework.reserve_of_runs(part, device);
                assert_eq!(reserve, (scale * framework.reserve_of_runs(part, 80 << 30) as f64) as u64);
                let full = Memory { activations: device - reserve - memory.total(), ..memory };
                assert!((framework.fitting_runs(&full, device) - part).abs() < 1e-6, "{part}");
            }
        }
        assert_eq!(framework.reserve_of_runs(0.3, 80 << 30), 0, "never less than the mean");
        let exact = Framework::QUADRILLE;
        assert_eq!(
            (exact.fitting_runs(&memory, 4_000_000_000), exact.fitting_runs(&memory, 3_999_999_999)),
            (1.0, 0.0)
        );
    }
}
