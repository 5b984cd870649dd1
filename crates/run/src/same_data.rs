//! Comparison of the data of a resumed run with those that it began with: another range or order of the same files may train on
//! what was reserved for validation. The content of files decides, not their names and times.

use quadrille_checkpoint::Checkpoint;
use serde_json::Value;

use crate::DataComparison;
use crate::refusal::{Refusal, Setting};

/// Fields that decide the samples as a whole.
const WHOLE: [&str; 4] = ["kind", "documents", "vocabulary", "special_tokens"];
/// Fields that decide the samples of one source, besides the content of its files.
const OF_A_SOURCE: [&str; 5] = ["tokens", "first", "end", "vocabulary", "share"];

/// Compares the data of now, as [`crate::Source::about`] describes them, with those of the checkpoint's run.
///
/// # Errors
/// One that names the first difference.
pub(crate) fn check(checkpoint: &Checkpoint, now: &Value, comparison: DataComparison) -> Result<(), Refusal> {
    let then = &checkpoint.about().data;
    let difference = match comparison {
        DataComparison::Samples => difference(then, now),
        DataComparison::Files => ["sources", "validation"].into_iter().find_map(|list| files_of(then, now, list)),
        DataComparison::Nothing => None,
    };
    let Some(difference) = difference else { return Ok(()) };
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
            (Some(a), Some(b)) if a.len() == b.len() => a
                .iter()
                .zip(b)
                .enumerate()
                .find_map(|(at, (then, now))| source(&format!("source {} of {name}: ", at + 1), then, now)),
            (Some(a), Some(b)) => Some(format!("sources of {name}: {} then, {} now", a.len(), b.len())),
            (None, None) => fields("", &[key], then, now),
            (then, _) => {
                let [with, without] = if then.is_some() { ["then", "now"] } else { ["now", "then"] };
                Some(format!("{name}: of files {with}, and not {without}"))
            }
        })
    })
}

/// The first difference of the files of a list of sources, where both parts of the run recorded files.
fn files_of(then: &Value, now: &Value, list: &str) -> Option<String> {
    let sources = then[list].as_array()?.iter().zip(now[list].as_array()?);
    sources.into_iter().find_map(|(then, now)| {
        let contents = |source: &Value| -> Option<Vec<Value>> {
            Some(source["files"].as_array()?.iter().map(|file| file["content"].clone()).collect())
        };
        (contents(then)? != contents(now)?).then(|| other_file(then, now))
    })
}

/// The first difference of one source.
fn source(of: &str, then: &Value, now: &Value) -> Option<String> {
    let is_other = then.get("content").is_some_and(|content| *content != now["content"]);
    if is_other { Some(format!("{of}{}", other_file(then, now))) } else { fields(of, &OF_A_SOURCE, then, now) }
}

fn fields(of: &str, keys: &[&str], then: &Value, now: &Value) -> Option<String> {
    keys.iter().find_map(|key| {
        let before = then.get(key)?;
        let after = &now[key];
        (before != after).then(|| format!("{of}{key}: {before} then, {after} now"))
    })
}

/// The first file of a source whose content differs.
fn other_file(then: &Value, now: &Value) -> String {
    let files = |source: &Value| source["files"].as_array().cloned().unwrap_or_default();
    let before = files(then);
    let after = files(now);
    let path = |file: &Value| file["path"].as_str().unwrap_or_default().to_owned();
    let content = |file: &Value| file["content"].clone();
    if let Some((then, now)) = before.iter().zip(&after).find(|(then, now)| content(then) != content(now)) {
        let was = path(then);
        let is = path(now);
        let moved = if was == is { String::new() } else { format!(", read in place of {was},") };
        return format!("{is}{moved} has other content: {} bytes then, {} now", then["bytes"], now["bytes"]);
    }
    match (before.get(after.len()), after.get(before.len())) {
        (Some(missing), _) => format!("{} is missing", path(missing)),
        (_, Some(added)) => format!("{} was not read then", path(added)),
        _ => "the tokens of its files differ".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn contents_and_ranges_are_compared_and_the_cache_may_move() {
        let source = |path: &str, tokens: u64, content: &str| json!({ "path": path, "tokens": tokens, "first": 0, "end": 90, "content": content });
        let data = |sources: Vec<Value>, validation: Value| json!({ "kind": "files", "sources": sources, "validation": validation });
        let then = data(vec![source("cache/a.tokens", 100, "1")], Value::Null);
        let is = |now: Value, expected: Option<&str>| assert_eq!(difference(&then, &now).as_deref(), expected);
        is(then.clone(), None);
        is(data(vec![source("/other/b.tokens", 100, "1")], Value::Null), None);
        is(
            data(vec![source("cache/b.tokens", 120, "1")], Value::Null),
            Some("source 1 of training: tokens: 100 then, 120 now"),
        );
        is(
            data(vec![source("cache/a.tokens", 100, "2")], Value::Null),
            Some("source 1 of training: the tokens of its files differ"),
        );
        is(
            data(vec![source("cache/a.tokens", 100, "1")], json!([source("b", 1, "3")])),
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

    #[test]
    fn the_first_file_of_other_content_is_named() {
        let data = |files: &[(&str, u64, &str)], content: &str, end: u64| {
            let file = |(path, bytes, content): &(&str, u64, &str)| json!({ "path": path, "bytes": bytes, "content": content });
            let files: Vec<Value> = files.iter().map(file).collect();
            json!({ "kind": "files", "sources": [{ "path": content, "tokens": 9, "end": end, "content": content, "files": files }] })
        };
        let then = data(&[("a.txt", 4, "1"), ("b.txt", 5, "2")], "12", 9);
        let is = |now: Value, expected: &str| {
            assert_eq!(difference(&then, &now).unwrap(), format!("source 1 of training: {expected}"));
        };
        assert_eq!(difference(&then, &data(&[("moved/a", 4, "1"), ("b", 5, "2")], "12", 9)), None);
        is(data(&[("a.txt", 4, "1"), ("b.txt", 5, "3")], "13", 9), "b.txt has other content: 5 bytes then, 5 now");
        is(
            data(&[("c.txt", 6, "7"), ("b.txt", 5, "2")], "72", 9),
            "c.txt, read in place of a.txt, has other content: 4 bytes then, 6 now",
        );
        is(data(&[("a.txt", 4, "1")], "1", 9), "b.txt is missing");
        is(data(&[("a.txt", 4, "1"), ("b.txt", 5, "2"), ("c.txt", 6, "7")], "127", 9), "c.txt was not read then");
        is(data(&[("a.txt", 4, "1"), ("b.txt", 5, "2")], "21", 9), "the tokens of its files differ");
        is(data(&[("a.txt", 4, "1"), ("b.txt", 5, "2")], "12", 8), "end: 9 then, 8 now");
    }
}
