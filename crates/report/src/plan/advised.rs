//! Which of the layouts that were found is advised, and what the fastest gains over it.

use quadrille_plan::native::{Answer, Ranked, Reserve};
use quadrille_run::units::percent;
use quadrille_spec::SpecError;
use serde_json::{Value, json};

use super::document::tell_variants;
use super::entry;

/// What says so on a line; nothing where the fastest was asked for.
pub(super) fn advised_text(answer: &Answer) -> String {
    let Answer { best, advised, search, found, .. } = answer;
    let safe = |ranked: &Ranked| search.safe_capacity.is_none_or(|most| ranked.price.memory.total() <= most);
    if !safe(best) && safe(advised) {
        return of_safe_ones(answer);
    }
    let Some(tolerance) = search.tolerance.map(percent) else { return String::new() };
    match advised == best {
        true if found.stopped => {
            format!("advised: the fastest so far; nothing simpler that was looked at is within {tolerance} of it\n")
        }
        true => format!("advised: the fastest, since nothing simpler is within {tolerance} of it\n"),
        false => format!(
            "advised (*): the simplest within {tolerance} of the fastest, which predictions do not tell apart;\n\
             the fastest takes {} less\n",
            percent(gain(answer))
        ),
    }
}

/// The same where too few runs of the fastest fit.
fn of_safe_ones(answer: &Answer) -> String {
    let within = answer.search.tolerance.map(|tolerance| format!("simplest within {} of the ", percent(tolerance)));
    format!(
        "advised (*): the {}fastest of those that {:.0}% of runs fit into; the fastest of all takes {} less\n",
        within.unwrap_or_default(),
        100.0 * Reserve::SAFE_RUNS,
        percent(gain(answer))
    )
}

/// The same as a document.
///
/// # Errors
/// None for what a search has found.
pub(super) fn advised_document(answer: &Answer) -> Result<Value, SpecError> {
    let Answer { question, search, found, advised, .. } = answer;
    let mut plan = entry(question, &search.setting, advised, &question.layout(advised)?)?;
    tell_variants(answer, advised, &mut plan);
    Ok(json!({
        "index": found.ranked.iter().position(|ranked| ranked == advised),
        "tolerance": search.tolerance.unwrap_or(0.0),
        "gain_of_fastest": gain(answer),
        "plan": plan,
    }))
}

/// How much less the fastest takes, as a fraction of the advised one's time.
fn gain(answer: &Answer) -> f64 {
    1.0 - answer.best.price.seconds / answer.advised.price.seconds
}
