//! A run's specification as it is written, before its model and layout are held against their rules.

use quadrille_engine::{DivergencePolicy, LossScale};
use quadrille_spec::ModelFile;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::layout::LayoutText;
use super::{
    CheckpointSpec, CollectivesSpec, DataSpec, OptimizerSpec, OutputSpec, RunSpec, StartSpec, StatesSpec, TuningSpec,
    ValidationSpec,
};

/// [`RunSpec`] as text.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SpecText {
    version: Version,
    model: ModelFile,
    layout: LayoutText,
    start: StartSpec,
    steps: u64,
    seed: u64,
    optimizer: OptimizerSpec,
    data: DataSpec,
    validation: ValidationSpec,
    checkpoints: CheckpointSpec,
    divergence: DivergencePolicy,
    loss_scale: Option<LossScale>,
    collectives: CollectivesSpec,
    tuning: TuningSpec,
    /// Left out where states lie in memory.
    #[serde(default, skip_serializing_if = "StatesSpec::is_memory")]
    states: StatesSpec,
    threads: Option<usize>,
    timeout: f64,
    outputs: OutputSpec,
}

impl From<RunSpec> for SpecText {
    fn from(spec: RunSpec) -> Self {
        let RunSpec { model, layout, start, steps, seed, optimizer, data, validation, checkpoints, .. } = spec;
        let RunSpec { divergence, loss_scale, collectives, tuning, states, threads, timeout, outputs, .. } = spec;
        Self {
            version: Version,
            model: ModelFile::of(&model),
            layout: layout.into(),
            start,
            steps,
            seed,
            optimizer,
            data,
            validation,
            checkpoints,
            divergence,
            loss_scale,
            collectives,
            tuning,
            states,
            threads,
            timeout,
            outputs,
        }
    }
}

impl TryFrom<SpecText> for RunSpec {
    type Error = String;

    fn try_from(text: SpecText) -> Result<Self, String> {
        let SpecText { model, layout, start, steps, seed, optimizer, data, validation, checkpoints, .. } = text;
        let SpecText { divergence, loss_scale, collectives, tuning, states, threads, timeout, outputs, .. } = text;
        let model = model.validate().map_err(|error| format!("model: {error}"))?;
        let layout = layout.validate(&model).map_err(|error| format!("layout: {error}"))?;
        Ok(Self {
            model,
            layout,
            start,
            steps,
            seed,
            optimizer,
            data,
            validation,
            checkpoints,
            divergence,
            loss_scale,
            collectives,
            tuning,
            states,
            threads,
            timeout,
            outputs,
        })
    }
}

/// Version of the form that is written and read. It is the first field, so that another form is refused by its version.
#[derive(Debug, Clone, Copy)]
struct Version;

const VERSION: u32 = 2;

impl Serialize for Version {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u32(VERSION)
    }
}

impl<'de> Deserialize<'de> for Version {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match u32::deserialize(deserializer)? {
            VERSION => Ok(Self),
            other => Err(D::Error::custom(format!(
                "version {other} of what decides a run, and this program reads version {VERSION}"
            ))),
        }
    }
}
