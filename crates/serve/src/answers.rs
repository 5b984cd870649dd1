//! What was found lately: who asks the same again, as by moving a slider back, does not wait for a search.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use serde_json::Value;

use crate::asked::Asked;

/// Answers that are kept; each has a few hundred thousand bytes.
const KEPT: usize = 32;

/// Whole answers by what was asked, the latest first.
#[derive(Default)]
pub(crate) struct Answers {
    kept: Mutex<VecDeque<(Asked, String)>>,
}

impl Answers {
    /// The whole answer to a question, if it is known.
    pub(crate) fn of(&self, asked: &Asked) -> Option<String> {
        let whole = asked.whole();
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let at = kept.iter().position(|(known, _)| *known == whole)?;
        let known = kept.remove(at)?;
        let text = known.1.clone();
        kept.push_front(known);
        Some(text)
    }

    /// The text of an answer, which is kept unless its search was cut.
    pub(crate) fn keep(&self, asked: &Asked, document: &Value) -> String {
        let text = document.to_string();
        if document["stopped"] == false {
            let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            kept.push_front((asked.whole(), text.clone()));
            kept.truncate(KEPT);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::*;

    fn asked(gpus: usize, is_first: bool) -> Asked {
        from_value(json!({ "gpus": gpus.to_string(), "round": is_first.then_some(0) })).unwrap()
    }

    #[test]
    fn whole_answers_are_kept_until_there_are_too_many() {
        let answers = Answers::default();
        let document = |gpus: usize, stopped: bool| json!({ "gpus": gpus, "stopped": stopped });
        answers.keep(&asked(1, true), &document(1, true));
        assert_eq!(answers.of(&asked(1, false)), None, "a search that was stopped may find more");
        for gpus in 1..=KEPT {
            answers.keep(&asked(gpus, gpus % 2 == 0), &document(gpus, false));
        }
        assert_eq!(answers.of(&asked(1, true)), Some(document(1, false).to_string()));
        answers.keep(&asked(KEPT + 1, false), &document(KEPT + 1, false));
        assert!(answers.of(&asked(1, false)).is_some(), "it was asked for since");
        assert!(answers.of(&asked(2, false)).is_none() && answers.of(&asked(3, false)).is_some());
    }
}
