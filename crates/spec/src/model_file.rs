//! A model as its TOML file and `--set key=value` say it, before validation.

use serde::Deserialize;

use crate::toml_text::{self, check_name, check_size};
use crate::{Activation, Model, Norm, Positions, SpecError};

/// The largest sizes accepted. Even with all of them at once, the bytes of parameters, gradients and optimizer
/// states in f64 fit in 64 bits.
const MAX_LAYERS: usize = 1 << 13;
const MAX_HIDDEN: usize = 1 << 20;
const MAX_FFN: usize = 1 << 22;
const MAX_VOCAB: usize = 1 << 24;
const MAX_SEQ_LEN: usize = 1 << 24;
const MAX_PATCH_VALUES: usize = 1 << 20;

/// The fields of a model file. Only sizes without a usual value are required.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelFile {
    /// What the model is called in reports.
    pub name: String,
    /// Number of blocks.
    pub layers: usize,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Attention heads; divides `hidden`.
    pub heads: usize,
    /// Heads of keys and values; as many as `heads` if left out.
    pub kv_heads: Option<usize>,
    /// Width of the perceptron; `4 * hidden` if left out.
    pub ffn: Option<usize>,
    /// Number of token ids; needed unless the input is patches.
    pub vocab: Option<usize>,
    /// Longest sequence, in tokens.
    pub seq_len: usize,
    /// Numbers in a patch; left out, the input is tokens.
    pub patch_values: Option<usize>,
    /// Whether the head uses the embedding table; true if left out and the input is tokens.
    pub tied_head: Option<bool>,
    /// Whether linear layers have biases; true if left out.
    #[serde(default = "yes")]
    pub biases: bool,
    /// Dropout rate in [0, 1); 0 if left out.
    #[serde(default)]
    pub dropout: f64,
    /// `layer` or `rms`; `layer` if left out.
    #[serde(default = "layer_norm")]
    pub norm: Norm,
    /// Added to the variance or mean square in norms; 1e-5 if left out.
    #[serde(default = "default_norm_epsilon")]
    pub norm_epsilon: f64,
    /// `learned` or `rotary`; `learned` if left out.
    #[serde(default = "learned")]
    pub positions: Positions,
    /// Base of rotary frequencies; 10000 if left out.
    pub rotary_base: Option<f64>,
    /// `gelu` or `swiglu`; `gelu` if left out.
    #[serde(default = "gelu")]
    pub activation: Activation,
    /// Whether a position attends only to itself and those before it; true if left out and the input is tokens.
    pub causal: Option<bool>,
}

impl ModelFile {
    /// Every field, in the order of a file.
    pub const FIELDS: [&str; 18] = [
        "name",
        "layers",
        "hidden",
        "heads",
        "kv_heads",
        "ffn",
        "vocab",
        "seq_len",
        "patch_values",
        "tied_head",
        "biases",
        "dropout",
        "norm",
        "norm_epsilon",
        "positions",
        "rotary_base",
        "activation",
        "causal",
    ];

    /// The file of a model, every field given.
    pub fn of(model: &Model) -> Self {
        let tokens = model.patch_values.is_none();
        Self {
            name: model.name.clone(),
            layers: model.layers,
            hidden: model.hidden,
            heads: model.heads,
            kv_heads: Some(model.kv_heads),
            ffn: Some(model.ffn),
            vocab: tokens.then_some(model.vocab),
            seq_len: model.seq_len,
            patch_values: model.patch_values,
            tied_head: Some(model.tied_head),
            biases: model.biases,
            dropout: model.dropout,
            norm: model.norm,
            norm_epsilon: model.norm_epsilon,
            positions: model.positions,
            rotary_base: Some(model.rotary_base),
            activation: model.activation,
            causal: Some(model.causal),
        }
    }

    /// Reads the text of a file; nothing but syntax and types is checked.
    ///
    /// # Errors
    /// Text that is no TOML, a missing or unknown field, a value of the wrong type.
    pub fn from_toml(text: &str) -> Result<Self, SpecError> {
        toml_text::read("a model", text)
    }

    /// Replaces one field. `hidden` without a stated `ffn` rescales the perceptron with it.
    ///
    /// # Errors
    /// An unknown field, or a value of the wrong type.
    pub fn set(&mut self, field: &str, value: &str) -> Result<(), SpecError> {
        match field {
            "name" => self.name = value.to_owned(),
            "layers" => self.layers = parse_size(field, value)?,
            "hidden" => self.hidden = parse_size(field, value)?,
            "heads" => self.heads = parse_size(field, value)?,
            "kv_heads" => self.kv_heads = Some(parse_size(field, value)?),
            "ffn" => self.ffn = Some(parse_size(field, value)?),
            "vocab" => self.vocab = Some(parse_size(field, value)?),
            "seq_len" => self.seq_len = parse_size(field, value)?,
            "patch_values" => self.patch_values = Some(parse_size(field, value)?),
            "tied_head" => self.tied_head = Some(parse(field, value, "it must be true or false")?),
            "biases" => self.biases = parse(field, value, "it must be true or false")?,
            "dropout" => self.dropout = parse(field, value, "it must be a number")?,
            "norm" => self.norm = value.trim().parse()?,
            "norm_epsilon" => self.norm_epsilon = parse(field, value, "it must be a number")?,
            "positions" => self.positions = value.trim().parse()?,
            "rotary_base" => self.rotary_base = Some(parse(field, value, "it must be a number")?),
            "activation" => self.activation = value.trim().parse()?,
            "causal" => self.causal = Some(parse(field, value, "it must be true or false")?),
            _ => {
                let known = Self::FIELDS.map(str::to_owned).to_vec();
                return Err(SpecError::Unknown { what: "model field", name: field.to_owned(), known });
            }
        }
        Ok(())
    }

    /// The model, if every value keeps its rule.
    ///
    /// # Errors
    /// Names the first field that breaks its rule, the rule, and what would be possible.
    pub fn validate(self) -> Result<Model, SpecError> {
        check_name(&self.name)?;
        check_size("layers", self.layers, MAX_LAYERS)?;
        check_size("hidden", self.hidden, MAX_HIDDEN)?;
        check_size("heads", self.heads, self.hidden)?;
        let kv_heads = self.kv_heads.unwrap_or(self.heads);
        check_size("kv_heads", kv_heads, self.heads)?;
        let ffn = self.ffn.unwrap_or(4 * self.hidden);
        check_size("ffn", ffn, MAX_FFN)?;
        check_size("seq_len", self.seq_len, MAX_SEQ_LEN)?;
        SpecError::check_divides("heads", self.heads, "hidden", self.hidden)?;
        SpecError::check_divides("kv_heads", kv_heads, "heads", self.heads)?;
        let (vocab, tied_head) = self.input()?;
        if !(0.0..1.0).contains(&self.dropout) {
            return Err(SpecError::invalid("dropout", self.dropout, "a rate lies in [0, 1)", "use e.g. 0.1, or 0"));
        }
        if !(self.norm_epsilon > 0.0 && self.norm_epsilon <= 1.0) {
            return Err(SpecError::invalid(
                "norm_epsilon",
                self.norm_epsilon,
                "it must lie in (0, 1]",
                "use e.g. 1e-5",
            ));
        }
        let rotary_base = self.rotary_base()?;
        Ok(Model {
            name: self.name,
            layers: self.layers,
            hidden: self.hidden,
            heads: self.heads,
            kv_heads,
            ffn,
            vocab,
            seq_len: self.seq_len,
            patch_values: self.patch_values,
            tied_head,
            biases: self.biases,
            dropout: self.dropout,
            norm: self.norm,
            norm_epsilon: self.norm_epsilon,
            positions: self.positions,
            rotary_base,
            activation: self.activation,
            causal: self.causal.unwrap_or(self.patch_values.is_none()),
        })
    }

    /// Vocabulary and whether the head is tied: tokens have the one and may have the other, patches neither.
    fn input(&self) -> Result<(usize, bool), SpecError> {
        match (self.vocab, self.patch_values) {
            (Some(vocab), None) => {
                check_size("vocab", vocab, MAX_VOCAB)?;
                Ok((vocab, self.tied_head.unwrap_or(true)))
            }
            (None, Some(values)) => {
                check_size("patch_values", values, MAX_PATCH_VALUES)?;
                if self.tied_head == Some(true) {
                    let rule = "a model of patches has no table of tokens that its head could use";
                    return Err(SpecError::invalid("tied_head", true, rule, "leave it out"));
                }
                Ok((0, false))
            }
            (Some(vocab), Some(_)) => {
                let rule = "a model reads either tokens (vocab) or patches (patch_values)";
                Err(SpecError::invalid("vocab", vocab, rule, "leave one of them out"))
            }
            (None, None) => {
                let rule = "a model of tokens has a vocabulary, one of patches has patch_values";
                Err(SpecError::invalid("vocab", "none", rule, "give one of them"))
            }
        }
    }

    fn rotary_base(&self) -> Result<f64, SpecError> {
        let base = self.rotary_base.unwrap_or(10_000.0);
        if !(1.0..=1e12).contains(&base) {
            return Err(SpecError::invalid("rotary_base", base, "it must lie in 1..=1e12", "use e.g. 10000 or 500000"));
        }
        let head_dim = self.hidden / self.heads;
        if self.positions == Positions::Rotary && !head_dim.is_multiple_of(2) {
            let rule = format!("rotary positions turn pairs of a head's numbers, and a head has {head_dim}");
            return Err(SpecError::invalid("positions", "rotary", rule, "use hidden / heads that is even"));
        }
        Ok(base)
    }
}

impl Model {
    /// Reads a model file (see [`ModelFile`]), replaces fields by `overrides` (field, value) in their order, and
    /// validates the result.
    ///
    /// # Errors
    /// Those of [`ModelFile::from_toml`], [`ModelFile::set`] and [`ModelFile::validate`].
    pub fn from_toml(text: &str, overrides: &[(String, String)]) -> Result<Self, SpecError> {
        let mut file = ModelFile::from_toml(text)?;
        overrides.iter().try_for_each(|(field, value)| file.set(field, value))?;
        file.validate()
    }
}

fn yes() -> bool {
    true
}

fn layer_norm() -> Norm {
    Norm::Layer
}

fn learned() -> Positions {
    Positions::Learned
}

fn gelu() -> Activation {
    Activation::Gelu
}

fn default_norm_epsilon() -> f64 {
    1e-5
}

/// A whole number, with TOML's underscores allowed: `50_257`.
fn parse_size(field: &str, value: &str) -> Result<usize, SpecError> {
    parse(field, &value.replace('_', ""), "it must be a whole number")
}

fn parse<T: std::str::FromStr>(field: &str, value: &str, rule: &str) -> Result<T, SpecError> {
    let remedy = format!("write --set {field}=...");
    value.trim().parse().map_err(|_| SpecError::invalid(field, format!("'{value}'"), rule, remedy))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SMALL: &str = "name = \"small\"\nlayers = 2\nhidden = 12\nheads = 3\nvocab = 7\nseq_len = 5\n";

    fn with(overrides: &[(&str, &str)]) -> Result<Model, SpecError> {
        let owned: Vec<_> = overrides.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        Model::from_toml(SMALL, &owned)
    }

    #[test]
    fn fields_left_out_have_their_usual_values() {
        let model = with(&[]).unwrap();
        assert_eq!((model.ffn, model.tied_head, model.biases), (48, true, true));
        assert_eq!((model.dropout, model.norm_epsilon), (0.0, 1e-5));
    }

    #[test]
    fn a_stated_ffn_stays_and_the_default_follows_hidden() {
        assert_eq!(with(&[("hidden", "24")]).unwrap().ffn, 96);
        assert_eq!(with(&[("ffn", "30"), ("hidden", "24")]).unwrap().ffn, 30);
    }

    #[test]
    fn every_field_can_be_set_and_only_those() {
        let values = [
            "n", "3", "24", "6", "2", "72", "50_257", "9", "8", "false", "false", "0.25", "rms", "1e-6", "rotary",
            "5e5", "swiglu", "false",
        ];
        let overrides: Vec<_> = ModelFile::FIELDS.into_iter().zip(values).collect();
        let message = with(&overrides).unwrap_err().to_string();
        assert!(message.contains("either tokens (vocab) or patches (patch_values)"), "{message}");
        let overrides: Vec<_> = overrides.into_iter().filter(|(field, _)| *field != "patch_values").collect();
        let model = with(&overrides).unwrap();
        assert_eq!((model.name.as_str(), model.layers, model.hidden, model.heads), ("n", 3, 24, 6));
        assert_eq!((model.ffn, model.vocab, model.seq_len), (72, 50_257, 9));
        assert_eq!((model.tied_head, model.biases, model.dropout, model.norm_epsilon), (false, false, 0.25, 1e-6));
        assert_eq!((model.kv_heads, model.norm, model.positions), (2, Norm::Rms, Positions::Rotary));
        assert_eq!((model.rotary_base, model.activation, model.causal), (5e5, Activation::Swiglu, false));
        let message = with(&[("width", "3")]).unwrap_err().to_string();
        assert_eq!(message, format!("unknown model field 'width'; known: {}", ModelFile::FIELDS.join(", ")));
    }

    #[test]
    fn refusals_name_field_value_rule_and_remedy() {
        let message = |field, value| with(&[(field, value)]).unwrap_err().to_string();
        assert_eq!(message("heads", "5"), "heads=5 does not divide hidden = 12; try heads=4 or 6");
        assert_eq!(message("layers", "0"), "layers = 0: it must lie in 1..=8192; give a positive number");
        assert_eq!(message("hidden", "-1"), "hidden = '-1': it must be a whole number; write --set hidden=...");
        assert_eq!(message("dropout", "1"), "dropout = 1: a rate lies in [0, 1); use e.g. 0.1, or 0");
        assert!(message("dropout", "NaN").contains("[0, 1)"));
        assert!(message("norm_epsilon", "0").contains("(0, 1]"));
        assert!(message("norm_epsilon", "inf").contains("(0, 1]"));
        assert!(message("name", "").contains("1 to 100 printable"));
        assert!(message("tied_head", "maybe").contains("true or false"));
        assert_eq!(message("kv_heads", "2"), "kv_heads=2 does not divide heads = 3; try kv_heads=1 or 3");
        assert!(message("norm", "batch").contains("unknown norm 'batch'; known: layer, rms"));
        assert!(message("rotary_base", "0").contains("1..=1e12"));
        let rotary = with(&[("heads", "4"), ("positions", "rotary")]).unwrap_err().to_string();
        assert!(rotary.contains("a head has 3"), "{rotary}");
        assert!(message("vocab", "99999999999999999999").contains("whole number"));
    }

    #[test]
    fn faults_of_a_file_name_their_line() {
        let message = |text: &str| Model::from_toml(text, &[]).unwrap_err().to_string();
        let unknown = message(&format!("{SMALL}width = 3\n"));
        assert!(unknown.contains("'width = 3': line 7: unknown field `width`, expected one of `name`"), "{unknown}");
        let missing = message(&SMALL.replace("heads = 3\n", ""));
        assert!(missing.contains("missing field `heads`"), "{missing}");
        let wrong = message(&SMALL.replace("= 12", "= \"wide\""));
        assert!(wrong.contains("'hidden = \"wide\"': line 3: invalid type"), "{wrong}");
    }

    #[test]
    fn a_model_of_patches_has_no_vocabulary_and_sees_everything() {
        let text = SMALL.replace("vocab = 7", "patch_values = 20");
        let model = Model::from_toml(&text, &[]).unwrap();
        assert_eq!((model.vocab, model.patch_values, model.tied_head, model.causal), (0, Some(20), false, false));
        let tied = Model::from_toml(&text, &[("tied_head".to_owned(), "true".to_owned())]).unwrap_err().to_string();
        assert!(tied.contains("no table of tokens"), "{tied}");
        let neither = Model::from_toml(&SMALL.replace("vocab = 7\n", ""), &[]).unwrap_err().to_string();
        assert!(neither.contains("give one of them"), "{neither}");
    }

    #[test]
    fn the_largest_sizes_do_not_overflow() {
        let sizes = [("layers", MAX_LAYERS), ("hidden", MAX_HIDDEN), ("ffn", MAX_FFN), ("vocab", MAX_VOCAB)];
        let mut file = ModelFile::from_toml(SMALL).unwrap();
        for (field, size) in sizes.into_iter().chain([("seq_len", MAX_SEQ_LEN), ("heads", 1)]) {
            file.set(field, &size.to_string()).unwrap();
        }
        let file = ModelFile { tied_head: Some(false), activation: Activation::Swiglu, ..file };
        let model = file.validate().unwrap();
        // Parameter, gradient and two moments in f64.
        assert!(model.parameters().checked_mul(4 * 8).is_some());
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC{0,200}", field in "[a-z_]{0,8}", value in "\\PC{0,20}") {
            let _ = Model::from_toml(&text, &[(field.clone(), value.clone())]);
            let _ = Model::from_toml(SMALL, &[(field, value)]);
        }

        #[test]
        fn no_values_panic_and_what_is_accepted_survives_a_round_trip(
            sizes in prop::collection::vec(prop_oneof![20 => 1_usize..70, 1 => Just(0), 1 => any::<usize>()], 6),
            dropout in any::<f64>(),
            epsilon in any::<f64>(),
            flags in any::<[bool; 3]>(),
        ) {
            let file = ModelFile {
                name: "any".to_owned(),
                layers: sizes[0],
                hidden: if flags[2] { sizes[1] } else { sizes[1].saturating_mul(sizes[2]) },
                heads: sizes[2],
                kv_heads: flags[1].then_some(sizes[3]),
                ffn: flags[0].then_some(sizes[3]),
                vocab: flags[0].then_some(sizes[4]),
                seq_len: sizes[5],
                patch_values: (!flags[0]).then_some(sizes[4]),
                tied_head: flags[0].then_some(flags[1]),
                biases: flags[2],
                dropout: if flags[0] { dropout } else { 0.1 },
                norm: if flags[1] { Norm::Rms } else { Norm::Layer },
                norm_epsilon: if flags[2] { epsilon } else { 1e-6 },
                positions: if flags[2] { Positions::Rotary } else { Positions::Learned },
                rotary_base: flags[2].then_some(epsilon),
                activation: if flags[1] { Activation::Swiglu } else { Activation::Gelu },
                causal: Some(flags[2]),
            };
            if let Ok(model) = file.validate() {
                prop_assert!(model.head_dim() * model.heads == model.hidden && model.parameters() > 0);
                let text = toml::to_string(&model).unwrap();
                prop_assert_eq!(Model::from_toml(&text, &[]).unwrap(), model);
            }
        }
    }
}
