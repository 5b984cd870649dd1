//! Mutants in the text of a source file.

use std::ops::Range;

use super::Mutant;

/// The module of each crate that has mutants.
pub(super) const MODULE: &str = "//! Which mutant runs.

use std::sync::OnceLock;

/// Whether the mutant of this number runs.
#[inline]
pub(crate) fn is(number: u32) -> bool {
    static RUNNING: OnceLock<u32> = OnceLock::new();
    let running = || std::env::var(\"VARIABLE\").map_or(0, |text| text.parse().expect(\"a number of a mutant\"));
    *RUNNING.get_or_init(running) == number
}
";

/// `text` with each of the mutants beside what it replaces. Takes their numbers as well.
pub(super) fn with_mutants(text: &str, mutants: &[(usize, &Mutant)]) -> Result<String, String> {
    let mut places = Vec::new();
    for (number, mutant) in mutants {
        let place = place(text, &mutant.original).map_err(|error| format!("\"{}\": {error}", mutant.name))?;
        places.push((place, *number, *mutant));
    }
    places.sort_by_key(|(place, ..)| place.start);
    let mut all = String::new();
    let mut done = 0;
    for (place, number, mutant) in places {
        if place.start < done {
            return Err(format!("\"{}\": overlaps with another mutant", mutant.name));
        }
        all.push_str(&text[done..place.start]);
        all.push_str(&either(number, &mutant.mutated, &text[place.clone()]));
        done = place.end;
    }
    all.push_str(&text[done..]);
    Ok(all)
}

/// Where the part to be replaced is.
fn place(text: &str, original: &str) -> Result<Range<usize>, String> {
    let whole = original.replace(['«', '»'], "");
    let mut places = text.match_indices(&whole);
    let (Some((start, _)), None) = (places.next(), places.next()) else {
        return Err(format!("its original is there {} times, not once: {whole}", text.matches(&whole).count()));
    };
    match original.split_once('«').and_then(|(before, rest)| Some((before, rest.split_once('»')?.0))) {
        None => Ok(start..start + whole.len()),
        Some((before, part)) => Ok(start + before.len()..start + before.len() + part.len()),
    }
}

/// The mutated text if the mutant of this number runs, else the original. Statements stay statements.
fn either(number: usize, mutated: &str, original: &str) -> String {
    let choice = format!("if crate::mutation::is({number}) {{ {mutated} }} else {{ {original} }}");
    if original.ends_with([';', '}']) { choice } else { format!("({choice})") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mutant(original: &str, mutated: &str) -> Mutant {
        Mutant {
            name: "broken".to_owned(),
            file: String::new(),
            original: original.to_owned(),
            mutated: mutated.to_owned(),
            equivalent: None,
            package: String::new(),
        }
    }

    #[test]
    fn expressions_and_statements_get_a_choice() {
        let mutants = [mutant("let a = «1»;", "3"), mutant("b += 1;", "")];
        let text = with_mutants("let a = 1; b += 1; c += 1;", &[(7, &mutants[1]), (8, &mutants[0])]).unwrap();
        let expected = "let a = (if crate::mutation::is(8) { 3 } else { 1 }); \
            if crate::mutation::is(7) {  } else { b += 1; } c += 1;";
        assert_eq!(text, expected);
    }

    #[test]
    fn what_is_not_there_once_is_an_error() {
        for (text, times) in [("a + c", "0 times"), ("a + b; a + b", "2 times")] {
            let error = with_mutants(text, &[(1, &mutant("a + b", "a - b"))]).unwrap_err();
            assert!(error.contains("broken") && error.contains(times), "{error}");
        }
        let [inner, outer] = [mutant("«b»; c", "d"), mutant("a + b", "a")];
        let error = with_mutants("a + b; c", &[(1, &inner), (2, &outer)]).unwrap_err();
        assert!(error.contains("overlaps"), "{error}");
    }
}
