//! Models and texts that were converted.

use std::path::Path;
use std::slice;

use quadrille_data::{Converted, TokenFormat};
use quadrille_hugging_face::{Exported, Imported};
use quadrille_run::units::{bytes, decimal};
use quadrille_run::{SkippedFile, SourceOverview};
use quadrille_spec::{Model, ModelFile};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ReportVersion;
use crate::sources::{self, SourcesReport};

/// A model of the transformers library that has become a checkpoint: what `convert --from-hf --json` prints.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ImportedModelReport {
    /// Version of the document.
    pub version: ReportVersion,
    /// Fields of the model's file.
    pub model: ModelFile,
    /// The checkpoint.
    pub imported: Imported,
}

impl ImportedModelReport {
    /// Report of an imported model.
    pub fn new(model: &Model, imported: Imported) -> Self {
        Self { version: ReportVersion::CURRENT, model: ModelFile::of(model), imported }
    }

    /// Lines for people, of a model that was read from a folder.
    pub fn text(&self, folder: &Path) -> String {
        let done = &self.imported;
        let mut text = format!(
            "read     {}: {}, {} parameters in {}\nwritten  {}: {} tensors in f32\n",
            folder.display(),
            self.model.name,
            done.parameters,
            done.dtype,
            done.checkpoint.display(),
            done.tensors
        );
        if !done.ignored.is_empty() {
            text += &format!("left out {} (they follow from config.json)\n", done.ignored.join(", "));
        }
        text + &copied(&done.copied)
    }
}

/// A checkpoint that has become a model of the transformers library: what `convert --to-hf --json` prints.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ExportedModelReport {
    /// Version of the document.
    pub version: ReportVersion,
    /// Folder of the checkpoint.
    pub checkpoint: String,
    /// Folder of the model.
    pub folder: String,
    /// The model.
    pub exported: Exported,
    /// Notes on what differs from the model that was imported.
    pub notes: Vec<String>,
}

impl ExportedModelReport {
    /// Report of an exported model.
    pub fn new(checkpoint: &Path, folder: &Path, exported: Exported, notes: Vec<String>) -> Self {
        let [checkpoint, folder] = [checkpoint, folder].map(|path| path.to_string_lossy().into_owned());
        Self { version: ReportVersion::CURRENT, checkpoint, folder, exported, notes }
    }

    /// Lines for people.
    pub fn text(&self) -> String {
        let done = &self.exported;
        let mut text = format!(
            "read     {}\nwritten  {}: {}, {} tensors in {}, {} in {}\n",
            self.checkpoint,
            self.folder,
            done.family,
            done.tensors,
            done.dtype,
            bytes(done.bytes),
            done.files.join(", ")
        );
        if done.rounded > 0 {
            text += &format!("rounded  {} numbers, which {} does not hold exactly\n", done.rounded, done.dtype);
        }
        text + &copied(&done.copied)
    }
}

fn copied(names: &[String]) -> String {
    if names.is_empty() { String::new() } else { format!("copied   {}\n", names.join(", ")) }
}

/// A layout as options of another framework: what `export --json` prints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OptionsReport {
    /// Version of the document.
    pub version: ReportVersion,
    /// Name of the framework.
    pub framework: String,
    /// Its options.
    pub text: String,
    /// Parts of the layout that they do not express.
    pub cannot_express: Vec<String>,
}

/// Text or tokens that have become a file of tokens: what `data prepare --json` prints.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TokensReport {
    /// Version of the document.
    pub version: ReportVersion,
    /// The files that were read, and the tokenizer.
    pub read: SourcesReport,
    /// Files that were written.
    pub files: Vec<String>,
    /// Format of these files.
    pub format: String,
    /// Number of tokens.
    pub tokens: u64,
    /// Number of documents.
    pub documents: u64,
    /// Number of documents without an end token.
    pub documents_without_end: u64,
    /// Number of documents to which the end token was appended.
    pub ends_appended: u64,
    /// Name of the tokenizer.
    pub tokenizer: String,
    /// Number of tokens of its vocabulary.
    pub vocabulary: usize,
    /// Lines that were skipped because they hold no text.
    pub skipped_lines: Vec<SkippedFile>,
    /// Bytes that were read.
    pub bytes_read: u64,
    /// Seconds that it took.
    pub seconds: f64,
}

impl TokensReport {
    /// Report of what was read with a tokenizer and written in a format, in so many seconds.
    pub fn new(
        read: &SourceOverview,
        tokenizer: &str,
        converted: &Converted,
        format: TokenFormat,
        seconds: f64,
    ) -> Self {
        Self {
            version: ReportVersion::CURRENT,
            read: SourcesReport::new(slice::from_ref(read), Some(tokenizer)),
            files: converted.files.iter().map(|path| path.to_string_lossy().into_owned()).collect(),
            format: format.to_string(),
            tokens: converted.tokens,
            documents: converted.documents,
            documents_without_end: converted.ends.missing,
            ends_appended: converted.ends.appended,
            tokenizer: converted.vocabulary.name.to_string(),
            vocabulary: converted.vocabulary.size,
            skipped_lines: converted.skipped.iter().map(|(path, lines)| SkippedFile::new(path, lines)).collect(),
            bytes_read: converted.bytes_read,
            seconds,
        }
    }

    /// Lines for people.
    pub fn text(&self) -> String {
        let documents = |count: u64| if count == 1 { "1 document".to_owned() } else { format!("{count} documents") };
        let ends = match (self.ends_appended, self.documents_without_end) {
            (1.., _) => format!("the end token was appended to {}\n", documents(self.ends_appended)),
            (0, 1..) => format!(
                "{} without an end token, as before; `tokens.append_end` appends it\n",
                documents(self.documents_without_end)
            ),
            (0, 0) => String::new(),
        };
        let skipped: String = self.skipped_lines.iter().map(sources::skipped).collect();
        format!(
            "{}: {} tokens of {} in {} documents; {:.1} s, {}, {}\n{ends}{skipped}",
            self.files.join(", "),
            self.tokens,
            self.tokenizer,
            self.documents,
            self.seconds,
            decimal(self.bytes_read as f64 / self.seconds, "B/s"),
            decimal(self.tokens as f64 / self.seconds, "tokens/s"),
        )
    }
}
