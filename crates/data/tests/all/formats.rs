//! Megatron-LM's and llm.c's files, written and read by this crate and by an independent reader and writer.

use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use quadrille_data::{
    Conversion, Converted, DataError, Format, LlmCFile, MegatronFile, Opening, Reading, TextRules, TokenFormat,
    TokenSource, Tokenizer, convert, inspect, open,
};

use crate::others::{MEGATRON_TYPES, llm_c, read_llm_c, read_megatron, write_megatron};

/// The source in a file of tokens.
pub fn opened(path: &Path, tokenizer: Option<Tokenizer>) -> Result<TokenSource, DataError> {
    let named = tokenizer.is_some();
    let reading = Reading::new(tokenizer.unwrap_or(Tokenizer::Gpt2));
    let opening = Opening { reading: &reading, named, cache: path.parent().unwrap() };
    Ok(open(&[path.to_path_buf()], &opening, &mut |_, _| {})?.tokens)
}

/// All documents, with the tokens that mark them.
pub fn documents(source: &TokenSource) -> Vec<Vec<u32>> {
    let read = |document| {
        let all = source.document(document).unwrap();
        let mut tokens = vec![0; all.len()];
        source.window(all.start, &mut tokens).unwrap();
        tokens
    };
    (0..source.documents().unwrap()).map(read).collect()
}

/// Files converted, with the tokenizer if one is named.
pub fn try_convert(
    inputs: &[PathBuf],
    tokenizer: Option<Tokenizer>,
    append_end: bool,
    out: &Path,
    format: TokenFormat,
) -> Result<Converted, DataError> {
    let named = tokenizer.is_some();
    let reading = Reading::new(tokenizer.unwrap_or(Tokenizer::Gpt2));
    convert(inputs, &Conversion { reading: &reading, named, format, append_end }, out, &mut |_, _| {})
}

fn converted(input: PathBuf, tokenizer: Option<Tokenizer>, out: &Path, format: TokenFormat) -> PathBuf {
    try_convert(&[input], tokenizer, false, out, format).unwrap().files[0].clone()
}

fn lines(folder: &Path, texts: &[String]) -> PathBuf {
    let path = folder.join("texts.jsonl");
    let lines: Vec<String> = texts.iter().map(|text| format!("{}\n", serde_json::json!({ "text": text }))).collect();
    fs::write(&path, lines.concat()).unwrap();
    path
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn others_read_what_is_written(texts in prop::collection::vec("[a-z éß漢\n]{1,40}", 1..20)) {
        let folder = tempfile::tempdir().unwrap();
        let input = lines(folder.path(), &texts);
        for (name, tokenizer) in [("gpt2", Tokenizer::Gpt2), ("bytes", Tokenizer::Bytes)] {
            let encoded: Vec<Vec<u32>> = texts.iter().map(|text| tokenizer.encode(text).unwrap()).collect();
            let end = tokenizer.end_of_document().unwrap();
            let ended: Vec<Vec<u32>> = encoded.iter().map(|tokens| [&tokens[..], &[end]].concat()).collect();
            let out = folder.path().join(name);
            converted(input.clone(), Some(tokenizer.clone()), &out, TokenFormat::Megatron);
            prop_assert_eq!(&read_megatron(&out), &ended);
            let own = converted(input.clone(), Some(tokenizer.clone()), &out, TokenFormat::Quadrille);
            let own = opened(&own, None).unwrap();
            prop_assert_eq!(documents(&own), ended);
            if name == "gpt2" {
                let file = converted(input.clone(), None, &folder.path().join("c"), TokenFormat::LlmC);
                prop_assert_eq!(read_llm_c(&file), encoded);
            }
        }
    }

    #[test]
    fn conversion_keeps_documents(texts in prop::collection::vec("[a-z ]{1,40}", 1..20)) {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let first = converted(lines(folder.path(), &texts), None, &at("first"), TokenFormat::Quadrille);
        let c = converted(first.clone(), None, &at("c"), TokenFormat::LlmC);
        let megatron = converted(c, None, &at("m"), TokenFormat::Megatron);
        let last = converted(megatron, Some(Tokenizer::Gpt2), &at("last"), TokenFormat::Quadrille);
        prop_assert_eq!(fs::read(first).unwrap(), fs::read(last).unwrap());
    }

    #[test]
    fn every_type_of_megatron_is_read(
        lengths in prop::collection::vec(prop::collection::vec(0_usize..6, 1..4), 1..12),
        code in prop::sample::select(MEGATRON_TYPES.to_vec()),
        seed in any::<u32>(),
    ) {
        let (code, width, signed) = code;
        let limit = 1_u64 << (8 * width as u32 - u32::from(signed)).min(31);
        let mut next = u64::from(seed);
        let mut token = || { next = next.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407); ((next >> 33) % limit) as u32 };
        let written: Vec<Vec<Vec<u32>>> =
            lengths.iter().map(|document| document.iter().map(|length| (0..*length).map(|_| token()).collect()).collect()).collect();
        let folder = tempfile::tempdir().unwrap();
        let prefix = folder.path().join("m");
        write_megatron(&prefix, code, &written);
        let file = TokenSource::Megatron(MegatronFile::open(&prefix, None).unwrap());
        let whole: Vec<Vec<u32>> = written.iter().map(|document| document.concat()).collect();
        prop_assert_eq!(documents(&file), &whole[..]);
        file.verify().unwrap();
        for position in 0..file.len() {
            let document = file.document_at(position).unwrap();
            prop_assert!(file.document(document).unwrap().contains(&position));
        }
        prop_assert_eq!(whole, read_megatron(&prefix));
    }

    /// The format has no checksums: what is wrong is found if it contradicts something, and nothing is read beyond the end.
    #[test]
    fn damaged_indices_are_refused_or_consistent(
        byte in any::<prop::sample::Index>(), bit in 0_u8..8, cut in any::<prop::sample::Index>(), which in 0_usize..2,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let prefix = folder.path().join("m");
        write_megatron(&prefix, 8, &[vec![vec![1, 2], vec![3]], vec![vec![4]], vec![vec![5, 6, 7]]]);
        let damage = |name: &str, change: &dyn Fn(&mut Vec<u8>)| {
            let path = prefix.with_extension(name);
            let good = fs::read(&path).unwrap();
            let mut bad = good.clone();
            change(&mut bad);
            fs::write(&path, bad).unwrap();
            let result = MegatronFile::open(&prefix, None);
            fs::write(&path, good).unwrap();
            result
        };
        let flipped = damage("idx", &|bytes| { let at = byte.index(bytes.len()); bytes[at] ^= 1_u8 << bit; });
        match flipped {
            // Only the boundaries of documents may move.
            Ok(file) => prop_assert!(documents(&TokenSource::Megatron(file)).concat() == [1, 2, 3, 4, 5, 6, 7]),
            Err(error) => prop_assert!(error.to_string().contains("m.idx") && error.to_string().contains("at byte"), "{}", error),
        }
        let name = ["idx", "bin"][which];
        let error = damage(name, &|bytes| bytes.truncate(cut.index(bytes.len()))).unwrap_err().to_string();
        prop_assert!(error.contains(&format!("m.{name}")), "{}", error);
        prop_assert!(damage(name, &|bytes| bytes.push(0)).is_err());
    }

    #[test]
    fn damaged_llm_c_files_are_refused(byte in 0_usize..12, bit in 0_u8..8, cut in 0_usize..1030) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.bin");
        let good = llm_c(20_240_520, 1, 2, &[50256, 1, 2]);
        let mut bad = good.clone();
        bad[byte] ^= 1_u8 << bit;
        for bad in [&bad[..], &good[..cut], &[&good[..], &[0]].concat()] {
            fs::write(&path, bad).unwrap();
            match LlmCFile::open(&path, None) {
                Err(DataError::Invalid { .. }) => {}
                other => prop_assert!(false, "{:?}", other),
            }
        }
    }
}

#[test]
fn llm_c_documents_begin_with_their_token() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.bin");
    for (magic, version, width, begin) in [(20_240_520, 1, 2, 50256), (20_240_801, 7, 4, 128_000)] {
        // The rest of a document of the file before, a document, an empty one.
        fs::write(&path, llm_c(magic, version, width, &[7, 8, begin, 9, 10, begin])).unwrap();
        let source = opened(&path, None).unwrap();
        assert_eq!(documents(&source), [vec![7, 8], vec![begin, 9, 10], vec![begin]]);
        let content: Vec<_> = (0..3).map(|document| source.content(document).unwrap()).collect();
        assert_eq!(content, [0..2, 3..5, 6..6]);
    }
    fs::write(&path, llm_c(20_240_522, 1, 2, &[1])).unwrap();
    let error = opened(&path, None).unwrap_err().to_string();
    assert!(error.contains("questions for evaluation") && error.contains("at byte 0"), "{error}");
}

#[test]
fn what_contradicts_a_rule_is_named_with_place_and_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let prefix = folder.path().join("m");
    let refused = |at: usize, bytes: &[u8], words: &[&str]| {
        write_megatron(&prefix, 4, &[vec![vec![1, 2], vec![3]], vec![vec![4]]]);
        let path = prefix.with_extension("idx");
        let mut index = fs::read(&path).unwrap();
        index[at..at + bytes.len()].copy_from_slice(bytes);
        fs::write(&path, index).unwrap();
        let error = opened(&path, None).unwrap_err().to_string();
        assert!(error.contains("preprocess_data.py") && words.iter().all(|word| error.contains(word)), "{error}");
    };
    refused(9, &[2], &["version 2", "at byte 9"]);
    refused(17, &[7], &["type 7", "floating-point", "at byte 17"]);
    refused(17, &[9], &["type 9, unknown"]);
    refused(18, &u64::MAX.to_le_bytes(), &["18446744073709551615 sequences"]);
    refused(34, &(-1_i32).to_le_bytes(), &["sequence 0 has a negative length"]);
    refused(34, &[3], &["sequence 1 begins at byte 8", "take 12", "at byte 54"]);
    refused(70, &[1], &["document 0 begins with sequence 1"]);
    refused(86, &[2], &["2 of 3 sequences", "at byte 86"]);
    write_megatron(&prefix, 4, &[vec![vec![1, u32::MAX]]]);
    let error = opened(&prefix, None).unwrap().verify().unwrap_err().to_string();
    assert!(error.contains("m.bin") && error.contains("at byte 4, -1 is no token"), "{error}");
    // A byte for each sequence, as data of several modalities have.
    write_megatron(&prefix, 4, &[vec![vec![1]]]);
    let path = prefix.with_extension("idx");
    fs::write(&path, [fs::read(&path).unwrap(), vec![0]].concat()).unwrap();
    assert!(opened(&path, None).unwrap_err().to_string().contains("several modalities"));
}

#[test]
fn tokens_of_different_tokenizers_are_not_mixed() {
    let folder = tempfile::tempdir().unwrap();
    let texts = lines(folder.path(), &["some text".to_owned()]);
    let out = |name: &str| folder.path().join(name);
    let gpt2 = converted(texts.clone(), Some(Tokenizer::Gpt2), &out("g"), TokenFormat::Quadrille);
    let bytes = converted(texts.clone(), Some(Tokenizer::Bytes), &out("b"), TokenFormat::Quadrille);
    let error = opened(&gpt2, Some(Tokenizer::Bytes)).unwrap_err().to_string();
    assert!(error.contains("g.tokens") && error.contains("`data.tokenizer`") && error.contains("gpt2"), "{error}");
    let reading = Reading::new(Tokenizer::Gpt2);
    let opening = Opening { reading: &reading, named: false, cache: folder.path() };
    let error = open(&[gpt2.clone(), bytes.clone()], &opening, &mut |_, _| {}).unwrap_err();
    assert!(matches!(error, DataError::OtherTokenizer { .. }), "{error}");
    let error = try_convert(&[gpt2, bytes], None, false, &out("c"), TokenFormat::Megatron).unwrap_err();
    assert!(matches!(error, DataError::OtherTokenizer { .. }), "{error}");
    write_megatron(&out("m"), 4, &[vec![vec![60_000]]]);
    let convert = |tokenizer| try_convert(&[out("m")], tokenizer, false, &out("c"), TokenFormat::Quadrille);
    assert!(matches!(convert(None), Err(DataError::NoVocabulary(_))));
    let error = convert(Some(Tokenizer::Gpt2)).unwrap_err();
    assert!(matches!(error, DataError::BeyondVocabulary { token: 60_000, position: 0, .. }), "{error}");
    assert!(!out("c.tokens").exists(), "nothing is left of a failed conversion");
}

#[test]
fn folders_of_shards_are_joined_and_inspected() {
    let folder = tempfile::tempdir().unwrap();
    let shards = folder.path().join("shards");
    fs::create_dir(&shards).unwrap();
    fs::write(shards.join("a_0.bin"), llm_c(20_240_520, 1, 2, &[50256, 1, 2])).unwrap();
    fs::write(shards.join("a_1.bin"), llm_c(20_240_520, 1, 2, &[3, 50256, 4])).unwrap();
    write_megatron(&shards.join("m"), 8, &[vec![vec![5]], vec![vec![6, 50256]]]);
    let source = opened(&shards, Some(Tokenizer::Gpt2)).unwrap();
    let parts = vec![vec![50256, 1, 2], vec![3], vec![50256, 4], vec![5], vec![6, 50256]];
    assert_eq!(documents(&source), parts);
    for position in 0..source.len() {
        let document = source.document_at(position).unwrap();
        assert!(source.document(document).unwrap().contains(&position));
        let mut rest = vec![0; source.len() - position];
        source.window(position, &mut rest).unwrap();
        assert_eq!(rest, parts.concat()[position..]);
    }
    let found = inspect(&[shards], TextRules::default()).unwrap();
    let formats: Vec<Format> = found.iter().map(|contents| contents.format).collect();
    assert_eq!(formats, [Format::LlmC, Format::LlmC, Format::Megatron]);
    let counts: Vec<_> = found.iter().map(|contents| (contents.tokens, contents.documents, contents.largest)).collect();
    assert_eq!(counts, [(Some(3), 1, Some(50256)), (Some(3), 2, Some(50256)), (Some(3), 2, Some(50256))]);
}
