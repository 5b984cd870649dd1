//! Which tokenizer is asked for: a name or a file, before the file is read.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::Tokenizer;
use crate::DataError;

/// What `--tokenizer` names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenizerChoice {
    /// [`Tokenizer::Gpt2`].
    Gpt2,
    /// [`Tokenizer::Bytes`].
    Bytes,
    /// A `tokenizer.json`, or the folder of a model that holds one.
    File(PathBuf),
}

impl TokenizerChoice {
    /// Reads the file, if it is one.
    ///
    /// # Errors
    /// Those of [`Tokenizer::from_file`].
    pub fn open(&self) -> Result<Tokenizer, DataError> {
        match self {
            Self::Gpt2 => Ok(Tokenizer::Gpt2),
            Self::Bytes => Ok(Tokenizer::Bytes),
            Self::File(path) if path.is_dir() => Tokenizer::from_file(&path.join("tokenizer.json")),
            Self::File(path) => Tokenizer::from_file(path),
        }
    }
}

impl fmt::Display for TokenizerChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gpt2 => f.pad("gpt2"),
            Self::Bytes => f.pad("bytes"),
            Self::File(path) => f.pad(&path.display().to_string()),
        }
    }
}

impl FromStr for TokenizerChoice {
    type Err = DataError;

    /// What ends in `.json`, has a `/` in it or is there is a file.
    fn from_str(name: &str) -> Result<Self, DataError> {
        let path = PathBuf::from(name);
        match name {
            "gpt2" => Ok(Self::Gpt2),
            "bytes" => Ok(Self::Bytes),
            _ if name.ends_with(".json") || name.contains('/') || path.exists() => Ok(Self::File(path)),
            other => Err(DataError::UnknownTokenizer(other.to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_and_written() {
        for name in ["gpt2", "bytes", "llama/tokenizer.json", "folder/"] {
            assert_eq!(name.parse::<TokenizerChoice>().unwrap().to_string(), name);
        }
        for choice in [TokenizerChoice::Gpt2, TokenizerChoice::Bytes] {
            assert_eq!(choice.open().unwrap().to_string(), choice.to_string());
        }
        let message = "gpt3".parse::<TokenizerChoice>().unwrap_err().to_string();
        assert!(["gpt3", "gpt2", "bytes", ".json"].iter().all(|word| message.contains(word)), "{message}");
    }

    #[test]
    fn a_missing_file_is_named() {
        let message = "absent/tokenizer.json".parse::<TokenizerChoice>().unwrap().open().unwrap_err().to_string();
        assert!(message.contains("absent/tokenizer.json"), "{message}");
    }
}
