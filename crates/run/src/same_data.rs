//! Whether a run that goes on would read the data that it has begun with: another range or order of the same files may
//! train on what was kept apart for validation.

use std::path::Path;

use quadrille_checkpoint::Checkpoint;
use serde_json::Value;

use crate::refusal::{Refusal, Setting};

/// What decides on the samples as a whole.
const WHOLE: [&str; 3] = ["kind", "documents", "vocabulary"];
/// What decides on the samples of one source. The path is compared last: that of text is a file in the cache, named by a
/// hash of the texts' paths, sizes and times of change.
const OF_A_SOURCE: [&str; 6] = ["tokens", "first", "end", "vocabulary", "share", "path"];

/// Holds what is read now, as [`crate::Source::about`] says, against what the checkpoint's run has read.
///
/// # Errors
/// One that names the first difference.
pub(crate) fn check(checkpoint: &Checkpoint, now: &Value) -> Result<(), Refusal> {
    let Some(difference) = difference(&checkpoint.about().data, now) else { return Ok(()) };
    let refusal = Refusal::new(format!(
        "{} was written by a run on other data than there is now: {difference}; bring the data back as it was, or give ",
        checkpoint.path().display()
    ));
    let refusal = refusal.name(Setting::Data).text(" or ").name(Setting::HeldOutShare);
    Err(refusal.text(" again to go on with what there is"))
}

/// The first difference, for people. What a checkpoint does not say is not compared.
fn difference(then: &Value, now: &Value) -> Option<String> {
    if !then.is_object() {
        return None;
    }
    fields("", &WHOLE, then, now).or_else(|| {
        let lists = [("sources", "training"), ("validation", "validation")];
        lists.into_iter().find_map(|(key, name)| match (then[key].as_array(), now[key].as_array()) {
            (Some(a), Some(b)) if a.len() == b.len() => a.iter().zip(b).enumerate().find_map(|(at, (then, now))| {
                fields(&format!("source {} of {name}: ", at + 1), &OF_A_SOURCE, then, now)
            }),
            (Some(a), Some(b)) => Some(format!("sources of {name}: {} then, {} now", a.len(), b.len())),
            (None, None) => fields("", &[key], then, now),
            (then, _) => {
                let [with, without] = if then.is_some() { ["then", "now"] } else { ["now", "then"] };
                Some(format!("{name}: of files {with}, and not {without}"))
            }
        })
    })
}

fn fields(of: &str, keys: &[&str], then: &Value, now: &Value) -> Option<String> {
    keys.iter().find_map(|key| {
        let (before, after) = (then.get(key)?, &now[key]);
        // The same file may have been named from another folder, or lie in another cache.
        let same = match (*key, before.as_str(), after.as_str()) {
            ("path", Some(before), Some(after)) => Path::new(before).file_name() == Path::new(after).file_name(),
            _ => before == after,
        };
        let changed = if *key == "path" { " (another file, or a text that was changed)" } else { "" };
        (!same).then(|| format!("{of}{key}: {before} then, {after} now{changed}"))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_first_difference_is_named_and_the_cache_may_move() {
        let source =
            |path: &str, tokens: u64, end: u64| json!({ "path": path, "tokens": tokens, "first": 0, "end": end });
        let data = |sources: Vec<Value>, validation: Value| json!({ "kind": "files", "sources": sources, "validation": validation });
        let then = data(vec![source("cache/a.tokens", 100, 90)], Value::Null);
        let is = |now: Value, expected: Option<&str>| assert_eq!(difference(&then, &now).as_deref(), expected);
        is(then.clone(), None);
        is(data(vec![source("/other/a.tokens", 100, 90)], Value::Null), None);
        is(
            data(vec![source("cache/b.tokens", 120, 90)], Value::Null),
            Some("source 1 of training: tokens: 100 then, 120 now"),
        );
        is(
            data(vec![source("cache/b.tokens", 100, 90)], Value::Null),
            Some(
                "source 1 of training: path: \"cache/a.tokens\" then, \"cache/b.tokens\" now (another file, or a text that \
                 was changed)",
            ),
        );
        is(
            data(vec![source("cache/a.tokens", 100, 90)], json!([source("b", 1, 1)])),
            Some("validation: of files now, and not then"),
        );
        is(data(Vec::new(), Value::Null), Some("sources of training: 1 then, 0 now"));
        is(json!({ "kind": "demo" }), Some("kind: \"files\" then, \"demo\" now"));
        assert_eq!(
            difference(&json!({ "validation": 0.1 }), &json!({ "validation": 0.2 })).unwrap(),
            "validation: 0.1 then, 0.2 now"
        );
        assert_eq!(difference(&Value::Null, &then), None);
    }
}
