//! Special tokens around texts, in texts, and of chats. Expected tokens: transformers 5.24.0 of the same files, except where a
//! comment names another origin.

use std::fs;
use std::path::Path;

use quadrille_data::{Affixes, ChatMessage, DataError, Reading, SpecialTokens, TokenSource, Tokenizer, prepare};
use serde_json::{Value, json};
use tempfile::TempDir;

const WORDS: [&str; 8] = ["<unk>", "<s>", "</s>", "one", "two", "<|user|>", "<|answer|>", "<more>"];

/// The post-processor that puts these of [`WORDS`] before and after a text.
fn template(before: &[u32], after: &[u32]) -> Value {
    let special = |id: &u32| json!({ "SpecialToken": { "id": WORDS[*id as usize], "type_id": 0 } });
    let text = [json!({ "Sequence": { "id": "A", "type_id": 0 } })];
    let single: Vec<Value> = before.iter().map(special).chain(text).chain(after.iter().map(special)).collect();
    let used = before.iter().chain(after).map(|id| {
        let word = WORDS[*id as usize];
        (word.to_owned(), json!({ "id": word, "ids": [id], "tokens": [word] }))
    });
    let used: serde_json::Map<String, Value> = used.collect();
    json!({ "type": "TemplateProcessing", "single": single, "pair": single, "special_tokens": used })
}

/// A folder with a tokenizer of [`WORDS`] between spaces, all but the two words special, and its `tokenizer_config.json`.
fn folder(post_processor: &Value, config: &Value) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let ids = WORDS.iter().enumerate();
    let vocabulary: serde_json::Map<String, Value> =
        ids.clone().map(|(id, word)| ((*word).to_owned(), json!(id))).collect();
    let added = ids.filter(|(_, word)| word.starts_with('<')).map(|(id, word)| {
        json!({ "id": id, "content": word, "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false, "special": *word != "<more>" })
    });
    let tokenizer = json!({
        "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "decoder": null,
        "added_tokens": added.collect::<Vec<_>>(), "pre_tokenizer": { "type": "Whitespace" },
        "post_processor": post_processor,
        "model": { "type": "WordLevel", "vocab": vocabulary, "unk_token": "<unk>" },
    });
    fs::write(folder.path().join("tokenizer.json"), tokenizer.to_string()).unwrap();
    if !config.is_null() {
        fs::write(folder.path().join("tokenizer_config.json"), config.to_string()).unwrap();
    }
    folder
}

fn opened(folder: &Path) -> Tokenizer {
    Tokenizer::from_file(&folder.join("tokenizer.json")).unwrap()
}

/// Tokens of the documents of JSON lines.
fn prepared(tokenizer: &Tokenizer, special: SpecialTokens, texts: &[&str]) -> Vec<u32> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.jsonl");
    let lines: String = texts.iter().map(|text| format!("{}\n", json!({ "text": text }))).collect();
    fs::write(&path, lines).unwrap();
    let reading = Reading { special, ..Reading::new(tokenizer.clone()) };
    let file = TokenSource::from(prepare(&[path], &reading, folder.path(), &mut |_, _| {}).unwrap());
    assert_eq!(file.documents().unwrap(), texts.len());
    file.verify().unwrap();
    let mut tokens = vec![0; file.len()];
    file.window(0, &mut tokens).unwrap();
    tokens
}

const PARSED: SpecialTokens = SpecialTokens { added: true, parsed: true };

/// The post-processor decides. Flags add what it leaves out, as the tokenizer of Llama does in transformers 4.57.3.
#[test]
fn affixes_are_those_of_the_post_processor_and_of_flags() {
    let names = json!({ "bos_token": "<s>", "eos_token": { "content": "</s>", "__type": "AddedToken" } });
    let with = |flags: Value| {
        let mut config = names.clone();
        config.as_object_mut().unwrap().extend(flags.as_object().unwrap().clone());
        config
    };
    let bytes = json!({ "type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true });
    let sequence = json!({ "type": "Sequence", "processors": [bytes, template(&[1], &[])] });
    let bert = json!({ "type": "BertProcessing", "sep": ["</s>", 2], "cls": ["<s>", 1] });
    for (post_processor, config, begin, end) in [
        (Value::Null, names.clone(), &[][..], &[][..]),
        (bytes.clone(), names.clone(), &[], &[]),
        (template(&[1], &[]), names.clone(), &[1], &[]),
        (template(&[1], &[]), Value::Null, &[1], &[]),
        (template(&[1, 5], &[2]), names.clone(), &[1, 5], &[2]),
        (sequence, names.clone(), &[1], &[]),
        (bert, names.clone(), &[1], &[2]),
        (template(&[1], &[]), with(json!({ "add_bos_token": false })), &[1], &[]),
        (template(&[1], &[]), with(json!({ "add_bos_token": true, "add_eos_token": false })), &[1], &[]),
        (template(&[1], &[2]), with(json!({ "add_bos_token": true, "add_eos_token": true })), &[1], &[2]),
        (bytes, with(json!({ "add_bos_token": false, "add_eos_token": false })), &[], &[]),
        (Value::Null, with(json!({ "add_bos_token": true })), &[1], &[]),
        (Value::Null, with(json!({ "add_bos_token": true, "add_eos_token": true })), &[1], &[2]),
        (template(&[1], &[]), with(json!({ "add_eos_token": true })), &[1], &[2]),
    ] {
        let folder = folder(&post_processor, &config);
        let expected = Affixes { begin: begin.to_vec(), end: end.to_vec() };
        assert_eq!(*opened(folder.path()).affixes(), expected, "{post_processor} {config}");
    }
    for tokenizer in [Tokenizer::Gpt2, Tokenizer::Bytes] {
        assert!(tokenizer.affixes().is_empty());
    }
}

#[test]
fn the_beginning_of_a_text_is_bos_else_the_end_of_a_document() {
    for (post_processor, config, expected) in [
        (Value::Null, json!({ "bos_token": "<s>", "eos_token": "</s>" }), 1),
        (Value::Null, json!({ "bos_token": null, "eos_token": "</s>" }), 2),
        (Value::Null, json!({ "bos_token": "</s>", "eos_token": "</s>" }), 2),
        (Value::Null, Value::Null, 1),
        (template(&[5], &[]), json!({ "eos_token": "</s>" }), 5),
    ] {
        let folder = folder(&post_processor, &config);
        assert_eq!(opened(folder.path()).beginning(), Some(expected), "{config}");
    }
    assert_eq!((Tokenizer::Gpt2.beginning(), Tokenizer::Bytes.beginning()), (Some(50256), Some(0)));
    // The file of the same names that older versions of the library wrote.
    let folder = folder(&Value::Null, &Value::Null);
    let map = json!({ "bos_token": { "content": "<|user|>" }, "eos_token": "<|answer|>" });
    fs::write(folder.path().join("special_tokens_map.json"), map.to_string()).unwrap();
    let tokenizer = opened(folder.path());
    assert_eq!((tokenizer.beginning(), tokenizer.end_of_document()), (Some(5), Some(6)));
    let config = json!({ "bos_token": "<none>", "add_bos_token": true });
    fs::write(folder.path().join("tokenizer_config.json"), config.to_string()).unwrap();
    let error = Tokenizer::from_file(&folder.path().join("tokenizer.json")).unwrap_err().to_string();
    assert!(error.contains("no token \"<none>\", the bos_token of its tokenizer_config.json"), "{error}");
}

#[test]
fn documents_have_the_tokens_around_texts_once() {
    let names = json!({ "bos_token": "<s>", "eos_token": "</s>" });
    for (post_processor, special, texts, expected) in [
        (template(&[1], &[]), SpecialTokens::default(), ["one", "two one"], &[1, 3, 2, 1, 4, 3, 2][..]),
        (template(&[1], &[2]), SpecialTokens::default(), ["one", "two one"], &[1, 3, 2, 1, 4, 3, 2]),
        (template(&[1], &[5, 2]), SpecialTokens::default(), ["one", "two"], &[1, 3, 5, 2, 1, 4, 5, 2]),
        (template(&[1], &[]), SpecialTokens::NONE, ["one", "two one"], &[3, 2, 4, 3, 2]),
        (Value::Null, SpecialTokens::default(), ["one", "two one"], &[3, 2, 4, 3, 2]),
        // Also before BOS in a text, and where BOS is the token that ends documents.
        (template(&[1], &[]), PARSED, ["<s>one", "two<|user|>"], &[1, 1, 3, 2, 1, 4, 5, 2]),
        (template(&[2], &[]), SpecialTokens::default(), ["one", "two"], &[2, 3, 2, 2, 4, 2]),
    ] {
        let folder = folder(&post_processor, &names);
        assert_eq!(prepared(&opened(folder.path()), special, &texts), expected, "{post_processor} {special:?}");
    }
}

/// Tokens of a long text are the same as of the whole.
#[test]
fn a_long_text_has_the_tokens_around_it_once() {
    let made = folder(&template(&[1], &[]), &json!({ "bos_token": "<s>", "eos_token": "</s>" }));
    let tokenizer = opened(made.path());
    let text = "one two <|user|> ".repeat(60_000);
    for special in [SpecialTokens::default(), PARSED] {
        let mut expected = vec![1];
        expected.extend(tokenizer.encode_as(&text, special.parsed).unwrap());
        expected.push(2);
        assert_eq!(expected.contains(&5), special.parsed);
        let path = made.path().join("a.txt");
        fs::write(&path, &text).unwrap();
        let reading = Reading { special, ..Reading::new(tokenizer.clone()) };
        let file = TokenSource::from(prepare(&[path], &reading, made.path(), &mut |_, _| {}).unwrap());
        let mut tokens = vec![0; file.len()];
        file.window(0, &mut tokens).unwrap();
        assert!(tokens == expected, "{special:?}");
    }
}

/// Special tokens are text unless they are asked for; added tokens that are not special are tokens in any case.
#[test]
fn special_tokens_in_text_are_parsed_where_that_is_asked_for() {
    let folder = folder(&template(&[1], &[]), &json!({ "bos_token": "<s>", "eos_token": "</s>" }));
    let tokenizer = opened(folder.path());
    let text = "one <|user|>two<more></s>";
    assert_eq!(tokenizer.encode_as(text, true).unwrap(), [3, 5, 4, 7, 2]);
    assert_eq!(tokenizer.encode_as("one<more>", false).unwrap(), [3, 7]);
    let ordinary = tokenizer.encode(text).unwrap();
    assert!(![1, 2, 5, 6].iter().any(|special| ordinary.contains(special)), "{ordinary:?}");
    assert_eq!(Tokenizer::Gpt2.encode_as("Hello<|endoftext|> world", true).unwrap(), [15496, 50256, 995]);
    assert_eq!(Tokenizer::Gpt2.encode_as("Hello world", true).unwrap(), [15496, 995]);
    assert_eq!(Tokenizer::Bytes.encode_as("<s>", true).unwrap(), Tokenizer::Bytes.encode("<s>").unwrap());
}

/// A token that only the configuration calls special is one for a text that is parsed.
#[test]
fn tokens_that_the_configuration_calls_special_are_parsed() {
    let folder = folder(&Value::Null, &json!({ "bos_token": "one", "eos_token": "</s>" }));
    // Between letters, where no word begins.
    assert_eq!(opened(folder.path()).encode_as("twoonetwo", true).unwrap(), [4, 3, 4]);
    assert_eq!(opened(folder.path()).encode("twoonetwo").unwrap(), [0]);
}

/// The forms in which version 4 of the library writes special tokens of a model's own.
#[test]
fn tokens_of_maps_and_of_added_tokens_are_special() {
    let config = json!({
        "extra_special_tokens": { "image_token": "one" },
        "added_tokens_decoder": { "4": { "content": "two", "special": true }, "7": { "content": "<more>", "special": false } },
        "chat_template": "{{ image_token }}",
    });
    let made = folder(&Value::Null, &config);
    let tokenizer = opened(made.path());
    assert_eq!(tokenizer.encode_as("oneonetwotwo", true).unwrap(), [3, 3, 4, 4]);
    assert_eq!(tokenizer.parsed_special().unwrap(), [0, 1, 2, 3, 4, 5, 6]);
    assert_eq!(tokenizer.encode_chat(&[ChatMessage::user("two")]).unwrap(), [3]);
    let plain = folder(&Value::Null, &Value::Null);
    assert_eq!(opened(plain.path()).parsed_special().unwrap(), [0, 1, 2, 5, 6]);
    assert_eq!(Tokenizer::Gpt2.parsed_special().unwrap(), [50256]);
}

/// The files beside a tokenizer decide which tokens are parsed: they are part of a kept file's name.
#[test]
fn a_kept_file_is_not_used_with_other_special_tokens() {
    let made = folder(&Value::Null, &Value::Null);
    let path = made.path().join("a.txt");
    fs::write(&path, "oneone").unwrap();
    let config = json!({ "additional_special_tokens": ["one"] });
    let mut found = Vec::new();
    for config in [None, Some(config)] {
        if let Some(config) = config {
            fs::write(made.path().join("tokenizer_config.json"), config.to_string()).unwrap();
        }
        let reading = Reading { special: PARSED, ..Reading::new(opened(made.path())) };
        let file = prepare(std::slice::from_ref(&path), &reading, made.path(), &mut |_, _| {}).unwrap();
        let file = TokenSource::from(file);
        let mut tokens = vec![0; file.len()];
        file.window(0, &mut tokens).unwrap();
        found.push(tokens);
    }
    assert_eq!(found, [vec![0, 2], vec![3, 3, 2]]);
}

/// The template is read once, with the tokenizer.
#[test]
fn a_chat_template_is_read_once() {
    let made = folder(&Value::Null, &json!({ "bos_token": "<s>" }));
    let file = made.path().join("chat_template.jinja");
    fs::write(&file, "{{ bos_token }}one").unwrap();
    let tokenizer = opened(made.path());
    for template in ["two", "{% if %}"] {
        assert_eq!(tokenizer.encode_chat(&[ChatMessage::user("two")]).unwrap(), [1, 3]);
        fs::write(&file, template).unwrap();
    }
}

const CHAT: &str = "{{ bos_token }}{% for message in messages %}<|{{ message['role'] }}|> {{ message['content'] }}</s>\n\
                    {% endfor %}{% if add_generation_prompt %}<|answer|>{% endif %}";

#[test]
fn a_chat_has_the_tokens_of_its_template() {
    let names = json!({ "bos_token": "<s>", "eos_token": "</s>" });
    let chat = [ChatMessage::user("one two")];
    let expected = [1, 5, 3, 4, 2, 6];
    let with = |template: Value| {
        let mut config = names.clone();
        config["chat_template"] = template;
        config
    };
    let several = json!([{ "name": "tools", "template": "two" }, { "name": "default", "template": CHAT }]);
    for config in [with(json!(CHAT)), with(several), with(json!({ "default": CHAT, "tools": "two" }))] {
        let folder = folder(&template(&[1], &[]), &config);
        assert_eq!(opened(folder.path()).encode_chat(&chat).unwrap(), expected, "{config}");
    }
    // The file counts more, and messages are parsed, too.
    let made = folder(&template(&[1], &[]), &with(json!("two")));
    fs::write(made.path().join("chat_template.jinja"), CHAT).unwrap();
    let tokenizer = opened(made.path());
    assert_eq!(tokenizer.encode_chat(&chat).unwrap(), expected);
    assert_eq!(tokenizer.encode_chat(&[ChatMessage::user("one<s>")]).unwrap(), [1, 5, 3, 1, 2, 6]);
    for config in [names.clone(), with(json!([{ "name": "tools", "template": CHAT }]))] {
        let made = folder(&template(&[1], &[]), &config);
        let error = opened(made.path()).encode_chat(&chat).unwrap_err();
        let message = error.to_string();
        assert!(matches!(error, DataError::NoChatTemplate(_)), "{message}");
        assert!(
            ["tokenizer_config.json", "chat_template.jinja"].iter().all(|name| message.contains(name)),
            "{message}"
        );
    }
    let message = Tokenizer::Gpt2.encode_chat(&chat).unwrap_err().to_string();
    assert!(message.contains("`gpt2` has no chat template"), "{message}");
}
