//! The sizes of a model that count.

use quadrille_spec::{Activation, Classic, Model, Norm, SpecError};

/// The sizes of a transformer that the model knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Sequence length `L`.
    pub seq: u64,
    /// Embedding `E`.
    pub embed: u64,
    /// Hidden width of the perceptron `F`.
    pub ffn: u64,
    /// Heads `H`.
    pub heads: u64,
    /// Blocks `D`.
    pub depth: u64,
}

impl TryFrom<&Model> for Shape {
    type Error = SpecError;

    /// Positions, mask and ends of the network do not count.
    fn try_from(model: &Model) -> Result<Self, SpecError> {
        let refusal = |field, value: String, usual| {
            let rule = "LBNL's model prices blocks of GPT and ViT only";
            Err(SpecError::invalid(field, value, rule, format!("use {field} = {usual}, or another cost model")))
        };
        model.check_classic("LBNL's model")?;
        match &model.classic() {
            Classic { activation, .. } if *activation != Activation::Gelu => {
                refusal("activation", activation.to_string(), Activation::Gelu.to_string())
            }
            Classic { norm, .. } if *norm != Norm::Layer => refusal("norm", norm.to_string(), Norm::Layer.to_string()),
            Classic { heads, kv_heads, .. } if heads != kv_heads => {
                refusal("kv_heads", kv_heads.to_string(), heads.to_string())
            }
            Classic { seq_len, hidden, ffn, heads, layers, .. } => {
                let [seq, embed, ffn, heads, depth] = [seq_len, hidden, ffn, heads, layers].map(|size| *size as u64);
                Ok(Self { seq, embed, ffn, heads, depth })
            }
        }
    }
}

impl Shape {
    /// The models of the published outputs: the name there and the preset.
    pub const PUBLISHED: [(&str, &str); 3] = [("gpt3", "gpt3-175b"), ("gpt3_1T", "gpt3-1t"), ("vit_era5", "vit-era5")];

    /// The model of that published name, or the preset.
    ///
    /// # Errors
    /// A name that is neither; a preset whose blocks the model does not price.
    pub fn named(name: &str) -> Result<Self, SpecError> {
        let published = Self::PUBLISHED.iter().find(|(published, _)| *published == name);
        let preset = Model::preset(published.map_or(name, |(_, preset)| preset)).map_err(|_| {
            let known = Self::PUBLISHED.iter().map(|(name, _)| *name).chain(Model::preset_names());
            SpecError::Unknown { what: "model", name: name.to_owned(), known: known.map(str::to_owned).collect() }
        })?;
        Self::try_from(&preset)
    }

    /// The name of these sizes in the published outputs.
    pub fn published_name(self) -> Option<&'static str> {
        let published = Self::PUBLISHED.into_iter().map(|(name, _)| name);
        published.into_iter().find(|name| Self::named(name) == Ok(self))
    }
}
