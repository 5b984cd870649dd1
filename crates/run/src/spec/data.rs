//! What a run reads.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use quadrille_data::{Documents, Goldfish, InputFormat, Reading, SpecialTokens, TextRules, Tokenizer, TokenizerChoice};
use serde::{Deserialize, Serialize};

use crate::refusal::{Refusal, Setting};

/// What is read, and how it is cut into samples.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DataSpec {
    /// Text, JSON lines, Parquet, or tokens; files or folders. Without weights they are one source, with weights a mixture. None: what
    /// is built in for the kind of model.
    pub paths: Vec<DataPath>,
    /// Whose tokens; `None`: those of the `tokenizer.json` beside the checkpoint that is read, else those that its run has
    /// read, else the first built-in ones that the model has.
    pub tokenizer: Option<TokenizerChoice>,
    /// The field of JSON lines, or column of Parquet files, that holds the text.
    pub text_field: String,
    /// Format of files that do not show theirs.
    pub format: InputFormat,
    /// Whether files that are no text are read all the same.
    pub binary: bool,
    /// True if lines or rows without a text are skipped and counted; else they are errors.
    pub skip_bad_lines: bool,
    /// Special tokens of documents of text.
    pub special: SpecialTokens,
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

impl DataPath {
    /// Reads `PATH` or `PATH:WEIGHT`; a file of that whole name wins.
    ///
    /// # Errors
    /// A weight that is not positive.
    pub fn read(text: OsString) -> Result<Self, Refusal> {
        Self::of(text, exists)
    }

    fn of(text: OsString, exists: impl Fn(&Path) -> bool) -> Result<Self, Refusal> {
        let whole = Self { path: PathBuf::from(&text), weight: None };
        let Some((path, weight)) = text.to_str().and_then(|text| text.rsplit_once(':')) else { return Ok(whole) };
        if path.is_empty() || exists(&whole.path) {
            return Ok(whole);
        }
        match weight.parse::<f64>() {
            Ok(weight) if weight > 0.0 && weight.is_finite() => {
                Ok(Self { path: PathBuf::from(path), weight: Some(weight) })
            }
            Ok(_) => {
                Err(Refusal::new(format!("the weight {weight} of {path} is not a positive number, as in {path}:0.7")))
            }
            Err(_) => Ok(whole),
        }
    }
}

/// Whether a file, a folder, or a pair of Megatron-LM's files is called so.
fn exists(path: &Path) -> bool {
    let mut index = path.as_os_str().to_owned();
    index.push(".idx");
    path.exists() || Path::new(&index).is_file()
}

impl DataSpec {
    /// Rules that find the format of files and the documents in them.
    pub fn rules(&self) -> TextRules<'_> {
        TextRules { field: &self.text_field, format: self.format, skip_bad_lines: self.skip_bad_lines }
    }

    /// How text is read by a tokenizer.
    pub(crate) fn reading(&self, tokenizer: Tokenizer) -> Reading {
        Reading {
            tokenizer,
            text_field: self.text_field.clone(),
            format: self.format,
            binary: self.binary,
            skip_bad_lines: self.skip_bad_lines,
            special: self.special,
        }
    }

    /// The folder for tokenised text where nobody names one.
    pub const CACHE: &str = ".quadrille-cache";
    /// The field of JSON lines where nobody names one.
    pub const TEXT_FIELD: &str = TextRules::FIELD;

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
            (self.format != InputFormat::Auto, Setting::Format),
            (self.binary, Setting::Binary),
            (self.skip_bad_lines, Setting::SkipBadLines),
            (self.special.parsed, Setting::ParseSpecial),
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
            format: InputFormat::Auto,
            binary: false,
            skip_bad_lines: false,
            special: SpecialTokens::default(),
            documents: Documents::default(),
            held_out: HeldOut::default(),
            goldfish: None,
            cache: Self::CACHE.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_with_a_colon_that_exists_wins() {
        let parse = |name: &str, there: &[&str]| {
            DataPath::of(name.into(), |path| there.iter().any(|name| Path::new(name) == path))
        };
        let is = |path: &str, weight| Ok(DataPath { path: path.into(), weight });
        assert_eq!(parse("a.txt", &[]), is("a.txt", None));
        assert_eq!(parse("a.txt:0.7", &["a.txt"]), is("a.txt", Some(0.7)));
        assert_eq!(parse("a:2", &["a", "a:2"]), is("a:2", None));
        assert_eq!(parse("a:2:3e-1", &["a:2"]), is("a:2", Some(0.3)));
        assert_eq!(parse("a:b", &[]), is("a:b", None));
        assert_eq!(parse(":3", &[]), is(":3", None));
        for bad in ["a:0", "a:-1", "a:inf", "a:NaN"] {
            assert!(parse(bad, &["a"]).unwrap_err().to_string().contains("positive"), "{bad}");
        }
    }
}
