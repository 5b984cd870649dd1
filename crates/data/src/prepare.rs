//! Text files into a token file, once.

use std::fs::{self, File};
use std::io::{self, BufWriter, Seek, Write};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;
use xxhash_rust::xxh3::Xxh3;

use crate::header::{HEADER_BYTES, Header, token_width};
use crate::sources::{Source, TOKEN_FILE_EXTENSION, collect, corpus_key};
use crate::stream::{CHUNK_BYTES, encode_stream};
use crate::{DataError, TokenFile, Tokenizer};

/// The tokens of the text files and folders `paths`, each file a document that ends with
/// [`Tokenizer::end_of_document`]; made at the first call and kept in `cache_dir`, which is created if need be.
///
/// Folders are read with their subfolders, in the order of names; in them hidden entries, `*.tokens`, empty files and
/// links to folders are left out. The token file is named after a hash of the tokenizer and of each file's path, size
/// and time of change, and used again as long as these stay. It appears under its name only when it is complete, also
/// if several processes prepare it at once.
///
/// # Errors
/// [`DataError::EmptyCorpus`], [`DataError::NotUtf8`], [`DataError::Unsplittable`], [`DataError::SourceChanged`],
/// [`DataError::NotAFile`], [`DataError::AlreadyTokens`] for the sources; those of [`TokenFile::open`] for a kept file;
/// [`DataError::Io`], e.g. for a full disk. None leaves a file behind.
pub fn prepare(paths: &[PathBuf], tokenizer: Tokenizer, cache_dir: &Path) -> Result<TokenFile, DataError> {
    let sources = collect(paths)?;
    let key = corpus_key(tokenizer, &sources);
    let path = cache_dir.join(format!("{tokenizer}-{key:032x}.{TOKEN_FILE_EXTENSION}"));
    if !path.try_exists().map_err(DataError::io("read", &path))? {
        fs::create_dir_all(cache_dir).map_err(DataError::io("create the folder", cache_dir))?;
        // Hidden, and deleted when dropped: on any error below nothing stays.
        let mut partial = tempfile::Builder::new()
            .prefix(".preparing-")
            .tempfile_in(cache_dir)
            .map_err(DataError::io("create a file in", cache_dir))?;
        write_tokens(&sources, tokenizer, key, partial.as_file_mut(), &path)?;
        publish(partial, &path, cache_dir).map_err(DataError::io("write", &path))?;
    }
    let file = TokenFile::open(&path)?;
    if (file.corpus_key(), file.tokenizer()) != (key, tokenizer) {
        let reason = "it holds another corpus than its name says".to_string();
        return Err(DataError::Damaged { path, reason });
    }
    Ok(file)
}

/// Gives the complete file its name, both safe from a crash of the machine.
fn publish(partial: NamedTempFile, path: &Path, folder: &Path) -> io::Result<()> {
    partial.as_file().sync_all()?;
    partial.persist(path).map_err(|error| error.error)?;
    File::open(folder)?.sync_all()
}

/// Writes the whole token file to `out`, the header last; `path` is for messages.
fn write_tokens(
    sources: &[Source],
    tokenizer: Tokenizer,
    corpus_key: u128,
    out: impl Write + Seek,
    path: &Path,
) -> Result<(), DataError> {
    let failed = || DataError::io("write", path);
    let mut out = BufWriter::new(out);
    out.write_all(&[0; HEADER_BYTES]).map_err(failed())?;
    let (mut count, mut hash, mut bytes) = (0, Xxh3::new(), Vec::new());
    let mut append = |tokens: &[u32]| {
        bytes.clear();
        bytes.extend(tokens.iter().flat_map(|token| token.to_le_bytes().into_iter().take(token_width(tokenizer))));
        count += tokens.len() as u64;
        hash.update(&bytes);
        out.write_all(&bytes).map_err(failed())
    };
    for source in sources {
        let input = File::open(&source.path).map_err(DataError::io("open", &source.path))?;
        let found = encode_stream(tokenizer, &source.path, input, CHUNK_BYTES, &mut append)?;
        if found != source.bytes {
            return Err(DataError::SourceChanged { path: source.path.clone(), expected: source.bytes, found });
        }
        append(&[tokenizer.end_of_document()])?;
    }
    let header = Header { tokenizer, count, corpus_key, payload_hash: hash.digest() };
    out.rewind().and_then(|()| out.write_all(&header.to_bytes())).and_then(|()| out.flush()).map_err(failed())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn corpus(files: &[(&str, &[u8])]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, bytes) in files {
            fs::write(folder.path().join(name), bytes).unwrap();
        }
        folder
    }

    fn tokens_of(file: &TokenFile) -> Vec<u32> {
        let mut tokens = vec![0; file.len()];
        file.window(0, &mut tokens).unwrap();
        tokens
    }

    fn entries(folder: &Path) -> usize {
        fs::read_dir(folder).map_or(0, Iterator::count)
    }

    #[test]
    fn documents_are_joined_by_their_end() {
        let text = corpus(&[("a", b"Hello world"), ("b", b""), ("c", b"12")]);
        let cache = text.path().join(".cache");
        let paths = [text.path().to_path_buf()];
        let gpt2 = prepare(&paths, Tokenizer::Gpt2, &cache).unwrap();
        assert_eq!(tokens_of(&gpt2), [15496, 995, 50256, 1065, 50256]);
        let bytes = prepare(&paths, Tokenizer::Bytes, &cache).unwrap();
        assert_eq!(Tokenizer::Bytes.decode(&tokens_of(&bytes)).unwrap(), b"Hello world\x0012\0");
        assert_eq!(entries(&cache), 2);
    }

    #[test]
    fn large_files_give_the_tokens_of_the_whole() {
        let line = "It was the best of times,  it was the worst of times.\n\n";
        let content = line.repeat(2 * CHUNK_BYTES / line.len() + 100);
        let text = corpus(&[("a", content.as_bytes())]);
        let file = prepare(&[text.path().join("a")], Tokenizer::Gpt2, text.path()).unwrap();
        let mut expected = Tokenizer::Gpt2.encode(&content).unwrap();
        expected.push(50256);
        assert!(tokens_of(&file) == expected);
    }

    #[test]
    fn a_kept_file_is_used_again_until_a_source_changes() {
        let text = corpus(&[("a", b"one")]);
        // The cache may be the folder of the texts: token files are not read as text.
        let (paths, cache) = ([text.path().to_path_buf()], text.path());
        let first = prepare(&paths, Tokenizer::Bytes, cache).unwrap();
        let written = fs::metadata(first.path()).unwrap().modified().unwrap();
        let again = prepare(&paths, Tokenizer::Bytes, cache).unwrap();
        assert_eq!(again.path(), first.path());
        assert_eq!(fs::metadata(again.path()).unwrap().modified().unwrap(), written);
        fs::write(text.path().join("a"), "other").unwrap();
        let changed = prepare(&paths, Tokenizer::Bytes, cache).unwrap();
        assert_ne!(changed.path(), first.path());
        assert_eq!(tokens_of(&changed).len(), 6);
    }

    #[test]
    fn several_may_prepare_at_once() {
        let text = corpus(&[("a", b"some words ")]);
        let (paths, cache) = ([text.path().join("a")], text.path().join("cache"));
        std::thread::scope(|scope| {
            let all = [(); 8].map(|()| scope.spawn(|| tokens_of(&prepare(&paths, Tokenizer::Bytes, &cache).unwrap())));
            assert!(all.into_iter().all(|one| one.join().unwrap().len() == 12));
        });
        assert_eq!(entries(&cache), 1);
    }

    #[test]
    fn a_damaged_or_exchanged_kept_file_is_reported() {
        let text = corpus(&[("a", b"one"), ("b", b"two")]);
        let cache = text.path().join("cache");
        let a = prepare(&[text.path().join("a")], Tokenizer::Bytes, &cache).unwrap().path().to_path_buf();
        let b = prepare(&[text.path().join("b")], Tokenizer::Bytes, &cache).unwrap().path().to_path_buf();
        fs::copy(&b, &a).unwrap();
        let error = prepare(&[text.path().join("a")], Tokenizer::Bytes, &cache).unwrap_err();
        assert!(error.to_string().contains("another corpus"), "{error}");
        let whole = fs::read(&b).unwrap();
        fs::write(&b, &whole[..whole.len() - 1]).unwrap();
        let error = prepare(&[text.path().join("b")], Tokenizer::Bytes, &cache).unwrap_err();
        assert!(matches!(error, DataError::Damaged { .. }) && error.to_string().contains("delete it"), "{error}");
    }

    #[test]
    fn a_failure_leaves_no_file() {
        let text = corpus(&[("a", b"fine"), ("b", b"ab\xff")]);
        let cache = text.path().join("cache");
        let error = prepare(&[text.path().to_path_buf()], Tokenizer::Gpt2, &cache).unwrap_err();
        assert!(matches!(&error, DataError::NotUtf8 { offset: 2, path } if path.ends_with("b")), "{error}");
        assert_eq!(entries(&cache), 0);
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_an_error() {
        let text = corpus(&[("a", b"fine")]);
        let paths = [text.path().join("a")];
        for cache in [text.path().join("a/cache"), PathBuf::from("/proc/self")] {
            let error = prepare(&paths, Tokenizer::Bytes, &cache).unwrap_err();
            assert!(matches!(error, DataError::Io { .. }), "{error}");
        }
    }

    #[test]
    fn a_full_disk_and_a_changed_source_are_errors() {
        let text = corpus(&[("a", b"fine")]);
        let mut sources = collect(&[text.path().join("a")]).unwrap();
        let full = File::options().write(true).open("/dev/full").unwrap();
        let error = write_tokens(&sources, Tokenizer::Bytes, 0, full, Path::new("x.tokens")).unwrap_err();
        assert!(
            matches!(&error, DataError::Io { action: "write", source, .. }
            if source.kind() == io::ErrorKind::StorageFull),
            "{error}"
        );
        sources[0].bytes += 1;
        let error = write_tokens(&sources, Tokenizer::Bytes, 0, io::Cursor::new(vec![]), Path::new("x")).unwrap_err();
        assert!(matches!(error, DataError::SourceChanged { expected: 5, found: 4, .. }), "{error}");
    }
}
