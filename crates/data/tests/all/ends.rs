//! End tokens of converted files of tokens: none is added that was not asked for, none is lost.

use std::fs;
use std::path::{Path, PathBuf};

use quadrille_data::{Converted, DataError, Ends, TokenFormat, Tokenizer};
use serde_json::json;
use tempfile::TempDir;

use crate::formats::{documents, opened, try_convert};
use crate::others::{llm_c, read_llm_c, read_megatron, write_megatron};

/// GPT-2's end token.
const E: u32 = 50256;

fn marked() -> Vec<Vec<u32>> {
    vec![vec![1, 2, E], vec![3, E], vec![E], vec![4, E, E], vec![5, E]]
}

/// Some end with the token, one has it within, some have none, one has nothing.
fn mixed() -> Vec<Vec<u32>> {
    vec![vec![1, 2, E], vec![3], vec![], vec![4, E, E], vec![E, 5], vec![]]
}

/// The same where every document ends with the token.
fn completed() -> Vec<Vec<u32>> {
    let completed = |mut document: Vec<u32>| {
        if document.last() != Some(&E) {
            document.push(E);
        }
        document
    };
    mixed().into_iter().map(completed).collect()
}

/// The documents in a file of Megatron-LM's, and in one of this program's.
fn inputs(folder: &TempDir, written: &[Vec<u32>]) -> [PathBuf; 2] {
    let prefix = folder.path().join("input");
    write_megatron(&prefix, 8, &written.iter().map(|document| vec![document.clone()]).collect::<Vec<_>>());
    let own = folder.path().join("input.tokens");
    try_convert(std::slice::from_ref(&prefix), Some(Tokenizer::Gpt2), false, &own, TokenFormat::Quadrille).unwrap();
    assert_eq!(documents(&opened(&own, None).unwrap()), written);
    [prefix, own]
}

fn converted(input: &Path, append_end: bool, format: TokenFormat) -> Result<(Converted, PathBuf), DataError> {
    let out = input.with_file_name("out");
    let done = try_convert(&[input.to_path_buf()], Some(Tokenizer::Gpt2), append_end, &out, format)?;
    let file = done.files[0].clone();
    Ok((done, file))
}

fn count(documents: &[Vec<u32>]) -> u64 {
    documents.iter().map(|document| document.len() as u64).sum()
}

#[test]
fn tokens_in_are_tokens_out() {
    let folder = tempfile::tempdir().unwrap();
    for written in [marked(), mixed()] {
        let missing = written.iter().filter(|document| document.last() != Some(&E)).count() as u64;
        for input in inputs(&folder, &written) {
            for format in [TokenFormat::Quadrille, TokenFormat::Megatron] {
                let (done, file) = converted(&input, false, format).unwrap();
                assert_eq!(documents(&opened(&file, None).unwrap()), written, "{format}");
                assert_eq!((done.tokens, done.ends), (count(&written), Ends { missing, appended: 0 }), "{format}");
            }
            assert_eq!(read_megatron(&folder.path().join("out")), written);
        }
    }
}

/// The token that ends a document elsewhere begins it in llm.c's files, and goes back.
#[test]
fn ends_move_to_the_beginnings_of_llm_c_and_back() {
    let folder = tempfile::tempdir().unwrap();
    for input in inputs(&folder, &marked()) {
        let (done, file) = converted(&input, false, TokenFormat::LlmC).unwrap();
        let raw = [E, 1, 2, E, 3, E, E, 4, E, E, 5];
        assert_eq!(fs::read(&file).unwrap(), llm_c(20_240_520, 1, 2, &raw));
        assert_eq!((done.tokens, done.documents, done.ends), (raw.len() as u64, 5, Ends::default()));
        // A document that ends with two such tokens are two there: the format has nothing else to tell them apart.
        let back = [vec![1, 2, E], vec![3, E], vec![E], vec![4, E], vec![E], vec![5, E]];
        for format in [TokenFormat::Quadrille, TokenFormat::Megatron] {
            let from = folder.path().join("c.bin");
            fs::copy(&file, &from).unwrap();
            let (done, file) = converted(&from, false, format).unwrap();
            assert_eq!(documents(&opened(&file, None).unwrap()), back);
            assert_eq!((done.tokens, done.ends), (raw.len() as u64, Ends::default()));
            fs::remove_file(file).unwrap();
        }
    }
}

#[test]
fn documents_without_an_end_do_not_fit_llm_c_unless_it_is_appended() {
    let folder = tempfile::tempdir().unwrap();
    for input in inputs(&folder, &mixed()) {
        let error = converted(&input, false, TokenFormat::LlmC).unwrap_err();
        assert!(matches!(&error, DataError::Inexpressible { .. }), "{error}");
        assert!(error.to_string().contains("document 1 has no end token"), "{error}");
        assert!(error.to_string().contains("`tokens.append_end`"), "{error}");
        let (done, file) = converted(&input, true, TokenFormat::LlmC).unwrap();
        assert_eq!(done.ends, Ends { missing: 0, appended: 4 });
        assert_eq!(read_llm_c(&file), [vec![1, 2], vec![3], vec![], vec![4], vec![], vec![], vec![5], vec![]]);
        fs::remove_file(file).unwrap();
    }
}

#[test]
fn an_end_that_is_asked_for_comes_once() {
    let folder = tempfile::tempdir().unwrap();
    for input in inputs(&folder, &mixed()) {
        for format in [TokenFormat::Quadrille, TokenFormat::Megatron] {
            let (done, file) = converted(&input, true, format).unwrap();
            assert_eq!(documents(&opened(&file, None).unwrap()), completed());
            assert_eq!((done.tokens, done.ends), (count(&completed()), Ends { missing: 0, appended: 4 }));
            let again = folder.path().join("again").with_extension(file.extension().unwrap());
            fs::copy(&file, &again).unwrap();
            if format == TokenFormat::Megatron {
                fs::copy(file.with_extension("idx"), again.with_extension("idx")).unwrap();
            }
            let (done, file) = converted(&again, true, format).unwrap();
            assert_eq!(documents(&opened(&file, None).unwrap()), completed());
            assert_eq!(done.ends, Ends::default());
        }
    }
}

/// What lies before the first document of a shard belongs to the last one of the shard before.
#[test]
fn shards_of_llm_c_are_joined_where_they_were_cut() {
    let folder = tempfile::tempdir().unwrap();
    let shard = |name: &str, tokens: &[u32]| {
        let path = folder.path().join(name);
        fs::write(&path, llm_c(20_240_520, 1, 2, tokens)).unwrap();
        path
    };
    let shards = [shard("a.bin", &[6, 7, E, 1, 2]), shard("b.bin", &[3, E, E, 4])];
    let out = folder.path().join("out");
    let done = try_convert(&shards, None, false, &out, TokenFormat::LlmC).unwrap();
    assert_eq!(fs::read(&done.files[0]).unwrap(), llm_c(20_240_520, 1, 2, &[6, 7, E, 1, 2, 3, E, E, 4]));
    for format in [TokenFormat::Quadrille, TokenFormat::Megatron] {
        let done = try_convert(&shards, None, false, &out, format).unwrap();
        let kept = vec![vec![6, 7], vec![1, 2, E], vec![3], vec![E], vec![4, E]];
        assert_eq!((done.tokens, done.ends), (9, Ends { missing: 2, appended: 0 }));
        assert_eq!(documents(&opened(&done.files[0], None).unwrap()), kept);
    }
}

/// Llama 3's files begin documents with one token and end them with none: neither is taken for the other.
#[test]
fn a_beginning_that_is_no_end_stays() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokenizer.json");
    let vocabulary = json!({ "a": 5, "<|begin_of_text|>": 128_000, "<|end_of_text|>": 128_001 });
    let model = json!({ "type": "WordLevel", "vocab": vocabulary, "unk_token": "a" });
    let words = json!({
        "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "post_processor": null,
        "added_tokens": [], "pre_tokenizer": null, "decoder": null, "model": model,
    });
    fs::write(&path, words.to_string()).unwrap();
    let tokenizer = Tokenizer::from_file(&path).unwrap();
    let file = folder.path().join("l.bin");
    fs::write(&file, llm_c(20_240_801, 7, 4, &[128_000, 5, 5, 128_000, 5])).unwrap();
    let out = folder.path().join("out");
    for (append_end, end) in [(false, None), (true, Some(128_001))] {
        let inputs = std::slice::from_ref(&file);
        let done = try_convert(inputs, Some(tokenizer.clone()), append_end, &out, TokenFormat::Quadrille).unwrap();
        let expected: Vec<Vec<u32>> =
            [vec![128_000, 5, 5], vec![128_000, 5]].map(|document| document.into_iter().chain(end).collect()).into();
        assert_eq!(documents(&opened(&done.files[0], None).unwrap()), expected);
    }
}
