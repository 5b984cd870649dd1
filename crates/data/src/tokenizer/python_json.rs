//! JSON as Python's `json.dumps` writes it.

use serde_json::Value;

/// Keywords of `json.dumps`.
pub(super) struct Style {
    /// True if characters beyond ASCII are escaped.
    pub ascii: bool,
    /// Indentation of a level; everything is on one line without it.
    pub indent: Option<String>,
    /// Text between items, and between a key and its value.
    pub separators: Option<Vec<String>>,
    /// True if keys are sorted.
    pub sorted: bool,
}

/// The text of a value; `None` if it has more than `most` bytes.
pub(super) fn dumps(value: &Value, style: &Style, most: usize) -> Option<String> {
    let usual = [if style.indent.is_some() { "," } else { ", " }, ": "].map(str::to_owned);
    let [item, key] = match style.separators.as_deref() {
        Some([item, key]) => [item.clone(), key.clone()],
        _ => usual,
    };
    let mut text = String::new();
    Writer { style, item: &item, key: &key, most }.write(value, 0, &mut text);
    (text.len() <= most).then_some(text)
}

struct Writer<'a> {
    style: &'a Style,
    item: &'a str,
    key: &'a str,
    /// Bytes after which no further item is written.
    most: usize,
}

impl Writer<'_> {
    fn write(&self, value: &Value, level: usize, text: &mut String) {
        match value {
            Value::Array(items) => self.list('[', ']', items.iter().map(|item| (None, item)), level, text),
            Value::Object(fields) => {
                let mut fields: Vec<(Option<&str>, &Value)> =
                    fields.iter().map(|(name, value)| (Some(name.as_str()), value)).collect();
                if self.style.sorted {
                    fields.sort_by_key(|(name, _)| *name);
                }
                self.list('{', '}', fields.into_iter(), level, text);
            }
            Value::String(string) => self.string(string, text),
            other => *text += &other.to_string(),
        }
    }

    fn list<'v>(
        &self,
        open: char,
        close: char,
        items: impl ExactSizeIterator<Item = (Option<&'v str>, &'v Value)>,
        level: usize,
        text: &mut String,
    ) {
        let line = |level: usize, text: &mut String| {
            if let Some(indent) = &self.style.indent {
                text.push('\n');
                *text += &indent.repeat(level);
            }
        };
        text.push(open);
        let is_empty = items.len() == 0;
        for (number, (name, value)) in items.enumerate() {
            if text.len() > self.most {
                return;
            }
            if number > 0 {
                *text += self.item;
            }
            line(level + 1, text);
            if let Some(name) = name {
                self.string(name, text);
                *text += self.key;
            }
            self.write(value, level + 1, text);
        }
        if !is_empty {
            line(level, text);
        }
        text.push(close);
    }

    fn string(&self, string: &str, text: &mut String) {
        let quoted = Value::from(string).to_string();
        if !self.style.ascii {
            *text += &quoted;
            return;
        }
        let mut units = [0; 2];
        for character in quoted.chars() {
            if character.is_ascii() {
                text.push(character);
            } else {
                character.encode_utf16(&mut units).iter().for_each(|unit| *text += &format!("\\u{unit:04x}"));
            }
        }
    }
}
