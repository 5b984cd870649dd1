//! Chats as text, by the chat template of a model.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use chrono::Local;
use minijinja::value::{Kwargs, ValueKind};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, Output, State, Value, context, escape_formatter};
use minijinja_contrib::pycompat::unknown_method_callback;
use serde::Serialize;

use super::python_json::{Style, dumps};
use super::settings::TokenizerSettings;
use crate::DataError;

/// Steps of a template that are done at most: a loop without end is an error.
const FUEL: u64 = 10_000_000;
const NAME: &str = "chat_template";

/// A message of a chat.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ChatMessage {
    /// Role of the author, as `user`.
    pub role: String,
    /// Text.
    pub content: String,
}

impl ChatMessage {
    /// A message of the role `system`.
    pub fn system(content: &str) -> Self {
        Self { role: "system".to_owned(), content: content.to_owned() }
    }

    /// A message of the role `user`.
    pub fn user(content: &str) -> Self {
        Self { role: "user".to_owned(), content: content.to_owned() }
    }
}

/// A chat template in the language Jinja, with what the transformers library defines for it.
pub(super) struct ChatTemplate {
    path: PathBuf,
    source: String,
    /// Texts of the special tokens, as `bos_token`.
    tokens: BTreeMap<String, String>,
}

impl ChatTemplate {
    /// Reads the template beside the tokenizer at `path`.
    ///
    /// # Errors
    /// [`DataError::NoChatTemplate`]; those of files.
    pub fn beside(path: &Path) -> Result<Self, DataError> {
        let settings = TokenizerSettings::beside(path)?;
        let (path, source) = settings.chat_template()?;
        let owned = |(role, text): (&str, &str)| (role.to_owned(), text.to_owned());
        Ok(Self { path, source, tokens: settings.roles().into_iter().map(owned).collect() })
    }

    /// Text of the chat, with the beginning of the answer.
    ///
    /// # Errors
    /// [`DataError::ChatTemplate`]: a template that is no Jinja, fails, or refuses the chat.
    pub fn render(&self, messages: &[ChatMessage]) -> Result<String, DataError> {
        let render = || -> Result<String, Error> {
            let mut environment = environment();
            let source = without_generation_tags(&self.source);
            environment.add_template_owned(NAME, source)?;
            let chat = context! {
                messages => messages,
                tools => (),
                documents => (),
                add_generation_prompt => true,
                ..Value::from_serialize(&self.tokens)
            };
            environment.get_template(NAME)?.render(chat)
        };
        render().map_err(|error| DataError::ChatTemplate { path: self.path.clone(), reason: error.to_string() })
    }
}

/// The environment of the library's templates.
fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_trim_blocks(true);
    environment.set_lstrip_blocks(true);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_formatter(format_as_python);
    environment.set_unknown_method_callback(unknown_method_callback);
    environment.set_fuel(Some(FUEL));
    environment.add_filter("tojson", to_json);
    environment.add_function("raise_exception", |message: String| -> Result<Value, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, message))
    });
    environment.add_function("strftime_now", |format: String| -> Result<String, Error> {
        let mut text = String::new();
        let unknown = |_| Error::new(ErrorKind::InvalidOperation, format!("{format:?} is no format of a time"));
        write!(text, "{}", Local::now().format(&format)).map_err(unknown)?;
        Ok(text)
    });
    environment
}

/// Prints what Python prints: `True`, `False` and `None`.
fn format_as_python(out: &mut Output, state: &State, value: &Value) -> Result<(), Error> {
    match value.kind() {
        ValueKind::Bool => Ok(out.write_str(if value.is_true() { "True" } else { "False" })?),
        ValueKind::None => Ok(out.write_str("None")?),
        _ => escape_formatter(out, state, value),
    }
}

/// JSON as Python's `json.dumps` writes it, with the keywords that the library passes on.
fn to_json(value: &Value, options: Kwargs) -> Result<String, Error> {
    let style = Style {
        ascii: options.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false),
        indent: options.get("indent")?,
        separators: options.get::<Option<Vec<String>>>("separators")?,
        sorted: options.get::<Option<bool>>("sort_keys")?.unwrap_or(false),
    };
    options.assert_all_used()?;
    let value = serde_json::to_value(value)
        .map_err(|error| Error::new(ErrorKind::BadSerialization, format!("it is no JSON: {error}")))?;
    Ok(dumps(&value, &style))
}

/// The template with conditions that always hold in place of the library's tags `generation` and `endgeneration`, which mark
/// what is the model's and print nothing.
fn without_generation_tags(source: &str) -> String {
    let (mut text, mut rest) = (String::with_capacity(source.len()), source);
    while let Some(start) = rest.find("{%") {
        let (before, tag) = rest.split_at(start);
        let Some(end) = tag.find("%}") else { break };
        let inner = &tag[2..end];
        let name = inner.trim_matches(|c: char| c.is_whitespace() || c == '-' || c == '+');
        text += before;
        text += "{%";
        text += &match name {
            "generation" => inner.replacen("generation", "if true", 1),
            "endgeneration" => inner.replacen("endgeneration", "endif", 1),
            _ => inner.to_owned(),
        };
        text += "%}";
        rest = &tag[end + 2..];
    }
    text + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(source: &str, messages: &[ChatMessage]) -> Result<String, DataError> {
        let tokens = BTreeMap::from([("bos_token".to_owned(), "<s>".to_owned())]);
        ChatTemplate { path: "chat_template.jinja".into(), source: source.to_owned(), tokens }.render(messages)
    }

    fn user(text: &str) -> Vec<ChatMessage> {
        vec![ChatMessage::user(text)]
    }

    /// Expected texts: Jinja2 3.1.6 with the environment of transformers 5.24.0.
    #[test]
    fn templates_print_what_python_prints() {
        for (source, expected) in [
            ("{{ bos_token }}{{ messages[0]['content'] }}{{ eos_token }}", "<s> a<b ".to_owned()),
            ("{{ messages[0].content.strip() ~ add_generation_prompt }} {{ tools }}", "a<bTrue None".to_owned()),
            ("{{ messages | tojson }}", r#"[{"role": "user", "content": " a<b "}]"#.to_owned()),
            (
                "{{ {'b': [1, none], 'a': 'é'} | tojson(sort_keys=true, ensure_ascii=true) }}",
                r#"{"a": "\u00e9", "b": [1, null]}"#.to_owned(),
            ),
            ("{{ {'b': [1], 'c': []} | tojson(indent=2) }}", "{\n  \"b\": [\n    1\n  ],\n  \"c\": []\n}".to_owned()),
            ("a\n  {% if true %}\nb\n  {% endif %}\nc\n", "a\nb\nc".to_owned()),
            ("{%- generation %}x{% endgeneration -%} y", "xy".to_owned()),
            (
                "{% for m in messages %}{% if loop.first %}{% continue %}{% endif %}{% endfor %}{{ add_generation_prompt }}",
                "True".to_owned(),
            ),
            (
                "{% set ns = namespace(n=0) %}{% for m in messages[::-1] %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}",
                "1".to_owned(),
            ),
            ("{{ 'x</think>y'.split('</think>')[-1] }}{{ 'ab'.startswith('a') }}", "yTrue".to_owned()),
        ] {
            assert_eq!(rendered(source, &user(" a<b ")).unwrap(), expected, "{source}");
        }
        let date = rendered("{{ strftime_now('%Y-%m-%d') }}", &user("x")).unwrap();
        assert!(date.len() == 10 && date.starts_with("20"), "{date}");
    }

    /// Texts of transformers: `tests/data/make_chat_templates.py`.
    #[test]
    fn idioms_of_published_templates_print_what_transformers_prints() {
        let file: serde_json::Value =
            serde_json::from_str(include_str!("../../tests/data/chat_templates.json")).unwrap();
        let tokens: BTreeMap<String, String> = serde_json::from_value(file["tokens"].clone()).unwrap();
        let cases = file["cases"].as_array().unwrap();
        assert_eq!(cases.len(), 12);
        for case in cases {
            let message = |message: &serde_json::Value| ChatMessage {
                role: message["role"].as_str().unwrap().to_owned(),
                content: message["content"].as_str().unwrap().to_owned(),
            };
            let messages: Vec<ChatMessage> = case["messages"].as_array().unwrap().iter().map(message).collect();
            let source = case["template"].as_str().unwrap().to_owned();
            let found = ChatTemplate { path: "t".into(), source, tokens: tokens.clone() }.render(&messages);
            match case["text"].as_str() {
                Some(text) => assert_eq!(found.unwrap(), text, "{}", case["name"]),
                None => assert!(found.unwrap_err().to_string().contains(case["error"].as_str().unwrap())),
            }
        }
    }

    #[test]
    fn templates_that_fail_are_named() {
        for (source, word) in [
            ("{% if %}", "syntax error"),
            ("{{ raise_exception('Only user roles') }}", "Only user roles"),
            ("{{ strftime_now('%!') }}", "no format of a time"),
            ("{% for a in range(9999) %}{% for b in range(9999) %}x{% endfor %}{% endfor %}", "fuel"),
            ("{{ messages[3].content }}", "undefined"),
        ] {
            let message = rendered(source, &user("x")).unwrap_err().to_string();
            assert!(message.contains(word) && message.contains("chat_template.jinja"), "{source}: {message}");
        }
    }
}
