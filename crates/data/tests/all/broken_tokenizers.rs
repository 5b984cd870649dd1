//! Tokenizer files with a byte or a value changed: each is refused by name or works, and none makes the program panic.

use std::fs;
use std::path::Path;

use quadrille_data::{DataError, Decoder, Tokenizer};
use quadrille_spec::RandomStream;
use serde_json::{Value, json};

const TEXT: &str = "ab abc  abab.\n«ä» 🦀 <s> c##b ▁ab\u{301} <0x41>";

/// A tokenizer with as much around its model as real ones have.
fn file(model: Value, pre_tokenizer: Value, decoder: Value) -> Value {
    let special = |id: u32, content: &str| {
        json!({ "id": id, "content": content, "single_word": false, "lstrip": true, "rstrip": false,
            "normalized": false, "special": true })
    };
    json!({
        "version": "1.0",
        "truncation": { "direction": "Right", "max_length": 8, "strategy": "LongestFirst", "stride": 0 },
        "padding": { "strategy": "BatchLongest", "direction": "Right", "pad_to_multiple_of": null, "pad_id": 0,
            "pad_type_id": 0, "pad_token": "<unk>" },
        "added_tokens": [special(0, "<unk>"), special(1, "<s>"), special(2, "</s>")],
        "normalizer": { "type": "Sequence", "normalizers": [
            { "type": "NFKC" }, { "type": "Prepend", "prepend": "▁" },
            { "type": "Replace", "pattern": { "String": " " }, "content": "▁" },
        ] },
        "pre_tokenizer": pre_tokenizer,
        "post_processor": { "type": "TemplateProcessing", "single": [{ "Sequence": { "id": "A", "type_id": 0 } }],
            "pair": [{ "Sequence": { "id": "A", "type_id": 0 } }, { "Sequence": { "id": "B", "type_id": 1 } }],
            "special_tokens": { "<s>": { "id": "<s>", "ids": [1], "tokens": ["<s>"] } } },
        "decoder": decoder,
        "model": model,
    })
}

fn vocabulary(words: &[&str]) -> Value {
    Value::Object(words.iter().enumerate().map(|(id, word)| ((*word).to_owned(), json!(id))).collect())
}

/// A valid file of every kind of model that splits words.
fn files() -> [(&'static str, Value); 3] {
    let words =
        ["<unk>", "<s>", "</s>", "▁", "a", "##b", "##c", "a##b", "a##c", "##b##c", "ab", "ac", "##bc", "abc", "<0x41>"];
    let pairs = json!({
        "type": "BPE", "dropout": null, "unk_token": "<unk>", "continuing_subword_prefix": "##",
        "end_of_word_suffix": "", "fuse_unk": true, "byte_fallback": true, "ignore_merges": false,
        "vocab": vocabulary(&words), "merges": [["a", "##b"], ["a", "##c"], ["##b", "##c"], ["ab", "##c"]],
    });
    let pieces = json!({
        "type": "WordPiece", "unk_token": "<unk>", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
        "vocab": vocabulary(&words),
    });
    let scores: Vec<Value> = words.iter().zip(0..).map(|(word, at)| json!([word, -0.5 * f64::from(at)])).collect();
    let unigram = json!({ "type": "Unigram", "unk_id": 0, "byte_fallback": true, "vocab": scores });
    let bytes = json!({ "type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true });
    let space = json!({ "type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true });
    let split = json!({ "type": "Sequence", "pretokenizers": [
        { "type": "Split", "pattern": { "Regex": "\\s+|[a-c]{1,3}" }, "behavior": "Isolated", "invert": false },
        { "type": "Punctuation", "behavior": "Contiguous" }, { "type": "Digits", "individual_digits": true },
    ] });
    let fused = json!({ "type": "Sequence", "decoders": [
        { "type": "Replace", "pattern": { "String": "▁" }, "content": " " }, { "type": "ByteFallback" },
        { "type": "Fuse" }, { "type": "Strip", "content": " ", "start": 1, "stop": 0 },
    ] });
    [
        ("BPE", file(pairs, split, fused)),
        ("WordPiece", file(pieces, bytes, json!({ "type": "WordPiece", "prefix": "##", "cleanup": true }))),
        ("Unigram", file(unigram, space.clone(), space)),
    ]
}

/// Draws numbers one after the other.
struct Draw(RandomStream, u64);

impl Draw {
    fn below(&mut self, bound: usize) -> usize {
        self.1 += 1;
        self.0.below(self.1, bound as u64) as usize
    }
}

/// Every value within `value`, itself last.
fn all<'a>(value: &'a mut Value, found: &mut Vec<&'a mut Value>, wanted: usize, seen: &mut usize) {
    if *seen == wanted {
        *seen += 1;
        found.push(value);
        return;
    }
    *seen += 1;
    match value {
        Value::Array(values) => values.iter_mut().for_each(|value| all(value, found, wanted, seen)),
        Value::Object(values) => values.values_mut().for_each(|value| all(value, found, wanted, seen)),
        _ => {}
    }
}

/// The value number `wanted` of a document.
fn nth(document: &mut Value, wanted: usize) -> Option<&mut Value> {
    let mut found = Vec::new();
    let mut seen = 0;
    all(document, &mut found, wanted, &mut seen);
    found.pop()
}

fn size(value: &Value) -> usize {
    1 + match value {
        Value::Array(values) => values.iter().map(size).sum(),
        Value::Object(values) => values.values().map(size).sum(),
        _ => 0,
    }
}

/// One value becomes another one, loses an entry, or gets one twice.
fn changed_value(document: &Value, draw: &mut Draw) -> Vec<u8> {
    let mut changed = document.clone();
    let other = {
        let at = draw.below(size(document));
        nth(&mut changed, at).map_or(Value::Null, |value| value.clone())
    };
    let pool = [
        Value::Null,
        json!(true),
        json!(0),
        json!(-1),
        json!(3),
        json!(99),
        json!(u32::MAX),
        json!(u64::MAX),
        json!(1e300),
        json!(-0.5),
        json!(""),
        json!("a"),
        json!("##"),
        json!("######"),
        json!("ä"),
        json!("▁▁▁"),
        json!("\u{0}"),
        json!("<unk>"),
        json!([]),
        json!({}),
        json!(["a", "a"]),
        other,
    ];
    let replacement = pool[draw.below(pool.len())].clone();
    let at = draw.below(size(document));
    let how = draw.below(6);
    let Some(value) = nth(&mut changed, at) else { return Vec::new() };
    match (how, &mut *value) {
        (0, Value::Array(values)) if !values.is_empty() => drop(values.remove(draw.below(values.len()))),
        (1, Value::Array(values)) => values.push(replacement),
        (0, Value::Object(values)) if !values.is_empty() => {
            let key = values.keys().nth(draw.below(values.len())).cloned().unwrap_or_default();
            values.shift_remove(&key);
        }
        (1, Value::Object(values)) if !values.is_empty() => {
            let key = values.keys().nth(draw.below(values.len())).cloned().unwrap_or_default();
            let kept = values.shift_remove(&key).unwrap_or_default();
            values.insert(replacement.as_str().unwrap_or("b").to_owned(), kept);
        }
        _ => *value = replacement,
    }
    changed.to_string().into_bytes()
}

/// Some bytes become others, are left out, or come twice.
fn changed_bytes(document: &Value, draw: &mut Draw) -> Vec<u8> {
    let mut bytes = document.to_string().into_bytes();
    for _ in 0..1 + draw.below(3) {
        let at = draw.below(bytes.len());
        match draw.below(4) {
            0 => bytes[at] ^= 1 << draw.below(8),
            1 => bytes[at] = b"0123456789abc\"[]{},:-#\\ \n\xc3"[draw.below(25)],
            2 => drop(bytes.drain(at..bytes.len().min(at + 1 + draw.below(20)))),
            _ => bytes.insert(at, bytes[draw.below(bytes.len())]),
        }
    }
    bytes
}

/// Opens the file, encodes some text, and decodes it again, and tokens that nobody has encoded.
fn used(path: &Path) -> Result<(), DataError> {
    let tokenizer = Tokenizer::from_file(path)?;
    let mut tokens = tokenizer.encode(TEXT)?;
    tokens.extend((0..tokenizer.vocab().min(40) as u32).filter(|token| tokenizer.has(*token)));
    tokenizer.decode(&tokens)?;
    let mut decoder = Decoder::new(tokenizer.clone());
    tokens.iter().try_for_each(|token| decoder.push(*token).map(drop))?;
    decoder.finish().map(drop)
}

#[test]
fn changed_tokenizer_files_are_refused_or_work() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokenizer.json");
    for (kind, document) in files() {
        fs::write(&path, document.to_string()).unwrap();
        used(&path).unwrap();
        let mut refused = 0;
        for number in 0..300 {
            let mut draw = Draw(RandomStream::new(number, kind), 0);
            let changed = if number % 4 == 0 { changed_bytes } else { changed_value };
            let bytes = changed(&document, &mut draw);
            fs::write(&path, &bytes).unwrap();
            if let Err(error) = used(&path) {
                // A vocabulary may have two words of one number, and none of another that is a word's place in it.
                let told = matches!(&error, DataError::TokenizerFile { .. } | DataError::UnknownToken { .. });
                assert!(told && error.to_string().contains(path.to_str().unwrap()), "{kind}, change {number}: {error}");
                refused += 1;
            }
        }
        assert!((100..290).contains(&refused), "{kind}: {refused} refused");
    }
}

/// Refused by the file's name and these words.
fn refused(document: &Value, words: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokenizer.json");
    fs::write(&path, document.to_string()).unwrap();
    let error = used(&path).unwrap_err();
    assert!(matches!(&error, DataError::TokenizerFile { path: found, .. } if *found == path), "{error}");
    assert!(words.iter().all(|word| error.to_string().contains(word)), "{error}");
}

#[test]
fn merges_that_make_no_token_are_named() {
    let [(_, good), ..] = files();
    let with = |merges: Value| {
        let mut document = good.clone();
        document["model"]["merges"] = merges;
        document
    };
    refused(
        &with(json!([["a", "##b"], ["ab", "a"]])),
        &["merge 1, of \"ab\" and \"a\"", "continuing_subword_prefix \"##\""],
    );
    // As older files have them.
    refused(&with(json!(["a a"])), &["merge 0", "continuing_subword_prefix"]);
    refused(&with(json!([["abc", "<0x41>"]])), &["merge 0", "makes \"abcx41>\", which is not in its vocabulary"]);
    let mut within = good.clone();
    within["model"]["continuing_subword_prefix"] = json!("a");
    within["model"]["merges"] = json!([["a", "▁"]]);
    refused(&within, &["merge 0, of \"a\" and \"▁\""]);
}

/// What is found only when a text is at hand.
#[test]
fn a_library_that_gives_up_is_an_error() {
    let [(_, pairs), (_, pieces), _] = files();
    let mut decoding = pairs;
    decoding["decoder"] = json!({ "type": "Strip", "content": "a", "start": 0, "stop": 9 });
    refused(&decoding, &["gives up", "strip.rs"]);
    let mut encoding = pieces;
    encoding["normalizer"]["normalizers"][2]["pattern"]["String"] = json!("");
    refused(&encoding, &["gives up", "normalizer.rs"]);
}

#[test]
fn a_decoder_that_is_no_json_is_no_tokenizer() {
    let [(_, good), ..] = files();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokenizer.json");
    let text = good.to_string().replace("\"type\":\"Fuse\"", "\"type\" \"Fuse\"");
    fs::write(&path, text).unwrap();
    let error = used(&path).unwrap_err().to_string();
    assert!(error.contains("tokenizer.json: it is not JSON: expected `:`"), "{error}");
}
