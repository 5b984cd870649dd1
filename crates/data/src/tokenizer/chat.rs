//! Chats as text, by the chat template of a model.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::path::PathBuf;

use chrono::Local;
use minijinja::value::{Kwargs, Rest, ValueKind, from_args};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, Output, State, Value, context, escape_formatter};
use minijinja_contrib::pycompat::unknown_method_callback;
use quadrille_panics as panics;
use serde::Serialize;

use super::python_json::{Style, dumps};
use super::python_repr::printed;
use super::settings::TokenizerSettings;
use crate::DataError;

/// Steps of a template that are done at most: a loop without end is an error. A chat has two messages at most, for which the
/// longest published templates take some thousands. The number also bounds how deep lists are nested, which are freed
/// recursively. The library counts steps, not bytes: a text that is doubled in a loop is bounded by no number of steps that
/// leaves room for real templates, only texts that are printed are ([`MOST_BYTES`]).
const FUEL: u64 = 50_000;
/// Bytes that a template prints at most.
const MOST_BYTES: usize = 1 << 24;
/// Spaces of a level of JSON at most.
const MOST_INDENT: usize = 64;
/// Levels of a value that is written as JSON at most.
const MOST_LEVELS: usize = 64;
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
    /// The template in the files beside a tokenizer.
    ///
    /// # Errors
    /// [`DataError::NoChatTemplate`]; those of files.
    pub fn of(settings: &TokenizerSettings) -> Result<Self, DataError> {
        let (path, source) = settings.chat_template()?;
        let owned = |(role, text): (&str, &str)| (role.to_owned(), text.to_owned());
        Ok(Self { path, source, tokens: settings.roles().into_iter().map(owned).collect() })
    }

    /// Text of the chat, with the beginning of the answer.
    ///
    /// # Errors
    /// [`DataError::ChatTemplate`]: a template that is no Jinja, fails, prints more than [`MOST_BYTES`], or refuses the chat.
    pub fn render(&self, messages: &[ChatMessage]) -> Result<String, DataError> {
        let failed = |reason| DataError::ChatTemplate { path: self.path.clone(), reason };
        let mut printed = Printed::default();
        let rendered = panics::catch(|| self.render_to(messages, &mut printed));
        let rendered =
            rendered.map_err(|panic| failed(format!("the library that reads templates gives up {panic}")))?;
        if printed.is_full {
            return Err(failed(format!("it prints more than {MOST_BYTES} bytes")));
        }
        rendered.map_err(|error| failed(error.to_string()))?;
        String::from_utf8(printed.bytes).map_err(|error| failed(error.to_string()))
    }

    fn render_to(&self, messages: &[ChatMessage], printed: &mut Printed) -> Result<(), Error> {
        let mut environment = environment();
        // Jinja reads every end of a line as \n.
        let source = self.source.replace("\r\n", "\n").replace('\r', "\n");
        environment.add_template_owned(NAME, without_generation_tags(&source))?;
        let chat = context! {
            messages => messages,
            tools => (),
            documents => (),
            add_generation_prompt => true,
            ..Value::from_serialize(&self.tokens)
        };
        environment.get_template(NAME)?.render_captured_to(chat, printed).map(drop)
    }
}

/// Text that a template prints, at most [`MOST_BYTES`].
#[derive(Default)]
struct Printed {
    bytes: Vec<u8>,
    is_full: bool,
}

impl io::Write for Printed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + bytes.len() > MOST_BYTES {
            self.is_full = true;
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.bytes.extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
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

/// Prints what Python prints.
fn format_as_python(out: &mut Output, state: &State, value: &Value) -> Result<(), Error> {
    if value.is_undefined() || value.as_str().is_some() {
        return escape_formatter(out, state, value);
    }
    if is_deeper(value, MOST_LEVELS) {
        let rule = format!("a value with more than {MOST_LEVELS} levels is printed");
        return Err(Error::new(ErrorKind::InvalidOperation, rule));
    }
    Ok(out.write_str(&printed(value))?)
}

/// JSON as Python's `json.dumps` writes it, with the arguments that the library passes on.
fn to_json(value: &Value, arguments: Rest<Value>) -> Result<String, Error> {
    type Arguments = (Option<bool>, Option<Value>, Option<Vec<String>>, Option<bool>, Kwargs);
    let (ascii, indent, separators, sorted, options): Arguments = from_args(&arguments)?;
    let ascii = ascii.map_or_else(|| options.get("ensure_ascii"), |ascii| Ok(Some(ascii)))?;
    let indent = indent.map_or_else(|| options.get("indent"), |indent| Ok(Some(indent)))?;
    let separators = separators.map_or_else(|| options.get("separators"), |separators| Ok(Some(separators)))?;
    let sorted = sorted.map_or_else(|| options.get("sort_keys"), |sorted| Ok(Some(sorted)))?;
    options.assert_all_used()?;
    let style = Style {
        ascii: ascii.unwrap_or(false),
        indent: indent.map(|indent| indentation(&indent)).transpose()?.flatten(),
        separators,
        sorted: sorted.unwrap_or(false),
    };
    if is_deeper(value, MOST_LEVELS) {
        let rule = format!("tojson: a value has more than {MOST_LEVELS} levels");
        return Err(Error::new(ErrorKind::BadSerialization, rule));
    }
    let value = serde_json::to_value(value)
        .map_err(|error| Error::new(ErrorKind::BadSerialization, format!("it is no JSON: {error}")))?;
    let long = || Error::new(ErrorKind::BadSerialization, format!("tojson: more than {MOST_BYTES} bytes"));
    dumps(&value, &style, MOST_BYTES).ok_or_else(long)
}

/// Text of one level of indentation: a number of spaces, or the text itself.
fn indentation(indent: &Value) -> Result<Option<String>, Error> {
    if indent.is_none() {
        return Ok(None);
    }
    let refused = || {
        let rule = format!("tojson: indent {indent}: it is a text or a number of spaces, {MOST_INDENT} at most");
        Error::new(ErrorKind::InvalidOperation, rule)
    };
    let text = match indent.as_str() {
        Some(text) => text.to_owned(),
        None => {
            let spaces = indent.as_usize().filter(|spaces| *spaces <= MOST_INDENT).ok_or_else(refused)?;
            " ".repeat(spaces)
        }
    };
    if text.len() <= MOST_INDENT { Ok(Some(text)) } else { Err(refused()) }
}

/// True if lists and maps are nested deeper than `levels`.
fn is_deeper(value: &Value, levels: usize) -> bool {
    let is_map = value.kind() == ValueKind::Map;
    if !is_map && !matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable) {
        return false;
    }
    let Ok(mut items) = value.try_iter() else { return false };
    let item = |item: Value| if is_map { value.get_item(&item).unwrap_or_default() } else { item };
    levels == 0 || items.any(|one| is_deeper(&item(one), levels - 1))
}

/// The template with conditions that always hold in place of the library's tags `generation` and `endgeneration`, which mark
/// what is the model's and print nothing.
fn without_generation_tags(source: &str) -> String {
    let mut text = String::with_capacity(source.len());
    let mut rest = source;
    while let Some((start, end)) = next_tag(rest) {
        let tag = &rest[start..end];
        let name = tag.trim_matches(|c: char| c.is_whitespace() || "{%-+}".contains(c));
        text += &rest[..start];
        text += &match name {
            "generation" if tag.starts_with("{%") => tag.replacen("generation", "if true", 1),
            "endgeneration" if tag.starts_with("{%") => tag.replacen("endgeneration", "endif", 1),
            _ => tag.to_owned(),
        };
        rest = &rest[end..];
    }
    text + rest
}

/// First and last place of the next tag, expression or comment; `None` without one that ends.
fn next_tag(source: &str) -> Option<(usize, usize)> {
    let start = ["{%", "{{", "{#"].into_iter().filter_map(|open| source.find(open)).min()?;
    let inner = &source[start + 2..];
    let close = match source.as_bytes()[start + 1] {
        b'#' => return Some((start, start + 2 + inner.find("#}")? + 2)),
        b'%' => "%}",
        _ => "}}",
    };
    let mut quote = None;
    let mut braces = 0;
    let mut characters = inner.char_indices();
    while let Some((place, character)) = characters.next() {
        match (quote, character) {
            (Some(_), '\\') => drop(characters.next()),
            (Some(open), _) if open == character => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(character),
            (None, '{') => braces += 1,
            (None, '}') if braces > 0 => braces -= 1,
            (None, _) if inner[place..].starts_with(close) => return Some((start, start + 2 + place + 2)),
            (None, _) => {}
        }
    }
    None
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
            ("{{ messages }} {{ 1e16 }}", "[{'role': 'user', 'content': ' a<b '}] 1e+16".to_owned()),
            ("{{ messages | tojson }}", r#"[{"role": "user", "content": " a<b "}]"#.to_owned()),
            (
                "{{ {'b': [1, none], 'a': 'é'} | tojson(sort_keys=true, ensure_ascii=true) }}",
                r#"{"a": "\u00e9", "b": [1, null]}"#.to_owned(),
            ),
            ("{{ {'b': [1], 'c': []} | tojson(indent=2) }}", "{\n  \"b\": [\n    1\n  ],\n  \"c\": []\n}".to_owned()),
            ("a\n  {% if true %}\nb\n  {% endif %}\nc\n", "a\nb\nc".to_owned()),
            ("{%- generation %}x{% endgeneration -%} y", "xy".to_owned()),
            ("a\r\n{{ 'b' }}\rc\r\n", "a\nb\nc".to_owned()),
            ("{{ '{%' }}{% generation %}x{% endgeneration %}", "{%x".to_owned()),
            ("{# it's {% #}{% generation %}{{ {'a': {'b': '%}'}}['a']['b'] }}{% endgeneration %}", "%}".to_owned()),
            ("{% if '%}' == \"%}\" %}{% generation %}x{% endgeneration %}{% endif %}", "x".to_owned()),
            ("{{ 'generation' }}", "generation".to_owned()),
            ("{{ {'c': [1]} | tojson(indent='\t') }}", "{\n\t\"c\": [\n\t\t1\n\t]\n}".to_owned()),
            ("{{ {'b': 1, 'a': 'é'} | tojson(true, none, [',', ':'], true) }}", r#"{"a":"\u00e9","b":1}"#.to_owned()),
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
            ("{{ [1] | tojson(indent=9223372036854775807) }}", "indent 9223372036854775807"),
            ("{{ [1] | tojson(indent=65) }}", "64 at most"),
            ("{{ [1] | tojson(indent='x' * 65) }}", "64 at most"),
            ("{% for a in range(20) %}{{ 'x' * 1000000 }}{% endfor %}", "more than 16777216 bytes"),
            ("{{ range(20) | list | tojson(separators=['x' * 1000000, ':']) }}", "more than 16777216 bytes"),
            (
                "{% set ns = namespace(x=1) %}{% for a in range(65) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x | tojson }}",
                "64 levels",
            ),
        ] {
            let message = rendered(source, &user("x")).unwrap_err().to_string();
            assert!(message.contains(word) && message.contains("chat_template.jinja"), "{source}: {message}");
        }
    }
}
