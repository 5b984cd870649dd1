//! Everything that can go wrong between a text and a batch.

use std::io;
use std::path::{Path, PathBuf};

use quadrille_files::FileError;
use quadrille_spec::counted;

use crate::{LineUnit, SkippedLines};

/// What this crate's functions return when they fail.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataError {
    /// The name of a tokenizer that does not exist.
    #[error(
        "unknown tokenizer `{0}`: use `gpt2` (50257 tokens), `bytes` (256 tokens) or a file of the kind `tokenizer.json`"
    )]
    UnknownTokenizer(String),

    /// A token that the tokenizer does not have.
    #[error("token {token} is not in the vocabulary of `{tokenizer}`, whose tokens are 0 to {}", vocab.saturating_sub(1))]
    UnknownToken {
        /// The token.
        token: u32,
        /// The tokenizer asked to decode it.
        tokenizer: String,
        /// Number of its tokens.
        vocab: usize,
    },

    /// A file that holds no tokenizer that could be used.
    #[error("cannot use the tokenizer {}: {reason}; name a tokenizer.json as Hugging Face's models have it", path.display())]
    TokenizerFile {
        /// The file.
        path: PathBuf,
        /// Reason, in words.
        reason: String,
    },

    /// A chat template that cannot be used.
    #[error("cannot use the chat template of {}: {reason}; correct it, or leave `generation.chat` out", path.display())]
    ChatTemplate {
        /// The file.
        path: PathBuf,
        /// Reason, in words.
        reason: String,
    },

    /// A tokenizer without a chat template.
    #[error(
        "{} has no chat_template, and no chat_template.jinja lies beside it; put the template of the model there, or leave \
         `generation.chat` out", _0.display()
    )]
    NoChatTemplate(PathBuf),

    /// A built-in tokenizer, which has no chat template.
    #[error(
        "the tokenizer `{0}` has no chat template; name a tokenizer.json with a chat_template.jinja beside it with \
         `data.tokenizer`, or leave `generation.chat` out"
    )]
    NoChat(String),

    /// Documents need a token that ends them.
    #[error(
        "the tokenizer `{vocabulary}` has no known token that ends a document; put a tokenizer_config.json with an \
         \"eos_token\" beside it"
    )]
    NoEnd {
        /// Whose tokens they are.
        vocabulary: String,
    },

    /// Tokens of different tokenizers.
    #[error(
        "{} holds tokens of `{found}`, and {because} those of `{expected}`; prepare it again with the other tokenizer, or \
         leave one out", path.display()
    )]
    OtherTokenizer {
        /// The file.
        path: PathBuf,
        /// Whose tokens it holds.
        found: String,
        /// Whose tokens are wanted.
        expected: String,
        /// What wants them.
        because: String,
    },

    /// A file of tokens that does not say whose they are, where that must be known.
    #[error("{} does not say whose tokens it holds; name their tokenizer with `data.tokenizer`", .0.display())]
    NoVocabulary(PathBuf),

    /// A token that the model or the tokenizer does not have.
    #[error(
        "{} holds token {token} at position {position}, and the vocabulary ends at {}; take the tokenizer that it was made \
         with, or a model with a larger vocabulary", path.display(), vocab.saturating_sub(1)
    )]
    BeyondVocabulary {
        /// The file.
        path: PathBuf,
        /// The token.
        token: u32,
        /// Its position in the source, counted in tokens.
        position: usize,
        /// Number of tokens in the vocabulary.
        vocab: usize,
    },

    /// A system call on a file or folder failed.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// What was tried: "read", "create", ...
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },

    /// A file that cannot be opened or read as what it was to be.
    #[error(transparent)]
    File(#[from] FileError),

    /// A file that is no text, and not said to be read all the same.
    #[error(
        "{} is no text: its beginning holds the byte 0, as pictures, archives and checkpoints do; leave it out, convert it if it is \
         text in UTF-16, say `data.format` raw-u16 if it holds token ids of 2 bytes, or `data.binary` to learn its bytes", .0.display()
    )]
    Binary(PathBuf),

    /// A file of a known format that holds no text, and not said to be read all the same.
    #[error("{} is no text but {kind}: {remedy}, or say `data.binary` to learn its bytes", path.display())]
    OtherKind {
        /// The file.
        path: PathBuf,
        /// The format.
        kind: &'static str,
        /// Remedy.
        remedy: &'static str,
    },

    /// A file of something else in place of ids without a header.
    #[error(
        "{} looks like {kind}, not like token ids without a header; leave it out, read it without `data.format`, or give it a name \
         that ends in .bin if it holds ids", path.display()
    )]
    NoIds {
        /// The file.
        path: PathBuf,
        /// Kind of content that its beginning shows.
        kind: &'static str,
    },

    /// A pointer in place of a file.
    #[error(
        "{} is a pointer of Git LFS, not the file that it stands for; fetch that with `git lfs pull`, or say `data.format` text \
         to learn the pointer", .0.display()
    )]
    LfsPointer(PathBuf),

    /// A file that may be text or a data set.
    #[error(
        "{}: {content}; {remedy}, or say `data.format` text to learn it as text", path.display()
    )]
    Doubtful {
        /// The file or folder.
        path: PathBuf,
        /// Description of the content.
        content: String,
        /// Remedy.
        remedy: &'static str,
    },

    /// A field that no file has.
    #[error(
        "`data.text_field` {0}: none of the files is read as JSON lines or Parquet, the only ones with fields; leave it out, or say \
         `data.format` json-lines"
    )]
    UnusedField(String),

    /// Bad lines are to be skipped, and no file has lines.
    #[error(
        "`data.skip_bad_lines`: none of the files is read as JSON lines or Parquet, the only ones with lines that may be bad; \
         leave it out, or say `data.format` json-lines"
    )]
    UnusedSkipping,

    /// The name of a format of files that does not exist.
    #[error(
        "unknown format `{0}` of files that are read: use `auto`, `text`, `json-lines`, `parquet`, `raw-u16` or `raw-u32`"
    )]
    UnknownInputFormat(String),

    /// Text for a tokenizer of text is not UTF-8.
    #[error(
        "{} is not UTF-8 text: invalid byte at offset {offset}; convert or remove the file, or use the tokenizer `bytes`, \
         which takes any bytes",
        path.display()
    )]
    NotUtf8 {
        /// The file.
        path: PathBuf,
        /// Offset in bytes of the first invalid byte.
        offset: u64,
    },

    /// A stretch of text without a word boundary is too long for the tokenizer.
    #[error(
        "{} has more than {limit} bytes from offset {offset} on without a place at which it can be cut for the tokenizer \
         `{tokenizer}`; break the lines or use the tokenizer `bytes`",
        path.display()
    )]
    Unsplittable {
        /// The file.
        path: PathBuf,
        /// Where the stretch, or the chunk that holds it, begins, in bytes.
        offset: u64,
        /// The length in bytes that was exceeded.
        limit: usize,
        /// The tokenizer.
        tokenizer: String,
    },

    /// The tokenizer gave up on a text.
    #[error(
        "the tokenizer `{tokenizer}` cannot encode this text of {bytes} bytes: {reason}; shorten its runs of white space"
    )]
    NotEncodable {
        /// The tokenizer.
        tokenizer: String,
        /// The text's length in bytes.
        bytes: usize,
        /// What the tokenizer said.
        reason: String,
    },

    /// No file was found, or none has a byte in it.
    #[error(
        "nothing to read in {paths}: name a non-empty text file, or a folder with one (hidden files are skipped, and with `data.format` \
         raw-u16 or raw-u32 all that are not called .bin)"
    )]
    EmptyCorpus {
        /// The paths that were given, separated by commas.
        paths: String,
    },

    /// A named path is neither a regular file nor a folder.
    #[error("{} is neither a file nor a folder; name a text file or a folder of text files", .0.display())]
    NotAFile(PathBuf),

    /// A token file was given where text is expected.
    #[error("{} holds tokens already; open it as it is, or name the text files that it was made from", .0.display())]
    AlreadyTokens(PathBuf),

    /// A `.bin` in no format that is read.
    #[error(
        "{} is neither text nor tokens in a known format: `.bin` files are read of llm.c (magic number 20240520 or 20240801), \
         of Megatron-LM with their `.idx` beside them, and token ids without a header, as nanoGPT writes them, with `data.format` \
         raw-u16 or raw-u32; rename it if it is text",
        .0.display()
    )]
    Unrecognised(PathBuf),

    /// A file of another program's format breaks one of its rules.
    #[error("{} is no valid {format}: at byte {offset}, {rule}; {remedy}", path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// What it should be.
        format: &'static str,
        /// Where, in bytes.
        offset: u64,
        /// The rule, and what was found.
        rule: String,
        /// Remedy.
        remedy: &'static str,
    },

    /// A line of JSON lines that is no document.
    #[error("{}, line {line} (byte {offset}): {reason}; {remedy}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Number of the line, from 1 on.
        line: u64,
        /// Where the line begins, in bytes.
        offset: u64,
        /// Reason, in words.
        reason: String,
        /// Remedy.
        remedy: &'static str,
    },

    /// A Parquet file that cannot be read.
    #[error(
        "the Parquet file {} cannot be read: {reason}; fetch or write it again, or write its text as JSON lines", path.display()
    )]
    Parquet {
        /// The file.
        path: PathBuf,
        /// Reason, in words.
        reason: String,
    },

    /// A Parquet file without a column of texts.
    #[error("{}: {reason}; name the column that holds the text with `data.text_field`", path.display())]
    Column {
        /// The file.
        path: PathBuf,
        /// Reason, in words.
        reason: String,
    },

    /// A row of a Parquet file that is no document.
    #[error("{}, row {row}: {reason}; correct or remove the row, or skip such rows with `data.skip_bad_lines`", path.display())]
    Row {
        /// The file.
        path: PathBuf,
        /// Number of the row, from 1 on.
        row: u64,
        /// Reason, in words.
        reason: String,
    },

    /// A file without a single document between lines that were skipped.
    #[error(
        "{}: none of its {unit}s holds a text; {} skipped, the first is {unit} {}: {}; name the field that holds the text with \
         `data.text_field`, {}or leave the file out", path.display(), counted(skipped.count as usize, skipped.unit.name()),
        skipped.first, skipped.reason, as_text(skipped.unit), unit = skipped.unit.name()
    )]
    OnlyBadLines {
        /// The file.
        path: PathBuf,
        /// The skipped lines.
        skipped: SkippedLines,
    },

    /// The name of a format that is not written.
    #[error("unknown format `{0}`: use `quadrille`, `megatron` or `llm.c`")]
    UnknownFormat(String),

    /// What a format cannot hold.
    #[error("the format {format} cannot hold this: {reason}; {remedy}")]
    Inexpressible {
        /// The format.
        format: &'static str,
        /// Why not.
        reason: String,
        /// Remedy.
        remedy: &'static str,
    },

    /// A file has another length than when it was opened or listed.
    #[error(
        "{} changed while it was read: it had {expected} bytes, and now {found}; start again once nothing writes to it",
        path.display()
    )]
    SourceChanged {
        /// The file.
        path: PathBuf,
        /// Its length in bytes when it was opened or listed.
        expected: u64,
        /// Its length now; of text the bytes that were read.
        found: u64,
    },

    /// A file that is not a token file.
    #[error("{} is not a token file: {reason}; prepare one from text files", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What shows it.
        reason: &'static str,
    },

    /// A token file written by another version of this program.
    #[error("{} is a token file of version {found}, this program reads version {expected}; delete it and prepare it again", path.display())]
    WrongVersion {
        /// The file.
        path: PathBuf,
        /// The file's version.
        found: u32,
        /// The version that this program reads and writes.
        expected: u32,
    },

    /// A token file whose content is not what was written.
    #[error("the token file {} is damaged: {reason}; delete it and prepare it again", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What was expected and what was found.
        reason: String,
    },

    /// Fewer tokens than one sample needs.
    #[error(
        "a sample of {seq_len} tokens and its targets needs a corpus of at least {needed} tokens, and this one has \
         {present}; add text or shorten the sequence to at most {}", present.saturating_sub(1)
    )]
    TooShort {
        /// Tokens in one sample.
        seq_len: usize,
        /// Tokens needed: `seq_len + 1`.
        needed: usize,
        /// Tokens in the corpus.
        present: usize,
    },

    /// Files that hold no token at all.
    #[error("no text in {}{}: there is nothing to tokenize; name files with text", path.display(), others(*files))]
    Empty {
        /// The first file.
        path: PathBuf,
        /// Number of files.
        files: usize,
    },

    /// No document is long enough for a token and one that follows it.
    #[error(
        "none of the documents in {present} tokens has two tokens: there is nothing to predict; add text or use `data.documents` packed"
    )]
    NoSamples {
        /// Tokens in the corpus.
        present: usize,
    },

    /// Weights that cannot be kept.
    #[error(
        "the weights of the data cannot be used: {0}; give every source a positive number, e.g. wiki.jsonl:0.7 code/:0.3"
    )]
    Weights(String),

    /// A part for validation that cannot be taken.
    #[error("`data.held_out.share` {share}: {reason}")]
    Share {
        /// The share.
        share: f64,
        /// Why not.
        reason: String,
    },

    /// A window reaches beyond the last token.
    #[error("tokens {start} to {end} were asked for, and the corpus has {present}; choose an earlier window")]
    OutOfRange {
        /// First token of the window.
        start: usize,
        /// One past the last token of the window.
        end: usize,
        /// Tokens in the corpus.
        present: usize,
    },
}

/// Remedy for a file of which all lines are bad: it may be text, and be read as JSON lines by its first line alone.
fn as_text(unit: LineUnit) -> &'static str {
    match unit {
        LineUnit::Line => "read it as text with `data.format` text, ",
        LineUnit::Row => "",
    }
}

impl DataError {
    /// Wraps a system error with what was tried on which path; made for `map_err`.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { action, path: path.to_path_buf(), source }
    }
}

/// Words for the files after the first.
fn others(files: usize) -> String {
    if files > 1 { format!(" and {} files more", files - 1) } else { String::new() }
}
