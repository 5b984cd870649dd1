//! Model and cluster of a request: the name of a preset, or a description.

use std::fmt;

use quadrille_spec::{Cluster, Model, ModelFile, SpecError};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

/// Model of a request.
#[derive(Debug, Clone, PartialEq)]
pub enum ModelSource {
    /// Name of a preset.
    Preset(String),
    /// Fields of a model file.
    Described(Box<ModelFile>),
    /// Hugging Face configuration, the table `hugging_face`.
    HuggingFace(Map<String, Value>),
}

/// Key of a table that holds a Hugging Face configuration.
const HUGGING_FACE: &str = "hugging_face";

impl ModelSource {
    /// The model, with other values of some of its fields.
    ///
    /// # Errors
    /// No such preset or field; a rule of models that is broken; a configuration that this program does not have.
    pub fn model(&self, set: &[(String, String)]) -> Result<Model, SpecError> {
        match self {
            Self::Preset(name) => Model::from_toml(Model::preset_text(name)?, set),
            Self::Described(file) => {
                let mut file = file.clone();
                set.iter().try_for_each(|(field, value)| file.set(field, value))?;
                file.validate()
            }
            Self::HuggingFace(configuration) => {
                Model::from_hugging_face(&Value::Object(configuration.clone()).to_string(), set)
            }
        }
    }
}

impl From<&str> for ModelSource {
    fn from(preset: &str) -> Self {
        Self::Preset(preset.to_owned())
    }
}

impl From<&Model> for ModelSource {
    fn from(model: &Model) -> Self {
        Self::Described(Box::new(ModelFile::of(model)))
    }
}

impl Serialize for ModelSource {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Preset(name) => serializer.serialize_str(name),
            Self::Described(file) => file.serialize(serializer),
            Self::HuggingFace(configuration) => [(HUGGING_FACE, configuration)]
                .into_iter()
                .collect::<std::collections::BTreeMap<_, _>>()
                .serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for ModelSource {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Source;

        impl<'de> Visitor<'de> for Source {
            type Value = ModelSource;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a model, the fields of a model file, or a table with hugging_face")
            }

            fn visit_str<E: Error>(self, name: &str) -> Result<ModelSource, E> {
                Ok(ModelSource::Preset(name.to_owned()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ModelSource, A::Error> {
                let mut fields = Map::deserialize(MapAccessDeserializer::new(map))?;
                match fields.remove(HUGGING_FACE) {
                    Some(Value::Object(configuration)) if fields.is_empty() => {
                        Ok(ModelSource::HuggingFace(configuration))
                    }
                    Some(other) if fields.is_empty() => {
                        Err(A::Error::custom(format!("hugging_face is {other}: it is the object of a config.json")))
                    }
                    Some(_) => {
                        Err(A::Error::custom("hugging_face is a whole configuration; leave out the other fields"))
                    }
                    None => {
                        let file = ModelFile::deserialize(Value::Object(fields)).map_err(A::Error::custom)?;
                        Ok(ModelSource::Described(Box::new(file)))
                    }
                }
            }
        }

        deserializer.deserialize_any(Source)
    }
}

/// Cluster of a request.
#[derive(Debug, Clone, PartialEq)]
pub enum ClusterSource {
    /// Name of a preset.
    Preset(String),
    /// Fields of a cluster file.
    Described(Box<Cluster>),
}

impl ClusterSource {
    /// The cluster.
    ///
    /// # Errors
    /// No such preset.
    pub fn cluster(&self) -> Result<Cluster, SpecError> {
        match self {
            Self::Preset(name) => Cluster::preset(name),
            Self::Described(cluster) => Ok((**cluster).clone()),
        }
    }
}

impl From<&str> for ClusterSource {
    fn from(preset: &str) -> Self {
        Self::Preset(preset.to_owned())
    }
}

impl From<&Cluster> for ClusterSource {
    fn from(cluster: &Cluster) -> Self {
        Self::Described(Box::new(cluster.clone()))
    }
}

impl Serialize for ClusterSource {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Preset(name) => serializer.serialize_str(name),
            Self::Described(cluster) => cluster.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for ClusterSource {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Source;

        impl<'de> Visitor<'de> for Source {
            type Value = ClusterSource;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a cluster, or the fields of a cluster file")
            }

            fn visit_str<E: Error>(self, name: &str) -> Result<ClusterSource, E> {
                Ok(ClusterSource::Preset(name.to_owned()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ClusterSource, A::Error> {
                let cluster = Cluster::deserialize(MapAccessDeserializer::new(map))?;
                Ok(ClusterSource::Described(Box::new(cluster)))
            }
        }

        deserializer.deserialize_any(Source)
    }
}
