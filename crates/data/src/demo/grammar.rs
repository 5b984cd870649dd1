//! The demo language: sentences such as "Every old king paints two lamps at noon alone." on lines of their own.
//!
//! A sentence is a walk through places, from place 0 on; each step writes a word and leads to a later place, or, with
//! the full stop, back to place 0. What may follow depends on earlier words, near ones (cats do not paint) and far
//! ones: all places after the first word exist twice, for one subject and for several, so that the first word decides
//! over noun, verb and, at the end, "alone" or "together".

/// What may come at a place: what is written, its weight, the place after it.
pub(super) type Choice = (String, u32, usize);

const NEXT_SENTENCE: usize = 0;

/// The places of one number, in order.
#[derive(Clone, Copy)]
enum Place {
    Subject,
    Noun,
    Person,
    Animal,
    Thing,
    OneThing,
    Things,
    Food,
    When,
    Time,
    Where,
    End,
}

const PLACES_PER_NUMBER: usize = Place::End as usize + 1;

/// The choices at each place. Words carry the space before them; at one place none begins with the whole of another.
pub(super) fn places() -> Vec<Vec<Choice>> {
    let first = |word: &str, weight, plural| (word.to_string(), weight, index(plural, Place::Subject));
    let mut places = vec![vec![
        first("The", 3, false),
        first("Every", 2, false),
        first("No", 2, false),
        first("Both", 3, true),
        first("Some", 2, true),
        first("Two", 2, true),
    ]];
    places.extend(places_of(false));
    places.extend(places_of(true));
    places
}

fn index(plural: bool, place: Place) -> usize {
    1 + place as usize + if plural { PLACES_PER_NUMBER } else { 0 }
}

fn places_of(plural: bool) -> [Vec<Choice>; PLACES_PER_NUMBER] {
    let (of_noun, of_verb, with) = if plural { ("s", "", "together") } else { ("", "s", "alone") };
    let to = |place, ending: &str, words: &[(&str, u32)]| -> Vec<Choice> {
        words.iter().map(|(word, weight)| (format!(" {word}{ending}"), *weight, index(plural, place))).collect()
    };
    let nouns = || {
        let persons = to(Place::Person, of_noun, &[("king", 3), ("cook", 3), ("girl", 2), ("nun", 2)]);
        [persons, to(Place::Animal, of_noun, &[("cat", 3), ("dog", 3), ("owl", 2), ("ant", 2)])].concat()
    };
    let things = [("boat", 3), ("lamp", 3), ("ring", 2), ("hat", 2)];
    let end = |weight| vec![(".\n".to_string(), weight, NEXT_SENTENCE), (format!(" {with}.\n"), weight, NEXT_SENTENCE)];
    [
        [to(Place::Noun, "", &[("old", 3), ("sad", 3), ("big", 2), ("shy", 2)]), nouns()].concat(),
        nouns(),
        [
            to(Place::Thing, of_verb, &[("paint", 3), ("sell", 3), ("mend", 2)]),
            to(Place::When, of_verb, &[("sing", 2), ("rest", 2)]),
        ]
        .concat(),
        [
            to(Place::Food, of_verb, &[("eat", 3), ("find", 3), ("steal", 2)]),
            to(Place::When, of_verb, &[("sleep", 2), ("hide", 2)]),
        ]
        .concat(),
        [to(Place::OneThing, "", &[("a", 3)]), to(Place::Things, "", &[("two", 2), ("ten", 2)])].concat(),
        to(Place::When, "", &things),
        to(Place::When, "s", &things),
        to(Place::When, "", &[("bread", 3), ("corn", 3), ("fish", 2), ("ham", 2)]),
        [to(Place::Time, "", &[("at", 3)]), to(Place::Where, "", &[("in", 3)]), end(1)].concat(),
        to(Place::End, "", &[("dawn", 2), ("noon", 2), ("night", 3), ("tea", 2)]),
        to(Place::End, "", &[("town", 3), ("bed", 2), ("rain", 2), ("May", 2)]),
        end(1),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_leads_on_and_can_be_reached() {
        let places = places();
        let mut reached = vec![false; places.len()];
        reached[0] = true;
        for (place, choices) in places.iter().enumerate() {
            assert!(reached[place], "place {place}");
            for (word, weight, next) in choices {
                assert!(*weight > 0, "{word}");
                assert_eq!(*next == NEXT_SENTENCE, word.ends_with(".\n"), "{word}");
                assert!(*next > place || *next == NEXT_SENTENCE, "{word} leads back");
                reached[*next] = true;
            }
        }
    }
}
