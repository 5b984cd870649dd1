//! How far published runs like a plan were from what was predicted of them.

use quadrille_cost::native::Candidate;
use quadrille_evidence::{Band, Known, Likeness};
use quadrille_plan::native::Question;

/// The band of a layout that was found; `None`: there are no runs to liken it to.
pub(super) fn band(question: &Question, candidate: &Candidate) -> Option<Band> {
    let Question { model, cluster, framework, seq_len, .. } = question;
    let planned = Likeness::of(model, cluster, framework, candidate, *seq_len);
    Band::around(&planned, framework, Known::all())
}

/// The same for people.
pub(super) fn band_text(question: &Question, candidate: &Candidate) -> String {
    let Some(band) = band(question, candidate) else { return String::new() };
    let sources = match band.sources.as_slice() {
        [first, second, others @ ..] if !others.is_empty() => {
            format!("{first}, {second} and {} more", others.len())
        }
        sources => sources.join(" and "),
    };
    let signed = |ratio: f64| format!("{:+.0}%", 100.0 * (ratio - 1.0));
    let mut text = format!(
        "its time is uncertain by {} to {} (half of runs: {} or less):\n\
         of the {} published runs most like it, 8 of 10 took so much less or more than\n\
         was predicted of them from the runs of other sources ({sources})\n",
        signed(band.low),
        signed(band.high),
        signed(band.middle),
        band.runs,
    );
    if band.is_far() {
        text += "warning: in the mean they are unlike it, so that assumptions carry much of its time\n";
    }
    text
}
