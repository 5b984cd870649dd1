//! `run.json`: what a run is.

use std::path::Path;

use quadrille_spec::{Layout, Ledger, Model, ModelFile};
use quadrille_step::KeptCounts;
use serde::{Deserialize, Serialize};
use serde_json::{Value, to_value};

use super::DESCRIPTION;
use crate::refusal::{Refusal, Setting};
use crate::{RunError, RunSpec, documents, layout_of_json, shown_layout};

/// Version of `run.json` that is written and read.
const VERSION: u32 = 2;

/// What `run.json` says.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Description {
    version: u32,
    /// The words by which the run was asked for, without those that name its folder: for people.
    pub command: Vec<String>,
    /// Specification of the run.
    pub spec: Box<RunSpec>,
    /// The model as a document.
    pub model: Value,
    /// The layout of the last part of the run as a document.
    pub layout: Value,
    /// The predicted ledgers of a step.
    pub predicted: Value,
    /// What else is known before the first step.
    pub known: Known,
}

/// What is known of a run before its first step, beside what decides it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Known {
    /// The last step.
    pub steps: Option<u64>,
    /// Threads of each rank.
    pub threads: Option<usize>,
    /// The least mean loss that a model can reach on the data, where that is known.
    pub floor: Option<f64>,
    /// Of a pruned model: how many elements of a tile ranks have room for, by tensor.
    #[serde(default, skip_serializing_if = "KeptCounts::is_empty")]
    pub kept: KeptCounts,
}

impl Description {
    /// Description of a run that `spec` decides, whose program has this layout and these ledgers.
    ///
    /// # Errors
    /// None that is known: all of it is plain data.
    pub fn new(
        spec: RunSpec,
        command: Vec<String>,
        layout: &Layout,
        predicted: &Ledger,
        known: Known,
    ) -> Result<Self, RunError> {
        let model = to_value(&spec.model).map_err(RunError::Document)?;
        let layout = to_value(shown_layout(layout)).map_err(RunError::Document)?;
        let predicted = to_value(predicted).map_err(RunError::Document)?;
        Ok(Self { version: VERSION, command, spec: Box::new(spec), model, layout, predicted, known })
    }

    /// What the run of a folder is.
    ///
    /// # Errors
    /// There is none; a file of another version.
    pub fn read(folder: &Path) -> Result<Self, RunError> {
        let file = folder.join(DESCRIPTION);
        let text = match documents::RUN.text(&file) {
            Err(error) if error.is_missing() => {
                let refusal = Refusal::new(format!("{} holds no run.json: a run's folder, as ", folder.display()));
                return Err(refusal.name(Setting::Out).text(" makes it, has one").into());
            }
            text => text?,
        };
        if text.trim().is_empty() {
            let refusal =
                Refusal::new(format!("{} has nothing in it; restore it from a copy, or begin ", file.display()));
            return Err(refusal
                .text("another run with the weights of this one's newest checkpoint: ")
                .name(Setting::From)
                .into());
        }
        Self::of_text(&text).map_err(|reason| Refusal::new(format!("{}: {reason}", file.display())).into())
    }

    /// The model, held against its rules.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub fn model(&self) -> Result<Model, String> {
        let file: ModelFile = serde_json::from_value(self.model.clone()).map_err(|error| error.to_string())?;
        file.validate().map_err(|error| error.to_string())
    }

    /// The layout of the last part of the run, held against the model.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub fn layout(&self, model: &Model) -> Result<Layout, String> {
        let file = layout_of_json(self.layout.clone()).map_err(|error| format!("layout: {error}"))?;
        file.validate(model).map_err(|error| format!("layout: {error}"))
    }

    fn of_text(text: &str) -> Result<Self, String> {
        let value: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let version = value["version"].as_u64();
        if version != Some(VERSION.into()) {
            let found = version.map_or("unknown".to_owned(), |version| version.to_string());
            return Err(format!("version {found} of a run's description, and this program reads version {VERSION}"));
        }
        serde_json::from_value(value).map_err(|error| error.to_string())
    }
}
