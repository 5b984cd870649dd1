//! What was found lately: who asks the same again, as by moving a slider back, does not wait for a search.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use quadrille_plan::native::PlanRequest;
use serde_json::Value;

/// Answers that are kept; each has a few hundred thousand bytes.
const KEPT: usize = 32;

/// Whole answers by what was asked, the latest first.
#[derive(Default)]
pub(crate) struct Answers {
    kept: Mutex<VecDeque<(PlanRequest, String)>>,
}

impl Answers {
    /// The whole answer to a question, if it is known.
    pub(crate) fn of(&self, request: &PlanRequest) -> Option<String> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let at = kept.iter().position(|(known, _)| known == request)?;
        let known = kept.remove(at)?;
        let text = known.1.clone();
        kept.push_front(known);
        Some(text)
    }

    /// The text of an answer, which is kept unless its search was cut.
    pub(crate) fn keep(&self, request: &PlanRequest, document: &Value) -> String {
        let text = document.to_string();
        if document["stopped"] == false {
            let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            kept.push_front((request.clone(), text.clone()));
            kept.truncate(KEPT);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn request(gpus: usize) -> PlanRequest {
        PlanRequest { gpus: vec![gpus], ..PlanRequest::default() }
    }

    #[test]
    fn whole_answers_are_kept_until_there_are_too_many() {
        let answers = Answers::default();
        let document = |gpus: usize, stopped: bool| json!({ "gpus": gpus, "stopped": stopped });
        answers.keep(&request(1), &document(1, true));
        assert_eq!(answers.of(&request(1)), None, "a search that was stopped may find more");
        for gpus in 1..=KEPT {
            answers.keep(&request(gpus), &document(gpus, false));
        }
        assert_eq!(answers.of(&request(1)), Some(document(1, false).to_string()));
        answers.keep(&request(KEPT + 1), &document(KEPT + 1, false));
        assert!(answers.of(&request(1)).is_some(), "it was asked for since");
        assert!(answers.of(&request(2)).is_none() && answers.of(&request(3)).is_some());
    }
}
