//! Everything that can go wrong between a text and a batch.

use std::io;
use std::path::{Path, PathBuf};

use crate::Tokenizer;

/// What this crate's functions return when they fail.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataError {
    /// The name of a tokenizer that does not exist.
    #[error("unknown tokenizer `{0}`: use `gpt2` (50257 tokens) or `bytes` (256 tokens)")]
    UnknownTokenizer(String),

    /// A token that the tokenizer does not have.
    #[error("token {token} is not in the vocabulary of `{tokenizer}`, whose tokens are 0 to {}", tokenizer.vocab() - 1)]
    UnknownToken {
        /// The token.
        token: u32,
        /// The tokenizer asked to decode it.
        tokenizer: Tokenizer,
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
        "{} has more than {limit} bytes from offset {offset} on without the end of a word, too long for the tokenizer \
         `gpt2`; break the lines or use the tokenizer `bytes`",
        path.display()
    )]
    Unsplittable {
        /// The file.
        path: PathBuf,
        /// Where the stretch, or the chunk that holds it, begins, in bytes.
        offset: u64,
        /// The length in bytes that was exceeded.
        limit: usize,
    },

    /// The tokenizer gave up on a text.
    #[error("the tokenizer `gpt2` cannot encode this text of {bytes} bytes: {reason}; shorten its runs of white space")]
    NotEncodable {
        /// The text's length in bytes.
        bytes: usize,
        /// What the tokenizer said.
        reason: String,
    },

    /// No file was found, or none has a byte in it.
    #[error("nothing to read in {paths}: name a non-empty text file, or a folder with one (hidden files are skipped)")]
    EmptyCorpus {
        /// The paths that were given, separated by commas.
        paths: String,
    },

    /// A named path is neither a regular file nor a folder.
    #[error("{} is neither a file nor a folder; name a text file or a folder of text files", .0.display())]
    NotAFile(PathBuf),

    /// A token file was given where text is expected.
    #[error("{} is a token file already; open it as one, or name the text files that it was made from", .0.display())]
    AlreadyTokens(PathBuf),

    /// A source file changed while it was being tokenised.
    #[error(
        "{} changed while it was read: {expected} bytes before, {found} read; prepare the corpus again once it is complete",
        path.display()
    )]
    SourceChanged {
        /// The file.
        path: PathBuf,
        /// Its size in bytes when the corpus was listed.
        expected: u64,
        /// Bytes read.
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

impl DataError {
    /// Wraps a system error with what was tried on which path; made for `map_err`.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { action, path: path.to_path_buf(), source }
    }
}
