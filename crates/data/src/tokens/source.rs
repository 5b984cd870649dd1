//! What training reads tokens from.

use std::ops::Range;
use std::path::Path;

use super::{Joined, LlmCFile, MegatronFile, RawFile, TokenFile, Tokens};
use crate::{DataError, DemoCorpus, Vocabulary};

/// The tokens of a corpus; ranks of a process may share one.
#[derive(Debug)]
pub enum TokenSource {
    /// A token file of this program.
    File(TokenFile),
    /// An indexed data set of Megatron-LM.
    Megatron(MegatronFile),
    /// A token file of llm.c.
    LlmC(LlmCFile),
    /// Tokens without a header.
    Raw(RawFile),
    /// Several, one after the other.
    Joined(Joined),
    /// The built-in demo corpus, in memory.
    Demo(DemoCorpus),
}

impl TokenSource {
    /// [`DataError::BeyondVocabulary`] if one of `tokens`, which lie from `start` on in the source, is not below `vocab`.
    pub(crate) fn check(&self, start: usize, tokens: &[u32], vocab: usize) -> Result<(), DataError> {
        match tokens.iter().position(|&token| token as usize >= vocab) {
            None => Ok(()),
            Some(at) => Err(DataError::BeyondVocabulary {
                path: self.path_at(start + at).to_path_buf(),
                token: tokens[at],
                position: start + at,
                vocab,
            }),
        }
    }

    fn tokens(&self) -> &dyn Tokens {
        match self {
            Self::File(file) => file,
            Self::Megatron(file) => file,
            Self::LlmC(file) => file,
            Self::Raw(file) => file,
            Self::Joined(joined) => joined,
            Self::Demo(demo) => demo,
        }
    }

    /// Whose tokens they are, where it is known.
    pub fn vocabulary(&self) -> Option<Vocabulary> {
        self.tokens().vocabulary()
    }

    /// Number of tokens.
    pub fn len(&self) -> usize {
        self.tokens().len()
    }

    /// Whether there are no tokens.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of documents; every token belongs to one.
    ///
    /// # Errors
    /// Of llm.c's files and those without a header, which are read for it: those of [`Self::window`].
    pub fn documents(&self) -> Result<usize, DataError> {
        self.tokens().documents()
    }

    /// Position of the first token of a document; of the number of documents that of all tokens.
    ///
    /// # Errors
    /// Those of [`Self::documents`].
    pub fn document_start(&self, document: usize) -> Result<usize, DataError> {
        super::document_start(self.tokens(), document)
    }

    /// The same of the documents from `first` on, as many as `starts` has room for.
    pub(crate) fn document_starts(&self, first: usize, starts: &mut [usize]) -> Result<(), DataError> {
        self.tokens().document_starts(first, starts)
    }

    /// The positions of all tokens of a document.
    ///
    /// # Errors
    /// Those of [`Self::documents`].
    pub fn document(&self, document: usize) -> Result<Range<usize>, DataError> {
        let mut ends = [0; 2];
        self.document_starts(document, &mut ends)?;
        Ok(ends[0]..ends[1])
    }

    /// The document that holds the token at `position`, which is below [`Self::len`].
    ///
    /// # Errors
    /// Those of [`Self::documents`].
    pub fn document_at(&self, position: usize) -> Result<usize, DataError> {
        super::document_at(self.tokens(), position)
    }

    /// The tokens of a document, without the one that marks its beginning or end.
    ///
    /// # Errors
    /// Those of [`Self::window`].
    pub fn content(&self, document: usize) -> Result<Range<usize>, DataError> {
        let Range { start, end } = self.document(document)?;
        let is = |at: usize, mark: Option<u32>| -> Result<bool, DataError> {
            let mut token = [0];
            self.window(at, &mut token)?;
            Ok(Some(token[0]) == mark)
        };
        if start == end {
            return Ok(start..end);
        }
        if let Self::LlmC(file) = self {
            return Ok(start + usize::from(is(start, Some(file.begin()))?)..end);
        }
        Ok(start..end - usize::from(is(end - 1, self.vocabulary().and_then(|vocabulary| vocabulary.end))?))
    }

    /// Copies the tokens from `start` on into `out`.
    ///
    /// # Errors
    /// [`DataError::OutOfRange`] if there are fewer than `start + out.len()` tokens; [`DataError::Damaged`] or
    /// [`DataError::Invalid`] for what should not be there.
    pub fn window(&self, start: usize, out: &mut [u32]) -> Result<(), DataError> {
        self.tokens().window(start, out)
    }

    /// Reads and checks everything that opening leaves unchecked.
    ///
    /// # Errors
    /// [`DataError::Damaged`], [`DataError::Invalid`].
    pub fn verify(&self) -> Result<(), DataError> {
        self.tokens().verify()
    }

    /// Checks that all tokens of files without a header are below `vocab`: nothing else shows a wrong type or tokenizer. Tokens
    /// of other files are checked as they are read.
    ///
    /// # Errors
    /// [`DataError::BeyondVocabulary`] with the position in the file; those of [`Self::window`].
    pub fn check_raw(&self, vocab: usize) -> Result<(), DataError> {
        match self {
            Self::Raw(file) => file.each_part(&mut |start, tokens| self.check(start, tokens, vocab)),
            Self::Joined(joined) => joined.parts().iter().try_for_each(|part| part.check_raw(vocab)),
            Self::File(_) | Self::Megatron(_) | Self::LlmC(_) | Self::Demo(_) => Ok(()),
        }
    }

    /// The file of the first token, of several the first one.
    pub fn path(&self) -> &Path {
        self.path_at(0)
    }

    /// The file that holds the token at `position`, for messages.
    pub(crate) fn path_at(&self, position: usize) -> &Path {
        match self {
            Self::File(file) => file.path(),
            Self::Megatron(file) => file.path(),
            Self::LlmC(file) => file.path(),
            Self::Raw(file) => file.path(),
            Self::Joined(joined) => {
                let mut before = 0;
                let holds = |part: &&TokenSource| {
                    before += part.len();
                    position < before
                };
                joined.parts().iter().find(holds).map_or(Path::new(""), |part| part.path_at(0))
            }
            Self::Demo(_) => Path::new("the built-in corpus"),
        }
    }

    /// Entropy of the language in nats per token, which no model's loss can stay below on new text however much
    /// context it has; known for the demo corpus only.
    pub fn floor(&self) -> Option<f64> {
        match self {
            Self::Demo(demo) => Some(demo.floor()),
            _ => None,
        }
    }

    /// The same for a model that sees samples of `seq_len` tokens, as drawn by [`crate::SampleIndex`]: a little above
    /// [`Self::floor`], see [`DemoCorpus::window_floor`].
    pub fn window_floor(&self, seq_len: usize) -> Option<f64> {
        match self {
            Self::Demo(demo) => Some(demo.window_floor(seq_len)),
            _ => None,
        }
    }
}

impl From<TokenFile> for TokenSource {
    fn from(file: TokenFile) -> Self {
        Self::File(file)
    }
}

impl From<DemoCorpus> for TokenSource {
    fn from(demo: DemoCorpus) -> Self {
        Self::Demo(demo)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Reading, Tokenizer, prepare};

    #[test]
    fn ranks_on_threads_may_share_a_source() {
        fn shared<T: Send + Sync>() {}
        shared::<TokenSource>();
    }

    #[test]
    fn only_the_demo_has_a_floor() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.txt");
        std::fs::write(&path, "some text").unwrap();
        let reading = Reading::new(Tokenizer::Bytes);
        let file = TokenSource::from(prepare(&[path], &reading, folder.path(), &mut |_, _| {}).unwrap());
        let vocabulary = file.vocabulary().unwrap();
        assert_eq!((file.len(), vocabulary.size, file.floor(), file.window_floor(8)), (10, 256, None, None));
        let demo = TokenSource::from(DemoCorpus::new(0, Tokenizer::Bytes, 1000));
        assert!(demo.len() >= 1000 && demo.floor().unwrap() < demo.window_floor(8).unwrap());
    }
}
