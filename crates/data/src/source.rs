//! What training reads tokens from.

use crate::{DataError, DemoCorpus, TokenFile, Tokenizer};

/// The tokens of a corpus; ranks of a process may share one.
#[derive(Debug)]
pub enum TokenSource {
    /// A token file, mapped into memory.
    File(TokenFile),
    /// The built-in demo corpus, in memory.
    Demo(DemoCorpus),
}

impl TokenSource {
    /// The tokenizer that the tokens are from.
    pub fn tokenizer(&self) -> Tokenizer {
        match self {
            Self::File(file) => file.tokenizer(),
            Self::Demo(demo) => demo.tokenizer(),
        }
    }

    /// Number of different tokens; tokens are `0..vocab()`.
    pub fn vocab(&self) -> usize {
        self.tokenizer().vocab()
    }

    /// Number of tokens.
    pub fn len(&self) -> usize {
        match self {
            Self::File(file) => file.len(),
            Self::Demo(demo) => demo.len(),
        }
    }

    /// Whether there are no tokens.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies the tokens from `start` on into `out`.
    ///
    /// # Errors
    /// [`DataError::OutOfRange`] if there are fewer than `start + out.len()` tokens.
    pub fn window(&self, start: usize, out: &mut [u32]) -> Result<(), DataError> {
        match self {
            Self::File(file) => file.window(start, out),
            Self::Demo(demo) => demo.window(start, out),
        }
    }

    /// Entropy of the language in nats per token, which no model's loss can stay below on new text however much
    /// context it has; known for the demo corpus only.
    pub fn floor(&self) -> Option<f64> {
        match self {
            Self::File(_) => None,
            Self::Demo(demo) => Some(demo.floor()),
        }
    }

    /// The same for a model that sees samples of `seq_len` tokens, as drawn by [`crate::SampleIndex`]: a little above
    /// [`Self::floor`], see [`DemoCorpus::window_floor`].
    pub fn window_floor(&self, seq_len: usize) -> Option<f64> {
        match self {
            Self::File(_) => None,
            Self::Demo(demo) => Some(demo.window_floor(seq_len)),
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
        let file = TokenSource::from(crate::prepare(&[path], Tokenizer::Bytes, folder.path()).unwrap());
        assert_eq!((file.len(), file.vocab(), file.floor(), file.window_floor(8)), (10, 256, None, None));
        let demo = TokenSource::from(DemoCorpus::new(0, Tokenizer::Bytes, 1000));
        assert!(demo.len() >= 1000 && demo.floor().unwrap() < demo.window_floor(8).unwrap());
    }
}
