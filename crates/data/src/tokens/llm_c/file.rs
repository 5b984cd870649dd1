//! Reads llm.c's token files.

use std::path::Path;
use std::sync::OnceLock;

use super::{EVALUATION, FORMAT, GPT2, HEADER_BYTES, Kind, LLAMA3};
use crate::tokens::{StoredFile, Tokens, check_range, copy_starts, u32_at};
use crate::{DataError, Tokenizer, Vocabulary};

const REMEDY: &str = "write it again with llm.c's scripts in dev/data, or with `quadrille data prepare`";

/// A token file of llm.c.
#[derive(Debug)]
pub struct LlmCFile {
    file: StoredFile,
    kind: Kind,
    /// Of Llama 3's tokens whose they are, if the user has said it.
    vocabulary: Option<Vocabulary>,
    /// Positions of the documents' first tokens: found by reading the file, when they are first asked for.
    starts: OnceLock<Vec<usize>>,
}

impl LlmCFile {
    /// Opens the file at `path` and checks its header against its length.
    ///
    /// # Errors
    /// [`DataError::Invalid`] with the rule that is broken and where; [`DataError::Io`].
    pub fn open(path: &Path, vocabulary: Option<Vocabulary>) -> Result<Self, DataError> {
        let file = StoredFile::open(path)?;
        let invalid = |offset, rule| {
            let path = path.to_path_buf();
            Err(DataError::Invalid { path, format: FORMAT, offset, rule, remedy: REMEDY })
        };
        if file.len() < HEADER_BYTES {
            let rule = format!("the file ends, and its header alone has {HEADER_BYTES} bytes");
            return invalid(file.len() as u64, rule);
        }
        let start = file.start::<12>()?;
        let [magic, version, count] = [0, 4, 8].map(|at| u32_at(&start, at));
        let Some(kind) = [GPT2, LLAMA3].into_iter().find(|kind| kind.magic == magic) else {
            let what = if magic == EVALUATION { "questions for evaluation, not text: " } else { "" };
            let rule = format!("{what}it begins with the number {magic}, not {} or {}", GPT2.magic, LLAMA3.magic);
            return invalid(0, rule);
        };
        if version != kind.version {
            return invalid(4, format!("it has version {version}, and version {} is read", kind.version));
        }
        let present = file.len() - HEADER_BYTES;
        let width = kind.element.width();
        if count > i32::MAX as u32 || u64::from(count) * width as u64 != present as u64 {
            let rule = format!("{} tokens of {width} bytes were promised, and {present} bytes follow", count as i32);
            return invalid(8, rule);
        }
        let vocabulary = if kind == GPT2 { Some(Tokenizer::Gpt2.vocabulary()) } else { vocabulary };
        Ok(Self { file, kind, vocabulary, starts: OnceLock::new() })
    }

    /// Where the file is.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Number of tokens.
    pub fn len(&self) -> usize {
        (self.file.len() - HEADER_BYTES) / self.kind.element.width()
    }

    /// Whether there are no tokens.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The token that begins a document.
    pub(crate) fn begin(&self) -> u32 {
        self.kind.begin
    }

    fn starts(&self) -> Result<&[usize], DataError> {
        if let Some(starts) = self.starts.get() {
            return Ok(starts);
        }
        let mut starts = self.file.positions_of(self.kind.begin, self.kind.element, HEADER_BYTES)?;
        if !self.is_empty() && starts.first() != Some(&0) {
            starts.insert(0, 0);
        }
        Ok(self.starts.get_or_init(|| starts))
    }
}

impl Tokens for LlmCFile {
    fn len(&self) -> usize {
        self.len()
    }

    fn window(&self, start: usize, out: &mut [u32]) -> Result<(), DataError> {
        check_range(start, out.len(), self.len())?;
        let width = self.kind.element.width();
        let from = HEADER_BYTES + start * width;
        self.file.tokens(self.kind.element, from, out, |at, token| DataError::Invalid {
            path: self.path().to_path_buf(),
            format: FORMAT,
            offset: (from + at * width) as u64,
            rule: format!("{token} is no token"),
            remedy: REMEDY,
        })
    }

    fn documents(&self) -> Result<usize, DataError> {
        Ok(self.starts()?.len())
    }

    fn document_starts(&self, first: usize, starts: &mut [usize]) -> Result<(), DataError> {
        copy_starts(self.starts()?, self.len(), first, starts);
        Ok(())
    }

    fn vocabulary(&self) -> Option<Vocabulary> {
        self.vocabulary
    }
}
