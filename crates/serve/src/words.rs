//! The page's words: what it calls the fields of a question, and messages of libraries in these words.

use quadrille_spec::keys;
use serde_json::{Map, Value};

/// A field of the question: its name in requests, what the page calls it, and the keys that messages have for it.
type Field = (&'static str, &'static str, &'static [&'static str]);

const FIELDS: [Field; 16] = [
    ("model", "Model", &[]),
    ("cluster", "Cluster", &[]),
    ("gpus", "Devices", &["search.devices", "run.ranks", "search.nodes"]),
    ("global_batch", "Sequences a step", &["layout.global_batch"]),
    ("seq_len", "Tokens a sequence", &["layout.seq_len"]),
    ("framework", "Framework", &["search.framework"]),
    ("products", "Products in", &["search.products"]),
    ("max.x", "TP at most", &["space.max.x"]),
    ("max.pipe", "PP at most", &["space.max.pipe"]),
    ("memory_reserve", "Memory kept free", &["search.memory_reserve"]),
    ("variants", "Variants", &[]),
    ("tolerance", "Slower if simpler", &[]),
    ("tokens", "Tokens to train on", &["search.tokens"]),
    ("days", "Done within", &["search.days"]),
    ("price_per_hour", "Price of a device-hour", &["search.price_per_hour"]),
    ("flops_convention", "FLOPs counted as", &["search.flops_convention"]),
];

/// The positions of a model: the page has no field for them, and the text of a configuration says them.
const POSITIONS: (&str, &str) = ("model.seq_len", "a pasted config.json");

/// What begins a key of a library's message.
const PARTS: [&str; 5] = ["search", "layout", "run", "space", "model"];

/// What the page calls fields, by their names.
pub(crate) fn titles() -> Value {
    let titles = FIELDS.iter().map(|(name, title, _)| ((*name).to_owned(), Value::from(*title)));
    Value::Object(titles.collect::<Map<_, _>>())
}

/// A message with the titles of fields, or words, in place of the keys by which it names them.
pub(crate) fn in_words(message: &str) -> String {
    keys::renamed(&with_keys(&titled(message)), |key| {
        let of_field = FIELDS.iter().find(|(.., keys)| keys.contains(&key));
        let title = of_field.map(|(_, title, _)| format!("“{title}”"));
        let positions = || (key == POSITIONS.0).then(|| POSITIONS.1.to_owned());
        title.or_else(positions).or_else(|| {
            let (_, name) = key.split_once('.').filter(|(part, _)| PARTS.contains(part))?;
            Some(name.replace(['_', '.'], " "))
        })
    })
}

/// A message with the title of the field that it begins with, if it begins with one and its value.
fn titled(message: &str) -> String {
    let title = FIELDS.iter().find_map(|(name, title, _)| {
        let rest = message.strip_prefix(name).filter(|rest| rest.starts_with(" = "))?;
        Some(format!("“{title}”{rest}"))
    });
    title.unwrap_or_else(|| message.to_owned())
}

/// The same with keys where a message names a field of a layout at its beginning, and a bound by key and axis.
fn with_keys(message: &str) -> String {
    let begun = [("global-batch", "`layout.global_batch`"), ("seq-len", "`layout.seq_len`")];
    let begun = begun.into_iter().find_map(|(name, key)| Some(key.to_owned() + message.strip_prefix(name)?));
    let bounds = [("`space.max` x", "`space.max.x`"), ("`space.max` pipe", "`space.max.pipe`")];
    bounds.into_iter().fold(begun.unwrap_or(message.to_owned()), |message, (said, key)| message.replace(said, key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_called_as_the_page_calls_them() {
        for (said, shown) in [
            ("`search.devices` 0: there is one", "“Devices” 0: there is one"),
            ("seq-len = 4096: it must be 1 to 1024", "“Tokens a sequence” = 4096: it must be 1 to 1024"),
            ("`space.max` x = three; give `space.max` pipe=4", "“TP at most” = three; give “PP at most”=4"),
            ("use `layout.recompute_all.of` full, or `x`", "use recompute all of full, or `x`"),
            ("positions (`model.seq_len` gives it others)", "positions (a pasted config.json gives it others)"),
            ("a ` alone, and `files.own`", "a ` alone, and `files.own`"),
        ] {
            assert_eq!(in_words(said), shown);
        }
    }
}
