//! Text files into a token file, once.

use std::fs;
use std::path::{Path, PathBuf};

use crate::content::{ContentHashes, HashedFile};
use crate::output::TokenWriter;
use crate::skipped::SkippedRecord;
use crate::text::{Input, Reading, collect, corpus_key, encode_documents};
use crate::tokens::quadrille::QuadrilleWriter;
use crate::{DataError, DataFile, SkippedLines, TokenFile};

/// Told how many bytes of how many are done.
pub type Progress<'a> = dyn FnMut(u64, u64) + 'a;

/// The tokens of the text files, files of JSON lines and folders `paths`; made at the first call and kept in `cache_dir`,
/// which is created if need be. A text file is a document, a line of JSON lines, too; each ends with the tokenizer's
/// end token.
///
/// Folders are read with their subfolders, in the order of names; in them hidden entries, `*.tokens`, empty files and
/// links to folders are left out. The token file is named after a hash of the tokenizer and of the contents of all files,
/// and used again as long as these stay, whatever the files' names and times. It appears under its name only when it is
/// complete, also if several processes prepare it at once. The hashes are stored beside it with sizes and times, so that
/// unchanged files are not read again.
///
/// # Errors
/// [`DataError::EmptyCorpus`], [`DataError::Binary`], [`DataError::NotUtf8`], [`DataError::Unsplittable`],
/// [`DataError::SourceChanged`],
/// [`DataError::NotAFile`], [`DataError::Line`], [`DataError::AlreadyTokens`] for the sources; [`DataError::NoEnd`] for
/// the tokenizer; those of [`TokenFile::open`] for a kept file; [`DataError::Io`], e.g. for a full disk. None leaves a
/// file behind.
pub fn prepare(
    paths: &[PathBuf],
    reading: &Reading,
    cache_dir: &Path,
    progress: &mut Progress,
) -> Result<TokenFile, DataError> {
    let inputs = collect(paths, reading.rules())?;
    match inputs.iter().find(|input| input.format.is_tokens()) {
        Some(input) => Err(DataError::AlreadyTokens(input.path.clone())),
        None => {
            let mut hashes = ContentHashes::open(cache_dir);
            let (file, _) = prepare_inputs(&inputs, reading, cache_dir, &mut hashes, progress)?;
            hashes.store();
            Ok(file)
        }
    }
}

/// [`prepare`] of files that hold text; returns these, too.
pub(crate) fn prepare_inputs(
    inputs: &[Input],
    reading: &Reading,
    cache_dir: &Path,
    hashes: &mut ContentHashes,
    progress: &mut Progress,
) -> Result<(TokenFile, Vec<DataFile>), DataError> {
    reading.check(inputs)?;
    let hash = |input: &Input| hashes.hash(&input.path, input.format, &mut |_| {});
    let hashed = inputs.iter().map(hash).collect::<Result<Vec<_>, _>>()?;
    let key = corpus_key(reading, hashed.iter().map(|hashed| &hashed.file))?;
    let record = SkippedRecord::new(cache_dir, key);
    let vocabulary = reading.tokenizer.vocabulary();
    let path = cache_dir.join(format!("{}-{key:032x}.tokens", vocabulary.name));
    if !path.try_exists().map_err(DataError::io("read", &path))? {
        fs::create_dir_all(cache_dir).map_err(DataError::io("create the folder", cache_dir))?;
        let mut writer = QuadrilleWriter::create(&path, vocabulary, key)?;
        let skipped = encode_inputs(inputs, reading, &mut writer, progress)?;
        // The name stands for the contents that were hashed.
        hashed.iter().try_for_each(HashedFile::check_unchanged)?;
        if reading.skip_bad_lines {
            record.write(&skipped);
        }
        Box::new(writer).finish()?;
    }
    let file = TokenFile::open(&path)?;
    if (file.corpus_key(), file.vocabulary()) != (key, vocabulary) {
        let reason = "it holds another corpus than its name says".to_string();
        return Err(DataError::Damaged { path, reason });
    }
    let skipped = if reading.skip_bad_lines { record.read(inputs, reading)? } else { vec![None; inputs.len()] };
    let files = hashed.into_iter().zip(skipped).map(|(hashed, skipped)| DataFile { skipped, ..hashed.file });
    Ok((file, files.collect()))
}

/// Writes the documents of files that hold text; returns the lines of each that were skipped.
fn encode_inputs(
    inputs: &[Input],
    reading: &Reading,
    writer: &mut dyn TokenWriter,
    progress: &mut Progress,
) -> Result<Vec<Option<SkippedLines>>, DataError> {
    let total = inputs.iter().map(|input| input.bytes).sum();
    let mut before = 0;
    let mut skipped = Vec::new();
    for input in inputs {
        let counted = encode_documents(input, reading, writer, &mut |done| progress(before + done, total))?;
        before += input.bytes;
        skipped.push(counted.skipped);
    }
    Ok(skipped)
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use crate::output::Mark;
    use crate::tokens::Tokens;
    use crate::{TextRules, TokenSource, Tokenizer};

    fn corpus(files: &[(&str, &[u8])]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, bytes) in files {
            fs::write(folder.path().join(name), bytes).unwrap();
        }
        folder
    }

    fn prepared(paths: &[PathBuf], tokenizer: Tokenizer, cache: &Path) -> Result<TokenFile, DataError> {
        prepare(paths, &Reading::new(tokenizer), cache, &mut |_, _| {})
    }

    fn tokens_of(file: &TokenFile) -> Vec<u32> {
        let mut tokens = vec![0; file.len()];
        file.window(0, &mut tokens).unwrap();
        tokens
    }

    /// Files of tokens, and drafts of them, in a folder.
    fn entries(folder: &Path) -> usize {
        let names = fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().file_name());
        names.filter(|name| name != ".contents.json").count()
    }

    #[test]
    fn documents_are_joined_by_their_end() {
        let text = corpus(&[("a", b"Hello world"), ("b", b""), ("c", b"12")]);
        let cache = text.path().join(".cache");
        let paths = [text.path().to_path_buf()];
        let gpt2 = prepared(&paths, Tokenizer::Gpt2, &cache).unwrap();
        assert_eq!(tokens_of(&gpt2), [15496, 995, 50256, 1065, 50256]);
        let source = TokenSource::from(gpt2);
        assert_eq!(
            (source.documents().unwrap(), source.document_start(1).unwrap(), source.content(0).unwrap()),
            (2, 3, 0..2)
        );
        let bytes = prepared(&paths, Tokenizer::Bytes, &cache).unwrap();
        assert_eq!(Tokenizer::Bytes.decode(&tokens_of(&bytes)).unwrap(), b"Hello world\x0012\0");
        assert_eq!(entries(&cache), 2);
    }

    #[test]
    fn lines_of_json_are_documents() {
        let lines = b"{\"text\": \"Hello world\"}\n{\"text\": \"12\"}\n";
        let text = corpus(&[("a.jsonl", lines), ("b", b"3")]);
        let file = prepared(&[text.path().to_path_buf()], Tokenizer::Bytes, &text.path().join(".cache")).unwrap();
        assert_eq!(Tokenizer::Bytes.decode(&tokens_of(&file)).unwrap(), b"Hello world\x0012\x003\0");
        assert_eq!(file.documents().unwrap(), 3);
        let reading = Reading { text_field: "body".to_owned(), ..Reading::new(Tokenizer::Bytes) };
        let error = prepare(&[text.path().join("a.jsonl")], &reading, text.path(), &mut |_, _| {}).unwrap_err();
        assert!(matches!(error, DataError::Line { line: 1, .. }), "{error}");
    }

    #[test]
    fn large_files_give_the_tokens_of_the_whole_and_progress_is_told() {
        let line = "It was the best of times,  it was the worst of times.\n\n";
        let content = line.repeat(3_000_000 / line.len());
        let text = corpus(&[("a", content.as_bytes())]);
        let mut told = Vec::new();
        let paths = [text.path().join("a")];
        let reading = Reading::new(Tokenizer::Gpt2);
        let file = prepare(&paths, &reading, text.path(), &mut |done, total| told.push((done, total))).unwrap();
        let mut expected = Tokenizer::Gpt2.encode(&content).unwrap();
        expected.push(50256);
        assert!(tokens_of(&file) == expected);
        file.verify().unwrap();
        let total = content.len() as u64;
        assert!(told.is_sorted() && told.last() == Some(&(total, total)), "{told:?}");
    }

    #[test]
    fn a_kept_file_is_used_again_until_the_content_changes() {
        let text = corpus(&[("a", b"one")]);
        // The cache may be the folder of the texts: token files are not read as text.
        let paths = [text.path().to_path_buf()];
        let cache = text.path();
        let first = prepared(&paths, Tokenizer::Bytes, cache).unwrap();
        let written = fs::metadata(first.path()).unwrap().modified().unwrap();
        let again = prepared(&paths, Tokenizer::Bytes, cache).unwrap();
        assert_eq!(again.path(), first.path());
        assert_eq!(fs::metadata(again.path()).unwrap().modified().unwrap(), written);
        // Neither the time nor the name counts.
        fs::rename(text.path().join("a"), text.path().join("b")).unwrap();
        fs::write(text.path().join("b"), "one").unwrap();
        assert_eq!(prepared(&paths, Tokenizer::Bytes, cache).unwrap().path(), first.path());
        fs::write(text.path().join("b"), "two").unwrap();
        assert_ne!(prepared(&paths, Tokenizer::Bytes, cache).unwrap().path(), first.path());
        fs::write(text.path().join("b"), "other").unwrap();
        let changed = prepared(&paths, Tokenizer::Bytes, cache).unwrap();
        assert_ne!(changed.path(), first.path());
        assert_eq!(tokens_of(&changed).len(), 6);
    }

    #[test]
    fn several_may_prepare_at_once() {
        let text = corpus(&[("a", b"some words ")]);
        let paths = [text.path().join("a")];
        let cache = text.path().join("cache");
        std::thread::scope(|scope| {
            let all = [(); 8].map(|()| scope.spawn(|| tokens_of(&prepared(&paths, Tokenizer::Bytes, &cache).unwrap())));
            assert!(all.into_iter().all(|one| one.join().unwrap().len() == 12));
        });
        assert_eq!(entries(&cache), 1);
    }

    #[test]
    fn a_damaged_or_exchanged_kept_file_is_reported() {
        let text = corpus(&[("a", b"one"), ("b", b"two")]);
        let cache = text.path().join("cache");
        let a = prepared(&[text.path().join("a")], Tokenizer::Bytes, &cache).unwrap().path().to_path_buf();
        let b = prepared(&[text.path().join("b")], Tokenizer::Bytes, &cache).unwrap().path().to_path_buf();
        fs::copy(&b, &a).unwrap();
        let error = prepared(&[text.path().join("a")], Tokenizer::Bytes, &cache).unwrap_err();
        assert!(error.to_string().contains("another corpus"), "{error}");
        let whole = fs::read(&b).unwrap();
        fs::write(&b, &whole[..whole.len() - 1]).unwrap();
        let error = prepared(&[text.path().join("b")], Tokenizer::Bytes, &cache).unwrap_err();
        assert!(matches!(error, DataError::Damaged { .. }) && error.to_string().contains("delete it"), "{error}");
        let error = prepared(std::slice::from_ref(&a), Tokenizer::Bytes, &cache).unwrap_err();
        assert!(matches!(&error, DataError::AlreadyTokens(path) if path.ends_with(a.file_name().unwrap())), "{error}");
    }

    #[test]
    fn a_failure_leaves_no_file() {
        let text = corpus(&[("a", b"fine"), ("b", b"ab\xff")]);
        let cache = text.path().join("cache");
        let error = prepared(&[text.path().to_path_buf()], Tokenizer::Gpt2, &cache).unwrap_err();
        assert!(matches!(&error, DataError::NotUtf8 { offset: 2, path } if path.ends_with("b")), "{error}");
        assert_eq!(entries(&cache), 0);
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_an_error() {
        let text = corpus(&[("a", b"fine")]);
        let paths = [text.path().join("a")];
        for cache in [text.path().join("a/cache"), PathBuf::from("/proc/self")] {
            let error = prepared(&paths, Tokenizer::Bytes, &cache).unwrap_err();
            assert!(matches!(error, DataError::Io { .. }), "{error}");
        }
    }

    /// Takes some tokens, then has no space left.
    struct Full;

    impl TokenWriter for Full {
        fn begin_document(&mut self, _mark: Mark) -> Result<(), DataError> {
            Ok(())
        }

        fn push(&mut self, _tokens: &[u32]) -> Result<(), DataError> {
            Err(io::ErrorKind::StorageFull.into()).map_err(DataError::io("write", Path::new("x.tokens")))
        }

        fn end_document(&mut self) -> Result<(), DataError> {
            Ok(())
        }

        fn tokens(&self) -> u64 {
            0
        }

        fn documents(&self) -> u64 {
            0
        }

        fn finish(self: Box<Self>) -> Result<Vec<PathBuf>, DataError> {
            Ok(Vec::new())
        }
    }

    #[test]
    fn a_full_disk_and_a_changed_source_are_errors() {
        let text = corpus(&[("a", b"fine")]);
        let mut inputs = collect(&[text.path().join("a")], TextRules::default()).unwrap();
        let reading = Reading::new(Tokenizer::Bytes);
        let error = encode_inputs(&inputs, &reading, &mut Full, &mut |_, _| {}).unwrap_err();
        let full = |source: &io::Error| source.kind() == io::ErrorKind::StorageFull;
        assert!(matches!(&error, DataError::Io { action: "write", source, .. } if full(source)), "{error}");
        inputs[0].bytes += 1;
        let path = text.path().join("x.tokens");
        let mut writer = QuadrilleWriter::create(&path, reading.tokenizer.vocabulary(), 0).unwrap();
        let error = encode_inputs(&inputs, &reading, &mut writer, &mut |_, _| {}).unwrap_err();
        assert!(matches!(error, DataError::SourceChanged { expected: 5, found: 4, .. }), "{error}");
    }
}
