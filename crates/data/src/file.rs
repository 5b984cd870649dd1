//! Token files: opened by mapping them into memory, checked in full at opening.

use std::fs::File;
use std::path::{Path, PathBuf};

use memmap2::Mmap;
use xxhash_rust::xxh3::xxh3_64;

use crate::header::{HEADER_BYTES, Header, token_width};
use crate::{DataError, Tokenizer};

/// A corpus of tokens in a file, mapped into memory: pages are read when first touched and shared by all ranks of a node.
#[derive(Debug)]
pub struct TokenFile {
    path: PathBuf,
    map: Mmap,
    header: Header,
}

impl TokenFile {
    /// Opens the token file at `path` and reads it once to verify its checksums.
    ///
    /// # Errors
    /// [`DataError::Foreign`], [`DataError::WrongVersion`], [`DataError::Damaged`] for what is not a whole token file
    /// of this version; [`DataError::Io`].
    pub fn open(path: &Path) -> Result<Self, DataError> {
        let file = File::open(path).map_err(DataError::io("open", path))?;
        if !file.metadata().map_err(DataError::io("read", path))?.is_file() {
            return Err(DataError::NotAFile(path.to_path_buf()));
        }
        // SAFETY: the mapping is read-only and this program never changes a token file in place: it writes another
        // file and renames it, which leaves mapped pages as they are. Only another program's writes could disturb it.
        let map = unsafe { Mmap::map(&file) }.map_err(DataError::io("map", path))?;
        let header = Header::from_file(path, &map)?;
        let opened = Self { path: path.to_path_buf(), map, header };
        opened.verify_tokens()?;
        Ok(opened)
    }

    /// Where the file is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The tokenizer that the tokens are from.
    pub fn tokenizer(&self) -> Tokenizer {
        self.header.tokenizer
    }

    /// Number of tokens.
    pub fn len(&self) -> usize {
        self.header.count as usize // fits: the mapping holds as many
    }

    /// Whether there are no tokens.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies the tokens from `start` on into `out`.
    ///
    /// # Errors
    /// [`DataError::OutOfRange`] if the file has fewer than `start + out.len()` tokens.
    pub fn window(&self, start: usize, out: &mut [u32]) -> Result<(), DataError> {
        let end = start.saturating_add(out.len());
        if end > self.len() {
            return Err(DataError::OutOfRange { start, end, present: self.len() });
        }
        let width = token_width(self.tokenizer());
        let bytes = &self.payload()[start * width..end * width];
        for (token, bytes) in out.iter_mut().zip(bytes.chunks_exact(width)) {
            *token = token_from(bytes);
        }
        Ok(())
    }

    /// The hash of the sources, see [`crate::prepare()`].
    pub(crate) fn corpus_key(&self) -> u128 {
        self.header.corpus_key
    }

    fn payload(&self) -> &[u8] {
        &self.map[HEADER_BYTES..]
    }

    fn verify_tokens(&self) -> Result<(), DataError> {
        let damaged = |reason: String| Err(DataError::Damaged { path: self.path.clone(), reason });
        if xxh3_64(self.payload()) != self.header.payload_hash {
            return damaged("the checksum of its tokens does not fit".to_string());
        }
        let vocab = self.tokenizer().vocab();
        let mut tokens = self.payload().chunks_exact(token_width(self.tokenizer())).map(token_from);
        match tokens.find(|&token| token as usize >= vocab) {
            Some(token) => damaged(format!("token {token} is not in its vocabulary of {vocab}")),
            None => Ok(()),
        }
    }
}

/// The token in 1 to 4 `bytes`, lowest first.
fn token_from(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |token, &byte| token << 8 | u32::from(byte))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::prelude::*;

    use super::*;

    /// A valid file of `count` tokens.
    fn bytes_of(tokenizer: Tokenizer, count: u32) -> Vec<u8> {
        let tokens = (0..count).map(|i| i * 7919 % tokenizer.vocab() as u32);
        let payload: Vec<u8> = tokens.flat_map(|t| t.to_le_bytes()[..token_width(tokenizer)].to_vec()).collect();
        let header = Header { tokenizer, count: count.into(), corpus_key: 1 << 100, payload_hash: xxh3_64(&payload) };
        [&header.to_bytes()[..], &payload].concat()
    }

    fn open(bytes: &[u8]) -> Result<TokenFile, DataError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.tokens");
        fs::write(&path, bytes).unwrap();
        TokenFile::open(&path)
    }

    #[test]
    fn windows_give_the_tokens() {
        for tokenizer in [Tokenizer::Gpt2, Tokenizer::Bytes] {
            let file = open(&bytes_of(tokenizer, 100)).unwrap();
            assert_eq!((file.tokenizer(), file.len(), file.corpus_key()), (tokenizer, 100, 1 << 100));
            let mut out = [0; 3];
            file.window(97, &mut out).unwrap();
            assert_eq!(out, [97, 98, 99].map(|i| i * 7919 % tokenizer.vocab() as u32));
            for start in [98, usize::MAX] {
                let error = file.window(start, &mut out).unwrap_err();
                assert!(matches!(error, DataError::OutOfRange { present: 100, .. }), "{error}");
            }
        }
    }

    proptest! {
        #[test]
        fn every_changed_bit_and_every_cut_is_reported(
            tokenizer in prop::sample::select(vec![Tokenizer::Gpt2, Tokenizer::Bytes]),
            count in 1_u32..300,
            place in any::<prop::sample::Index>(),
            header_bit in 0..HEADER_BYTES * 8,
        ) {
            let good = bytes_of(tokenizer, count);
            for bit in [header_bit, place.index(good.len() * 8)] {
                let mut bad = good.clone();
                bad[bit / 8] ^= 1 << (bit % 8);
                match (bit / 8, open(&bad)) {
                    (0..8, Err(DataError::Foreign { .. })) => {}
                    (8..12, Err(DataError::WrongVersion { .. })) => {}
                    (12.., Err(DataError::Damaged { .. })) => {}
                    (byte, other) => prop_assert!(false, "byte {}: {:?}", byte, other),
                }
            }
            match (place.index(good.len()), open(&good[..place.index(good.len())])) {
                (0, Err(DataError::Foreign { .. })) | (1.., Err(DataError::Damaged { .. })) => {}
                (length, other) => prop_assert!(false, "length {}: {:?}", length, other),
            }
            let longer = [&good[..], b"x"].concat();
            prop_assert!(matches!(open(&longer), Err(DataError::Damaged { .. })), "a byte too many");
        }
    }

    #[test]
    fn a_header_that_lies_is_reported() {
        let payload = [&u16::MAX.to_le_bytes()[..], &[0; 6]].concat();
        let file = |tokenizer, count| {
            let header = Header { tokenizer, count, corpus_key: 0, payload_hash: xxh3_64(&payload) };
            open(&[&header.to_bytes()[..], &payload].concat()).unwrap_err().to_string()
        };
        assert!(file(Tokenizer::Gpt2, 4).contains("token 65535 is not in its vocabulary of 50257"));
        assert!(file(Tokenizer::Gpt2, u64::MAX).contains("18446744073709551615 tokens"));
        assert!(file(Tokenizer::Bytes, 4).contains("its 4 tokens make 68"));
    }

    #[test]
    fn other_files_are_reported() {
        for (content, reason) in [(&b""[..], "empty"), (b"Once upon a time", "QDTOKENS"), (b"QDTOK", "header")] {
            let error = open(content).unwrap_err().to_string();
            assert!(error.contains(reason) && error.contains("x.tokens"), "{error}");
        }
        let error = TokenFile::open(Path::new("/absent/x.tokens")).unwrap_err();
        assert!(matches!(error, DataError::Io { action: "open", .. }), "{error}");
        assert!(matches!(TokenFile::open(Path::new("/dev")), Err(DataError::NotAFile(_))));
    }
}
