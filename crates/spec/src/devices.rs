//! The devices that come with the program, one TOML file each in `presets/devices`, which names its sources.

use crate::{Device, SpecError};

macro_rules! preset {
    ($name:literal) => {
        ($name, include_str!(concat!("../presets/devices/", $name, ".toml")))
    };
}

/// Name and file of every preset, by maker and age.
const PRESETS: [(&str, &str); 1] = [preset!("a100-80")];

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

    #[test]
    fn every_preset_is_legal_and_carries_its_name() {
        for name in Device::preset_names() {
            assert_eq!(Device::preset(name).unwrap().name, name);
        }
        assert!(Device::preset("a1").unwrap_err().to_string().starts_with("unknown device 'a1'; known: "));
    }
}
