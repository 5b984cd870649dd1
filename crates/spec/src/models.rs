//! The models that come with the program, one TOML file each in `presets/models`, which names its source.

use crate::{Model, SpecError};

macro_rules! preset {
    ($name:literal) => {
        ($name, include_str!(concat!("../presets/models/", $name, ".toml")))
    };
}

/// Name and file of every preset, by family and size.
const PRESETS: [(&str, &str); 63] = [
    preset!("gpt-tiny"),
    preset!("gpt-demo"),
    preset!("gpt2-124m"),
    preset!("gpt2-355m"),
    preset!("gpt2-774m"),
    preset!("gpt2-1558m"),
    preset!("gpt3-125m"),
    preset!("gpt3-350m"),
    preset!("gpt3-760m"),
    preset!("gpt3-1.3b"),
    preset!("gpt3-2.7b"),
    preset!("gpt3-6.7b"),
    preset!("gpt3-13b"),
    preset!("gpt3-175b"),
    preset!("megatron-1.7b"),
    preset!("megatron-3.6b"),
    preset!("megatron-7.5b"),
    preset!("megatron-18.4b"),
    preset!("megatron-39.1b"),
    preset!("megatron-76.1b"),
    preset!("megatron-145.6b"),
    preset!("megatron-310.1b"),
    preset!("megatron-529.6b"),
    preset!("megatron-1008b"),
    preset!("gpt-5b"),
    preset!("gpt-10b"),
    preset!("gpt-20b"),
    preset!("gpt-40b"),
    preset!("gpt-60b"),
    preset!("gpt-80b"),
    preset!("gpt-160b"),
    preset!("gpt-320b"),
    preset!("gpt-640b"),
    preset!("gpt3-1t"),
    preset!("moe-tiny"),
    preset!("moe-demo"),
    preset!("llama-tiny"),
    preset!("llama2-7b"),
    preset!("llama2-13b"),
    preset!("llama2-70b"),
    preset!("llama3-8b"),
    preset!("llama3-70b"),
    preset!("llama3-405b"),
    preset!("gemma2-2b"),
    preset!("gemma2-9b"),
    preset!("gemma2-27b"),
    preset!("gemma3-1b"),
    preset!("gemma3-4b"),
    preset!("gemma3-12b"),
    preset!("gemma3-27b"),
    preset!("mixtral-8x7b"),
    preset!("mixtral-8x22b"),
    preset!("olmoe-1b-7b"),
    preset!("qwen3-30b-a3b"),
    preset!("qwen3-235b-a22b"),
    preset!("deepseek-v3"),
    preset!("kimi-k2"),
    preset!("ted-1.3b"),
    preset!("ted-2.7b"),
    preset!("ted-6.7b"),
    preset!("ted-13b"),
    preset!("vit-tiny"),
    preset!("vit-era5"),
];

impl Model {
    /// The model of that name, as it comes with the program.
    ///
    /// # Errors
    /// A name that is not among [`Model::preset_names`].
    pub fn preset(name: &str) -> Result<Self, SpecError> {
        Self::from_toml(Self::preset_text(name)?, &[])
    }

    /// The file of a preset, to be read with overrides by [`Model::from_toml`].
    ///
    /// # Errors
    /// A name that is not among [`Model::preset_names`].
    pub fn preset_text(name: &str) -> Result<&'static str, SpecError> {
        PRESETS.iter().find(|(known, _)| *known == name).map(|(_, text)| *text).ok_or_else(|| SpecError::Unknown {
            what: "model",
            name: name.to_owned(),
            known: Self::preset_names().map(str::to_owned).collect(),
        })
    }

    /// The names of all presets, by family and size.
    pub fn preset_names() -> impl Iterator<Item = &'static str> {
        PRESETS.iter().map(|(name, _)| *name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn billions(name: &str) -> f64 {
        Model::preset(name).unwrap().parameters() as f64 / 1e9
    }

    #[test]
    fn every_preset_is_legal_and_carries_its_name() {
        for name in Model::preset_names() {
            assert_eq!(Model::preset(name).unwrap().name, name);
            assert!(Model::preset_text(name).unwrap().starts_with("# "), "{name} says where it comes from");
        }
        assert!(Model::preset("gpt5").unwrap_err().to_string().contains("known: gpt-tiny, gpt-demo, gpt2-124m"));
    }

    #[test]
    fn gpt2_has_the_parameters_of_the_release() {
        let counts =
            ["gpt2-124m", "gpt2-355m", "gpt2-774m", "gpt2-1558m"].map(|name| Model::preset(name).unwrap().parameters());
        assert_eq!(counts, [124_439_808, 354_823_168, 774_030_080, 1_557_611_200]);
    }

    #[test]
    fn megatron_models_reproduce_table_1_to_the_printed_digit() {
        let printed = ["1.7", "3.6", "7.5", "18.4", "39.1", "76.1", "145.6", "310.1", "529.6", "1008.0"];
        let names: Vec<_> = Model::preset_names().filter(|name| name.starts_with("megatron-")).collect();
        assert_eq!(names.len(), printed.len());
        for (name, printed) in names.into_iter().zip(printed) {
            assert_eq!(format!("{:.1}", billions(name)), printed, "{name}");
            assert_eq!(format!("{:.1}", equation_2(&Model::preset(name).unwrap()) / 1e9), printed, "{name}");
        }
    }

    /// Narayanan et al. 2021, equation 2: all but the last layer norm.
    fn equation_2(model: &Model) -> f64 {
        let l = model.layers() as f64;
        let h = model.hidden as f64;
        let table = (model.vocab + model.seq_len) as f64;
        12.0 * l * h * h * (1.0 + 13.0 / (12.0 * h) + table / (12.0 * l * h))
    }

    #[test]
    fn equation_2_counts_all_but_the_last_norm() {
        let model = Model::preset("megatron-1.7b").unwrap();
        assert_eq!(model.parameters(), equation_2(&model).round() as u64 + 2 * model.hidden as u64);
    }

    #[test]
    fn axonn_models_have_the_size_of_their_name() {
        for size in [5.0, 10.0, 20.0, 40.0, 60.0, 80.0, 160.0, 320.0, 640.0] {
            let ratio = billions(&format!("gpt-{size}b")) / size;
            assert!((0.94..1.05).contains(&ratio), "gpt-{size}b has {ratio} of its name");
        }
    }

    #[test]
    fn llamas_have_the_parameters_of_the_releases() {
        let printed = [
            ("llama2-7b", 6_738_415_616),
            ("llama2-13b", 13_015_864_320),
            ("llama2-70b", 68_976_648_192),
            ("llama3-8b", 8_030_261_248),
            ("llama3-70b", 70_553_706_496),
            ("llama3-405b", 405_853_388_800),
        ];
        for (name, parameters) in printed {
            assert_eq!(Model::preset(name).unwrap().parameters(), parameters, "{name}");
        }
    }

    /// All of them, and what works on a token.
    #[test]
    fn mixtures_have_the_parameters_of_the_releases() {
        let released = [
            ("mixtral-8x7b", 46_702_792_704, 12_879_925_248),
            ("mixtral-8x22b", 140_620_634_112, 39_152_031_744),
            ("olmoe-1b-7b", 6_919_161_856, 1_282_017_280),
            ("qwen3-30b-a3b", 30_532_122_624, 3_353_032_704),
            ("qwen3-235b-a22b", 235_093_634_560, 22_190_763_520),
            // With 256 numbers a router by which experts are chosen.
            ("deepseek-v3", 671_026_419_200, 37_552_297_472),
            ("kimi-k2", 1_026_408_232_448, 32_861_500_928),
        ];
        for (name, all, active) in released {
            let model = Model::preset(name).unwrap();
            assert_eq!((model.parameters(), model.active_parameters()), (all, active), "{name}");
        }
    }

    /// In every other block 16 experts without biases and a router in the place of a perceptron of GPT-3.
    #[test]
    fn models_of_ted_are_those_of_gpt3_but_for_their_experts() {
        for size in ["1.3b", "2.7b", "6.7b", "13b"] {
            let [ted, base] = ["ted", "gpt3"].map(|family| Model::preset(&format!("{family}-{size}")).unwrap());
            let blocks = base.layers() as u64 / 2;
            let h = base.hidden as u64;
            let experts = 16 * (8 * h * h + h);
            let perceptron = 8 * h * h + 5 * h;
            assert_eq!(ted.parameters(), base.parameters() + blocks * (experts - perceptron), "{size}");
        }
    }

    #[test]
    fn gpt3_models_have_the_size_of_their_name() {
        let nominal = [0.125, 0.35, 0.76, 1.3, 2.7, 6.7, 13.0, 175.0, 1000.0];
        for (name, nominal) in Model::preset_names().filter(|name| name.starts_with("gpt3-")).zip(nominal) {
            let ratio = billions(name) / nominal;
            assert!((0.98..1.03).contains(&ratio), "{name} has {ratio} of its name");
        }
    }
}
