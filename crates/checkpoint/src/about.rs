//! What a checkpoint is of.

use std::borrow::Cow;

use quadrille_spec::{Field, Layout, LayoutFile, Model, ModelFile, RealType, SpecError};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

/// What a run must know to go on, and people to tell checkpoints apart.
#[derive(Debug, Clone, PartialEq)]
pub struct About {
    /// The model whose parameters it holds.
    pub model: Model,
    /// The layout of the run that wrote it; any other reads it as well.
    pub layout: Layout,
    /// Type of the stored numbers.
    pub dtype: RealType,
    /// Optimizer steps done.
    pub step: u64,
    /// Sequences consumed since the start of the run: the place in the data.
    pub samples: u64,
    /// Target tokens (or patches) consumed.
    pub tokens: u64,
    /// Keys initial values, order of the data and dropout.
    pub seed: u64,
    /// The optimizer's and the schedule's constants, as the engine writes them.
    pub hyper: Value,
    /// Where the data are from, as the command line writes it.
    pub data: Value,
    /// The run: its name, program, times.
    pub run: Value,
    /// The Hugging Face configuration of a converted model.
    pub hugging_face: Option<Value>,
}

impl Serialize for About {
    /// As in a manifest: the layout as in its file.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.text().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for About {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = AboutText::<ModelFile>::deserialize(deserializer)?;
        text.validate().map_err(|(part, error)| D::Error::custom(format_args!("{part}: {error}")))
    }
}

impl JsonSchema for About {
    fn schema_name() -> Cow<'static, str> {
        "About".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        AboutText::<ModelFile>::json_schema(generator)
    }
}

/// The same in a manifest, before validation. The layout is written as in its file.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AboutText<M> {
    model: M,
    layout: LayoutFile,
    dtype: RealType,
    step: u64,
    samples: u64,
    tokens: u64,
    seed: u64,
    hyper: Value,
    data: Value,
    run: Value,
    hugging_face: Option<Value>,
}

impl About {
    /// What is written.
    fn text(&self) -> AboutText<&Model> {
        AboutText {
            model: &self.model,
            layout: LayoutFile::of(&self.layout).with(Field::Dtype, Field::Dtype.of(&self.layout)),
            dtype: self.dtype,
            step: self.step,
            samples: self.samples,
            tokens: self.tokens,
            seed: self.seed,
            hyper: self.hyper.clone(),
            data: self.data.clone(),
            run: self.run.clone(),
            hugging_face: self.hugging_face.clone(),
        }
    }
}

impl AboutText<ModelFile> {
    /// What it means.
    ///
    /// # Errors
    /// "model" or "layout", and the rule that it breaks.
    pub fn validate(self) -> Result<About, (&'static str, SpecError)> {
        let model = self.model.validate().map_err(|error| ("model", error))?;
        let layout = self.layout.validate(&model).map_err(|error| ("layout", error))?;
        Ok(About {
            model,
            layout,
            dtype: self.dtype,
            step: self.step,
            samples: self.samples,
            tokens: self.tokens,
            seed: self.seed,
            hyper: self.hyper,
            data: self.data,
            run: self.run,
            hugging_face: self.hugging_face,
        })
    }
}
