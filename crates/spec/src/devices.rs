//! The devices that come with the program, one TOML file each in `presets/devices`, which names its sources.

use crate::{Device, SpecError};

macro_rules! preset {
    ($name:literal) => {
        ($name, include_str!(concat!("../presets/devices/", $name, ".toml")))
    };
}

/// Name and file of every preset: NVIDIA's for servers by age, AMD's, cards for PCIe.
const PRESETS: [(&str, &str); 12] = [
    preset!("v100-16"),
    preset!("v100-32"),
    preset!("a100-40"),
    preset!("a100-80"),
    preset!("h100"),
    preset!("h200"),
    preset!("gh200"),
    preset!("b200"),
    preset!("gb200"),
    preset!("mi250x"),
    preset!("rtx3090"),
    preset!("l40s"),
];

impl Device {
    /// The device of that name, as it comes with the program.
    ///
    /// # Errors
    /// A name that is not among [`Device::preset_names`].
    pub fn preset(name: &str) -> Result<Self, SpecError> {
        let Some((_, text)) = PRESETS.iter().find(|(known, _)| *known == name) else {
            let known = Self::preset_names().map(str::to_owned).collect();
            return Err(SpecError::Unknown { what: "device", name: name.to_owned(), known });
        };
        Self::from_toml(text)
    }

    /// The names of all presets.
    pub fn preset_names() -> impl Iterator<Item = &'static str> {
        PRESETS.iter().map(|(name, _)| *name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The makers' figures: name, TFLOP/s of 16-bit, 32-bit and 64-bit products without sparsity, GB, GB/s.
    const FIGURES: [(&str, [f64; 3], u64, f64); 12] = [
        ("v100-16", [125.0, 15.7, 7.8], 16, 900.0),
        ("v100-32", [125.0, 15.7, 7.8], 32, 900.0),
        ("a100-40", [312.0, 156.0, 19.5], 40, 1555.0),
        ("a100-80", [312.0, 156.0, 19.5], 80, 2039.0),
        ("h100", [989.4, 494.7, 66.9], 80, 3350.0),
        ("h200", [989.4, 494.7, 66.9], 141, 4800.0),
        ("gh200", [989.4, 494.7, 66.9], 96, 4000.0),
        ("b200", [2250.0, 1100.0, 40.0], 180, 8000.0),
        ("gb200", [2500.0, 1250.0, 45.0], 186, 8000.0),
        // Halves of 383, 95.7, 128 GB and 3276.8 GB/s.
        ("mi250x", [191.5, 47.85, 47.85], 64, 1638.4),
        ("rtx3090", [71.0, 35.6, 0.556], 24, 936.0),
        ("l40s", [362.05, 183.0, 1.43], 48, 864.0),
    ];

    #[test]
    fn presets_hold_the_makers_figures() {
        let close = |given: f64, published: f64| (given / published - 1.0).abs() < 1e-12;
        for (name, [half, single, double], gigabytes, bandwidth) in FIGURES {
            let device = Device::preset(name).unwrap();
            let peak = device.peak;
            assert!(close(peak.half, half * 1e12) && close(peak.single, single * 1e12), "{name}: {peak:?}");
            assert!(close(peak.double, double * 1e12), "{name}: {peak:?}");
            assert_eq!(device.memory, gigabytes << 30, "{name}");
            assert!(close(device.memory_bandwidth, bandwidth * 1e9), "{name}");
        }
    }

    #[test]
    fn every_preset_is_legal_and_carries_its_name() {
        for name in Device::preset_names() {
            let device = Device::preset(name).unwrap();
            assert_eq!(device.name, name);
            assert!(
                device.source.contains("data sheet") || device.source.contains("NVIDIA"),
                "{name}: a maker's figures"
            );
            // A limit: nobody sells matrix units that are slower than the general ones in f32.
            assert!(device.peak.half >= device.peak.single && device.peak.single >= device.vector_rate, "{name}");
        }
        assert_eq!(Device::preset_names().count(), FIGURES.len());
        assert!(Device::preset("a1").unwrap_err().to_string().starts_with("unknown device 'a1'; known: "));
    }
}
