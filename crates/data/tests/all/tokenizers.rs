//! Tokenizers from files, held against the one that is built in; text as it arrives.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use proptest::prelude::*;
use quadrille_data::{DataError, Decoder, Opening, Reading, Tokenizer, VocabularyName, open, prepare};
use serde_json::{Value, json};

/// How GPT-2's files spell a byte: printable ones as themselves, the others from U+0100 on.
fn spelled(byte: u8) -> char {
    let printable = |byte: u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    if printable(byte) {
        char::from(byte)
    } else {
        let before = (0..byte).filter(|other| !printable(*other)).count() as u32;
        char::from_u32(256 + before).unwrap()
    }
}

/// The two parts whose merging makes a token: what is left of its bytes after all merges of lower tokens.
fn parts(token: &[u8], rank: u32, rank_of: &impl Fn(&[u8]) -> Option<u32>) -> (Vec<u8>, Vec<u8>) {
    let mut parts: Vec<Vec<u8>> = token.iter().map(|byte| vec![*byte]).collect();
    while parts.len() > 2 {
        let merged = |at: usize| rank_of(&[&parts[at][..], &parts[at + 1]].concat()).filter(|merged| *merged < rank);
        let (_, at) = (0..parts.len() - 1).filter_map(|at| Some((merged(at)?, at))).min().unwrap();
        let right = parts.remove(at + 1);
        parts[at].extend(right);
    }
    (parts[0].clone(), parts[1].clone())
}

/// GPT-2's tokenizer as a `tokenizer.json`, made from the built-in vocabulary.
fn gpt2_json() -> Value {
    let tokens: Vec<Vec<u8>> = (0..50256).map(|token| Tokenizer::Gpt2.decode(&[token]).unwrap()).collect();
    let ranks: std::collections::HashMap<&[u8], u32> =
        tokens.iter().zip(0..).map(|(bytes, rank)| (&bytes[..], rank)).collect();
    let spell = |bytes: &[u8]| bytes.iter().map(|byte| spelled(*byte)).collect::<String>();
    let vocabulary: serde_json::Map<String, Value> =
        tokens.iter().zip(0..).map(|(bytes, token)| (spell(bytes), json!(token))).collect();
    let merge = |(bytes, rank): (&Vec<u8>, u32)| {
        let (left, right) = parts(bytes, rank, &|part| ranks.get(part).copied());
        json!([spell(&left), spell(&right)])
    };
    let merges: Vec<Value> = tokens.iter().zip(0..).filter(|(bytes, _)| bytes.len() > 1).map(merge).collect();
    json!({
        "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "post_processor": null,
        "added_tokens": [{ "id": 50256, "content": "<|endoftext|>", "single_word": false, "lstrip": false,
            "rstrip": false, "normalized": false, "special": true }],
        "pre_tokenizer": { "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true },
        "decoder": { "type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true },
        "model": { "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "vocab": vocabulary, "merges": merges },
    })
}

/// As of Llama 2: words begin with U+2581, what is not in the vocabulary is spelled in bytes.
fn llama_json() -> Value {
    let mut vocabulary = serde_json::Map::new();
    let words = ["<unk>", "<s>", "</s>", "▁", "▁the", "▁a", "e", "t", "h", "a", "s", "."];
    let bytes = (0..256).map(|byte| format!("<0x{byte:02X}>"));
    for (at, word) in words.into_iter().map(str::to_owned).chain(bytes).enumerate() {
        vocabulary.insert(word, json!(at));
    }
    let special = |id: u32, content: &str| {
        json!({ "id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false, "special": true })
    };
    json!({
        "version": "1.0", "truncation": null, "padding": null, "post_processor": null,
        "added_tokens": [special(0, "<unk>"), special(1, "<s>"), special(2, "</s>")],
        "normalizer": { "type": "Sequence", "normalizers": [
            { "type": "Prepend", "prepend": "▁" },
            { "type": "Replace", "pattern": { "String": " " }, "content": "▁" },
        ] },
        "pre_tokenizer": null,
        "decoder": { "type": "Sequence", "decoders": [
            { "type": "Replace", "pattern": { "String": "▁" }, "content": " " }, { "type": "ByteFallback" },
            { "type": "Fuse" }, { "type": "Strip", "content": " ", "start": 1, "stop": 0 },
        ] },
        "model": { "type": "BPE", "dropout": null, "unk_token": "<unk>", "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": true, "byte_fallback": true, "vocab": vocabulary, "merges": [] },
    })
}

fn written(folder: &Path, json: &Value) -> PathBuf {
    let path = folder.join("tokenizer.json");
    fs::write(&path, json.to_string()).unwrap();
    path
}

fn read(json: &Value) -> Tokenizer {
    let folder = tempfile::tempdir().unwrap();
    Tokenizer::from_file(&written(folder.path(), json)).unwrap()
}

static GPT2: LazyLock<Tokenizer> = LazyLock::new(|| read(&gpt2_json()));
static LLAMA: LazyLock<Tokenizer> = LazyLock::new(|| read(&llama_json()));

/// What comes out token by token, and at the end.
fn streamed(tokenizer: &Tokenizer, tokens: &[u32]) -> String {
    let mut decoder = Decoder::new(tokenizer.clone());
    let text: String = tokens.iter().map(|token| decoder.push(*token).unwrap()).collect();
    text + &decoder.finish().unwrap()
}

fn text() -> impl Strategy<Value = String> {
    let parts = vec![
        " ",
        "  ",
        "\n\n",
        "\t",
        "\u{3000}",
        "the",
        " The",
        "'s",
        "'ll",
        "12",
        "½",
        "漢字",
        "é",
        "e\u{301}",
        "🦀",
        "...",
        "<|endoftext|>",
        " endoftext",
        "</s>",
    ];
    prop::collection::vec(prop::sample::select(parts), 0..40).prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_file_of_gpt2_gives_the_built_in_tokens(text in text()) {
        let tokens = Tokenizer::Gpt2.encode(&text).unwrap();
        prop_assert_eq!(GPT2.encode(&text).unwrap(), &tokens[..]);
        prop_assert_eq!(GPT2.decode(&tokens).unwrap(), text.as_bytes());
    }

    #[test]
    fn text_arrives_in_whole_characters(text in text()) {
        for tokenizer in [&Tokenizer::Gpt2, &Tokenizer::Bytes, &*GPT2, &*LLAMA] {
            let tokens = tokenizer.encode(&text).unwrap();
            prop_assert_eq!(streamed(tokenizer, &tokens), &text[..], "{}", tokenizer);
        }
    }

    #[test]
    fn any_tokens_give_some_text(tokens in prop::collection::vec(0_u32..256, 0..60)) {
        for tokenizer in [Tokenizer::Gpt2, Tokenizer::Bytes] {
            let whole = tokenizer.decode(&tokens).unwrap();
            prop_assert_eq!(streamed(&tokenizer, &tokens), String::from_utf8_lossy(&whole));
        }
        streamed(&GPT2, &tokens);
        streamed(&LLAMA, &tokens);
    }
}

#[test]
fn a_character_waits_for_its_last_token() {
    for tokenizer in [&Tokenizer::Gpt2, &Tokenizer::Bytes, &*GPT2, &*LLAMA] {
        let mut decoder = Decoder::new(tokenizer.clone());
        let parts: Vec<String> =
            tokenizer.encode("🦀").unwrap().into_iter().map(|token| decoder.push(token).unwrap()).collect();
        let (last, before) = parts.split_last().unwrap();
        assert!(before.len() > 1 && before.iter().all(String::is_empty) && last == "🦀", "{tokenizer}: {parts:?}");
        let unknown = tokenizer.vocab() as u32;
        assert!(matches!(Decoder::new(tokenizer.clone()).push(unknown), Err(DataError::UnknownToken { .. })));
    }
    // Cut off inside a character.
    let mut decoder = Decoder::new(Tokenizer::Bytes);
    assert_eq!(decoder.push(0xf0).unwrap() + &decoder.push(0x9f).unwrap(), "");
    assert_eq!(decoder.finish().unwrap(), "\u{fffd}");
}

#[test]
fn identity_and_end_come_from_the_file_and_the_one_beside_it() {
    assert_eq!((GPT2.vocab(), GPT2.end_of_document()), (50257, Some(50256)));
    assert_eq!((LLAMA.vocab(), LLAMA.end_of_document()), (268, Some(2)));
    assert!(GPT2.vocabulary() != LLAMA.vocabulary() && *GPT2 != Tokenizer::Gpt2);
    let folder = tempfile::tempdir().unwrap();
    let path = written(folder.path(), &llama_json());
    for (config, end) in [
        (json!({ "eos_token": "<s>" }), 1),
        (json!({ "eos_token": { "content": "<unk>" } }), 0),
        (json!({ "eos_token": null }), 2),
    ] {
        fs::write(folder.path().join("tokenizer_config.json"), config.to_string()).unwrap();
        assert_eq!(Tokenizer::from_file(&path).unwrap().end_of_document(), Some(end));
    }
    fs::write(folder.path().join("tokenizer_config.json"), "{\"eos_token\": \"<none>\"}").unwrap();
    let error = Tokenizer::from_file(&path).unwrap_err().to_string();
    assert!(error.contains("<none>") && error.contains("tokenizer_config.json"), "{error}");
    for bad in ["", "{}", "[1, 2]", "{\"model\": {\"type\": \"BPE\"}}", "no json"] {
        fs::write(&path, bad).unwrap();
        let error = Tokenizer::from_file(&path).unwrap_err();
        assert!(matches!(&error, DataError::TokenizerFile { .. }), "{bad}: {error}");
    }
}

#[test]
fn prepared_files_remember_their_tokenizer() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.txt");
    let text = "It was the best of times,  it was the worst of times; 12 é 🦀.\n\n".repeat(9000);
    fs::write(&path, &text).unwrap();
    let of = |tokenizer: &Tokenizer| {
        let reading = Reading::new(tokenizer.clone());
        let file = prepare(std::slice::from_ref(&path), &reading, folder.path(), &mut |_, _| {}).unwrap();
        let mut tokens = vec![0; file.len()];
        let at = file.path().to_path_buf();
        let vocabulary = file.vocabulary();
        quadrille_data::TokenSource::from(file).window(0, &mut tokens).unwrap();
        (at, vocabulary, tokens)
    };
    // Larger than a piece: cut where the tokens on both sides are those of the whole.
    let (file, vocabulary, tokens) = of(&GPT2);
    assert_eq!(tokens, of(&Tokenizer::Gpt2).2);
    assert_eq!(vocabulary, GPT2.vocabulary());
    assert!(matches!(vocabulary.name, VocabularyName::Json(_)));
    let open = |tokenizer: &Tokenizer| {
        let reading = Reading::new(tokenizer.clone());
        open(
            std::slice::from_ref(&file),
            &Opening { reading: &reading, named: true, cache: folder.path() },
            &mut |_, _| {},
        )
    };
    assert_eq!(open(&GPT2).unwrap().tokens.len(), tokens.len());
    for other in [&*LLAMA, &Tokenizer::Gpt2] {
        assert!(matches!(open(other), Err(DataError::OtherTokenizer { .. })));
    }
    // A space is put before every text, which pieces within a document must not have.
    let mut expected = LLAMA.encode(&text).unwrap();
    expected.extend(LLAMA.end_of_document());
    assert!(of(&LLAMA).2 == expected);
}

/// As [`llama_json`] with merges: without a pre-tokenizer, so that the whole text is one word.
fn merging_llama() -> Tokenizer {
    let mut json = llama_json();
    let merges = [
        ["▁", "t"],
        ["h", "e"],
        ["▁t", "he"],
        ["a", "a"],
        ["aa", "aa"],
        ["aaaa", "aaaa"],
        ["s", "e"],
        ["t", "h"],
        ["th", "a"],
        ["e", "▁"],
        ["se", "t"],
        ["tha", "t"],
        ["s", "."],
        ["a", "▁t"],
        ["e", "a"],
        ["ea", "se"],
    ];
    let vocabulary = json["model"]["vocab"].as_object_mut().unwrap();
    for [left, right] in merges {
        let id = vocabulary.len();
        vocabulary.entry(format!("{left}{right}")).or_insert(json!(id));
    }
    json["model"]["merges"] = merges.iter().map(|pair| json!(pair)).collect();
    read(&json)
}

/// Text of the letters, in an order without a period.
fn letters(letters: &[char], count: usize) -> String {
    let mut random = 1_u64;
    let mut next = || {
        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        letters[(random >> 33) as usize % letters.len()]
    };
    (0..count).map(|_| next()).collect()
}

/// Llama 2's kind of tokenizer has no words: tokens may have spaces in them, and a text begins with one that it does not have.
/// The library's tokens of the whole text are the measure.
#[test]
fn text_without_ends_of_words_has_the_tokens_of_the_whole() {
    let folder = tempfile::tempdir().unwrap();
    let tokenizer = merging_llama();
    for (name, alphabet) in [
        ("words", &['t', 'h', 'e', 'a', 's', ' ', ' '][..]),
        ("no spaces", &['t', 'h', 'e', 'a', 's', '.']),
        ("characters", &['t', 'é', '漢', '🦀', 'a', ' ']),
    ] {
        let path = folder.path().join(name);
        let text = letters(alphabet, 1_500_000);
        fs::write(&path, &text).unwrap();
        let reading = Reading::new(tokenizer.clone());
        let file = prepare(&[path], &reading, folder.path(), &mut |_, _| {}).unwrap();
        let mut tokens = vec![0; file.len()];
        quadrille_data::TokenSource::from(file).window(0, &mut tokens).unwrap();
        let mut expected = tokenizer.encode(&text).unwrap();
        expected.extend(tokenizer.end_of_document());
        assert!(tokens == expected, "{name}: {} tokens, {} expected", tokens.len(), expected.len());
    }
    // Where the tokens of a run of one letter end depends on where it began.
    let path = folder.path().join("run");
    fs::write(&path, "a".repeat(5_000_000)).unwrap();
    let error = prepare(&[path], &Reading::new(tokenizer), folder.path(), &mut |_, _| {}).unwrap_err();
    let message = error.to_string();
    assert!(matches!(error, DataError::Unsplittable { .. }) && message.contains("tokenizer.json"), "{message}");
}

/// Ids without a token are as unknown as those beyond the last one.
#[test]
fn holes_among_the_ids_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokenizer.json");
    let words = json!({
        "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "post_processor": null,
        "added_tokens": [], "pre_tokenizer": { "type": "Whitespace" }, "decoder": null,
        "model": { "type": "WordLevel", "vocab": { "a": 0, "b": 2, "c": 5 }, "unk_token": "a" },
    });
    fs::write(&path, words.to_string()).unwrap();
    let tokenizer = Tokenizer::from_file(&path).unwrap();
    assert_eq!((tokenizer.vocab(), (0..7).filter(|token| tokenizer.has(*token)).collect()), (6, vec![0, 2, 5]));
    assert_eq!(tokenizer.decode(&[0, 2, 5]).unwrap(), b"a b c");
    for hole in [1, 3, 4, 6] {
        let unknown = |error| matches!(error, DataError::UnknownToken { token, .. } if token == hole);
        assert!(unknown(tokenizer.decode(&[0, hole, 2]).unwrap_err()));
        assert!(unknown(Decoder::new(tokenizer.clone()).push(hole).unwrap_err()));
    }
}

/// Opening a pipe would wait for its writer for ever.
#[test]
fn a_pipe_is_no_tokenizer() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokenizer.json");
    assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
    assert!(matches!(Tokenizer::from_file(&path), Err(DataError::File(_))));
}
