//! What a run reads.

use std::path::PathBuf;

use quadrille_data::{Documents, Goldfish, TokenizerChoice};
use serde::{Deserialize, Serialize};

use crate::refusal::{Refusal, Setting};

/// What is read, and how it is cut into samples.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DataSpec {
    /// Text, JSON lines, or tokens; files or folders. Without weights they are one source, with weights a mixture. None: what
    /// is built in for the kind of model.
    pub paths: Vec<DataPath>,
    /// Whose tokens; `None`: those of the `tokenizer.json` beside the checkpoint that is read, else those that its run has
    /// read, else the first built-in ones that the model has.
    pub tokenizer: Option<TokenizerChoice>,
    /// The field of JSON lines that holds the text.
    pub text_field: String,
    /// Whether a sample may hold parts of several documents.
    pub documents: Documents,
    /// What validation reads.
    pub held_out: HeldOut,
    /// Which targets are left out of the training loss.
    pub goldfish: Option<Goldfish>,
    /// The folder for tokenised text.
    pub cache: PathBuf,
}

/// What is not learned from.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HeldOut {
    /// Nothing: there is no validation.
    #[default]
    Nothing,
    /// This share of the tokens, the last documents of every source; of what is built in another text.
    Share(f64),
    /// These files or folders.
    Files(Vec<DataPath>),
}

/// A file or folder, and how much of it is read compared with others.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DataPath {
    /// Where it is.
    pub path: PathBuf,
    /// Positive.
    pub weight: Option<f64>,
}

impl DataSpec {
    /// The folder for tokenised text where nobody names one.
    pub const CACHE: &str = ".quadrille-cache";
    /// The field of JSON lines where nobody names one.
    pub const TEXT_FIELD: &str = "text";

    /// The files and folders that are kept apart, if any are named.
    pub fn held_out_files(&self) -> &[DataPath] {
        match &self.held_out {
            HeldOut::Files(files) => files,
            HeldOut::Nothing | HeldOut::Share(_) => &[],
        }
    }

    /// The share that is kept apart, if one is named.
    pub fn held_out_share(&self) -> Option<f64> {
        match self.held_out {
            HeldOut::Share(share) => Some(share),
            HeldOut::Nothing | HeldOut::Files(_) => None,
        }
    }

    /// A choice that was made and that only text can obey.
    pub(crate) fn of_text(&self) -> Option<Setting> {
        let made = [
            (!self.paths.is_empty(), Setting::Data),
            (self.tokenizer.is_some(), Setting::Tokenizer),
            (self.text_field != Self::TEXT_FIELD, Setting::TextField),
            (self.documents != Documents::default(), Setting::Documents),
            (self.goldfish.is_some(), Setting::Goldfish),
        ];
        made.into_iter().find_map(|(made, setting)| made.then_some(setting))
    }

    /// Refuses numbers that mean nothing.
    pub(crate) fn check(&self) -> Result<(), Refusal> {
        let of = [(Setting::Data, self.paths.as_slice()), (Setting::HeldOutFiles, self.held_out_files())];
        for (setting, paths) in of {
            let mut weighted = paths.iter().filter_map(|data| Some((data, data.weight?)));
            if let Some((data, weight)) = weighted.find(|(_, weight)| !(*weight > 0.0 && weight.is_finite())) {
                let path = data.path.display();
                return Err(
                    Refusal::of(setting).text(format!(": the weight {weight} of {path} is not a positive number"))
                );
            }
        }
        Ok(())
    }
}

impl Default for DataSpec {
    /// What is built in, as it usually is.
    fn default() -> Self {
        Self {
            paths: Vec::new(),
            tokenizer: None,
            text_field: Self::TEXT_FIELD.to_owned(),
            documents: Documents::default(),
            held_out: HeldOut::default(),
            goldfish: None,
            cache: Self::CACHE.into(),
        }
    }
}
