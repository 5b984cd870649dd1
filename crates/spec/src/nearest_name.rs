//! What somebody may have meant by a name that is not known.

/// Of the known names the one that differs least from a name; `None` where all differ in more than a third of it and in more
/// than one character, or in all of it.
fn nearest_name<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Nobody mistypes what is longer, which may be a file's content.
    let length = name.chars().count();
    if !(1..=LONGEST).contains(&length) {
        return None;
    }
    let distances = known.into_iter().map(|other| (distance(name, other), other));
    let (least, nearest) = distances.min_by_key(|(distance, _)| *distance)?;
    (least <= (length / 3).max(1) && least < length).then_some(nearest)
}

/// Characters of a name that may be mistyped.
const LONGEST: usize = 64;

/// ` (did you mean 'x'?)`, or nothing.
pub(crate) fn did_you_mean<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    nearest_name(name, known).map_or_else(String::new, |nearest| format!(" (did you mean '{nearest}'?)"))
}

/// The same of a message that says which name is not known, and then which are, all of them in backticks.
pub(crate) fn meant_in_message(message: &str) -> String {
    let mut names = message.split('`').skip(1).step_by(2);
    match names.next() {
        Some(name) if message.starts_with("unknown ") => did_you_mean(name, names),
        _ => String::new(),
    }
}

/// How many characters are to be put in, left out, replaced, or swapped with their neighbour, whatever their case.
fn distance(one: &str, other: &str) -> usize {
    let [one, other] = [one, other].map(|text| text.to_lowercase().chars().collect::<Vec<_>>());
    // Of the texts up to two characters before, one before, and up to this one.
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=other.len()).collect();
    for (row, character) in one.iter().enumerate() {
        let mut next = vec![row + 1];
        for (column, wanted) in other.iter().enumerate() {
            let replaced = last[column] + usize::from(character != wanted);
            let mut least = replaced.min(last[column + 1] + 1).min(next[column] + 1);
            let swapped = row > 0 && column > 0 && one[row - 1] == *wanted && other[column - 1] == *character;
            if swapped {
                least = least.min(before[column - 1] + 1);
            }
            next.push(least);
        }
        before = std::mem::replace(&mut last, next);
    }
    last[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_count_single_changes() {
        for (one, other, wanted) in [
            ("", "", 0),
            ("", "abc", 3),
            ("selene", "selene", 0),
            ("Selene", "selene", 0),
            ("sumit", "summit", 1),
            ("slelene", "selene", 1),
            ("selnee", "selene", 1),
            ("kitten", "sitting", 3),
            ("ba", "ab", 1),
        ] {
            assert_eq!((distance(one, other), distance(other, one)), (wanted, wanted), "{one} and {other}");
        }
    }

    #[test]
    fn only_what_is_near_is_meant() {
        let known = ["llama2-7b", "llama2-70b", "gpt2-124m", "x", "pipe"];
        let of = |name| nearest_name(name, known);
        assert_eq!(
            (of("lama2-7b"), of("GPT2-124M"), of("llama-2-70b")),
            (Some("llama2-7b"), Some("gpt2-124m"), Some("llama2-70b"))
        );
        assert_eq!((of("w"), of("X"), of("piep"), of("pp")), (None, Some("x"), Some("pipe"), None));
        assert_eq!((of("bert-large"), of(""), of(&"x".repeat(65))), (None, None, None));
        assert_eq!(nearest_name("x", []), None);
    }

    #[test]
    fn messages_that_list_names_are_read() {
        let message = "unknown field `latncy`, expected one of `name`, `latency`, `links`";
        assert_eq!(meant_in_message(message), " (did you mean 'latency'?)");
        assert_eq!(meant_in_message("missing field `latency`"), "");
        assert_eq!(meant_in_message("unknown field `zzzzzz`, expected `name`"), "");
    }
}
