//! Flags that say what is read: for every command that takes text.

use std::path::{Path, PathBuf};

use clap::Args;
use quadrille_data::Tokenizer;

/// What samples are read from.
#[derive(Debug, Args)]
pub struct DataArguments {
    /// Text files or folders [default: a built-in corpus of known entropy; for models of patches built-in moving waves]
    #[arg(long, value_name = "PATH", num_args = 1..)]
    pub data: Vec<PathBuf>,
    /// gpt2 or bytes [default: gpt2 if the model's vocabulary is large enough]
    #[arg(long, value_name = "NAME")]
    pub tokenizer: Option<Tokenizer>,
    /// Folder for tokenised text
    #[arg(long, value_name = "FOLDER", default_value = ".quadrille-cache")]
    pub cache: PathBuf,
}

impl DataArguments {
    /// The files and folders that are read, each with the flag that names it.
    pub fn paths(&self) -> impl Iterator<Item = (&'static str, &Path)> {
        self.data.iter().map(|path| ("--data", path.as_path()))
    }
}
