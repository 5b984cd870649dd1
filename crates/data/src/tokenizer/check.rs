//! What must be right in a `tokenizer.json` before the library reads it, which does not look at it.

use serde_json::Value;

/// Checks that the file is JSON, and that the two parts of every merge of byte pairs make a token of the vocabulary: the
/// library takes as many bytes from the second part as the prefix of continued words has, also where there are fewer, or
/// within a character. What else is wrong with a file is left to the library to say.
///
/// # Errors
/// What is wrong, and where.
pub(super) fn check(bytes: &[u8]) -> Result<(), String> {
    let file: Value = serde_json::from_slice(bytes).map_err(|error| format!("it is not JSON: {error}"))?;
    let model = &file["model"];
    let (Some(vocabulary), Some(merges)) = (model["vocab"].as_object(), model["merges"].as_array()) else {
        return Ok(());
    };
    let prefix = model["continuing_subword_prefix"].as_str().unwrap_or_default();
    for (at, merge) in merges.iter().enumerate() {
        let parts = match merge {
            Value::Array(parts) => match &parts[..] {
                [first, second] => first.as_str().zip(second.as_str()),
                _ => None,
            },
            // As older files have them.
            Value::String(text) => text.split_once(' '),
            _ => None,
        };
        let Some((first, second)) = parts.filter(|(a, b)| vocabulary.contains_key(*a) && vocabulary.contains_key(*b))
        else {
            continue;
        };
        let wrong = |rule: String| Err(format!("merge {at}, of {first:?} and {second:?}, {rule}"));
        let Some(rest) = second.get(prefix.len()..) else {
            return wrong(format!("does not fit its continuing_subword_prefix {prefix:?}"));
        };
        let merged = [first, rest].concat();
        if !vocabulary.contains_key(&merged) {
            return wrong(format!("makes {merged:?}, which is not in its vocabulary"));
        }
    }
    Ok(())
}
