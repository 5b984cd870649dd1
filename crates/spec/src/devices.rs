//! The devices that come with the program, one TOML file each in `presets/devices`, which names its sources.

use crate::{Device, SpecError};

macro_rules! preset {
    ($name:literal) => {
        ($name, include_str!(concat!("../presets/devices/", $name, ".toml")))
    };
}

/// Name and file of every preset: NVIDIA's for servers by age, AMD's, cards for PCIe.
const PRESETS: [(&str, &str); 14] = [
    preset!("v100-16"),
    preset!("v100-32"),
    preset!("a100-40"),
    preset!("a100-80"),
    preset!("h100"),
    preset!("h200"),
    preset!("gh200"),
    preset!("b200"),
    preset!("gb200"),
    preset!("b300"),
    preset!("gb300"),
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
    use crate::{Efficiency, ElementType, Origin};

    /// The makers' figures: name, TFLOP/s of products in f16, f32 and f64 without sparsity, those of f32 without TF32 and those of f64 on
    /// tensor cores, where they are; GB, GB/s.
    const FIGURES: [(&str, [f64; 3], u64, f64); 14] = [
        ("v100-16", [125.0, 15.7, 7.8], 16, 900.0),
        ("v100-32", [125.0, 15.7, 7.8], 32, 900.0),
        ("a100-40", [312.0, 19.5, 19.5], 40, 1555.0),
        ("a100-80", [312.0, 19.5, 19.5], 80, 2039.0),
        ("h100", [989.4, 66.9, 66.9], 80, 3350.0),
        ("h200", [989.4, 66.9, 66.9], 141, 4800.0),
        ("gh200", [989.4, 66.9, 66.9], 96, 4000.0),
        ("b200", [2250.0, 80.0, 40.0], 180, 8000.0),
        ("gb200", [2500.0, 90.0, 45.0], 186, 8000.0),
        ("b300", [2250.0, 75.0, 1.17], 270, 7700.0),
        ("gb300", [2500.0, 80.0, 1.25], 279, 8000.0),
        // Halves of 383, 95.7, 128 GB and 3276.8 GB/s.
        ("mi250x", [191.5, 47.85, 47.85], 64, 1638.4),
        ("rtx3090", [71.0, 35.6, 0.556], 24, 936.0),
        ("l40s", [362.05, 91.6, 1.43], 48, 864.0),
    ];

    #[test]
    fn presets_hold_the_makers_figures() {
        let close = |given: f64, published: f64| (given / published - 1.0).abs() < 1e-12;
        for (name, [half, single, double], gigabytes, bandwidth) in FIGURES {
            let device = Device::preset(name).unwrap();
            let peak = device.peak;
            let of = |dtype| peak.of(dtype).unwrap_or(0.0);
            assert!(close(of(ElementType::F16), half * 1e12) && close(peak.single, single * 1e12), "{name}: {peak:?}");
            assert!(close(peak.double, double * 1e12), "{name}: {peak:?}");
            // Volta's tensor cores take f16 alone.
            let bf16 = peak.of(ElementType::Bf16);
            assert_eq!(bf16, (!name.starts_with("v100")).then(|| of(ElementType::F16)), "{name}");
            assert_eq!(device.memory, gigabytes << 30, "{name}");
            assert!(close(device.memory_bandwidth, bandwidth * 1e9), "{name}");
        }
    }

    /// TFLOP/s of products in TF32, without sparsity: of NVIDIA's since Ampere.
    #[test]
    fn presets_hold_the_makers_figures_of_tf32() {
        let published = [
            ("a100-40", 156.0),
            ("a100-80", 156.0),
            ("h100", 494.7),
            ("h200", 494.7),
            ("gh200", 494.7),
            ("b200", 1100.0),
            ("gb200", 1250.0),
            ("b300", 1125.0),
            ("gb300", 1250.0),
            ("rtx3090", 35.6),
            ("l40s", 183.0),
        ];
        for name in Device::preset_names() {
            let found = Device::preset(name).unwrap().peak.tf32;
            let wanted = published.iter().find(|(known, _)| *known == name).map(|(_, rate)| rate * 1e12);
            assert_eq!(found.map(f64::round), wanted.map(f64::round), "{name}");
        }
    }

    /// Files of earlier versions and of calibrations have a rate for both types of 16 bits, and that of f32 that was measured.
    #[test]
    fn files_without_a_rate_of_f16_have_that_of_bf16() {
        let text = include_str!("../presets/devices/a100-80.toml").replace(", tf32 = 156e12", "");
        let peak = Device::from_toml(&text).unwrap().peak;
        assert_eq!((peak.of(ElementType::F16), peak.of(ElementType::Bf16)), (Some(312e12), Some(312e12)));
        assert_eq!((peak.of(ElementType::F32), peak.tf32), (Some(19.5e12), None));
        let message = Device::from_toml(&text.replace("half = 312e12", "f16 = 0.5")).unwrap_err().to_string();
        assert!(message.starts_with("peak.f16 = 0.5: a rate lies in"), "{message}");
    }

    /// TFLOP/s of products in 8 and 4 bits: an H100's are twice those of 16, Blackwell's the data sheets'.
    #[test]
    fn presets_hold_the_makers_narrow_figures() {
        let narrow = |name: &str| {
            let peak = Device::preset(name).unwrap().peak;
            [peak.fp8, peak.fp4].map(|rate| rate.map(|rate| (rate / 1e12).round()))
        };
        for (name, fp8, fp4) in [
            ("h100", Some(1979.0), None),
            ("h200", Some(1979.0), None),
            ("b200", Some(4500.0), Some(9000.0)),
            ("gb200", Some(5000.0), Some(10000.0)),
            ("b300", Some(4500.0), Some(14000.0)),
            ("gb300", Some(5000.0), Some(15000.0)),
            ("l40s", Some(733.0), None),
            ("a100-80", None, None),
        ] {
            assert_eq!(narrow(name), [fp8, fp4], "{name}");
        }
    }

    #[test]
    fn every_number_of_a_preset_says_where_it_is_from() {
        for name in Device::preset_names() {
            let device = Device::preset(name).unwrap();
            let unsaid: Vec<_> = device.numbers().into_iter().filter(|it| device.origins.said(it).is_none()).collect();
            assert_eq!(unsaid, [""; 0], "{name}");
            assert_eq!(device.origins.of("peak.f16"), Origin::DataSheet, "{name}");
        }
        // Measured by those whom the file names; of an older device nothing was.
        let of_products = |name| Device::preset(name).unwrap().origins.of("products.ceiling");
        assert_eq!(of_products("mi250x"), Origin::Measured);
        // 125 of 191.5 TFLOP/s, as its file says.
        let Efficiency::Curve { ceiling, .. } = Device::preset("mi250x").unwrap().products else { panic!() };
        assert_eq!(ceiling, 0.65);
        assert_eq!((of_products("a100-80"), of_products("v100-32")), (Origin::Fitted, Origin::Assumed));
        let text = include_str!("../presets/devices/h100.toml").replace("\"products.ceiling\"", "\"products.roof\"");
        let message = Device::from_toml(&text).unwrap_err().to_string();
        assert!(message.starts_with("origins.products.roof = fitted"), "{message}");
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
            let half = device.peak.of(ElementType::F16).unwrap();
            let rounded = device.peak.tf32.unwrap_or(half);
            assert!(half >= rounded && rounded >= device.peak.single, "{name}");
            assert!(device.peak.single >= device.vector_rate, "{name}");
        }
        assert_eq!(Device::preset_names().count(), FIGURES.len());
        assert!(Device::preset("a1").unwrap_err().to_string().starts_with("unknown device 'a1'; known: "));
    }
}
