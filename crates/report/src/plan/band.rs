//! How far published runs like a plan were from what was predicted of them.

use quadrille_cost::native::Candidate;
use quadrille_evidence::{Band, Known, Likeness, MissingRuns};
use quadrille_plan::native::Question;

use super::PricedLayout;

/// The band of a layout.
///
/// # Errors
/// Too few published runs of its kind.
pub(super) fn band(question: &Question, candidate: &Candidate) -> Result<Band, MissingRuns> {
    let Question { model, cluster, framework, seq_len, .. } = question;
    let planned = Likeness::of(model, cluster, framework, candidate, *seq_len);
    Band::around(&planned, framework, Known::all())
}

/// Ends of a band, as a difference from what is predicted: `-11% to +1%`.
pub(crate) fn ends(band: &Band) -> String {
    format!("{} to {}", signed(band.low), signed(band.high))
}

fn signed(ratio: f64) -> String {
    format!("{:+.0}%", 100.0 * (ratio - 1.0))
}

/// The band of a layout, or the reason why there is none, for people.
pub(super) fn band_text(layout: &PricedLayout) -> String {
    let Some(band) = &layout.error_band else {
        let missing = layout.error_band_reason.as_deref().unwrap_or_default();
        return format!("its time has no error band: {missing}\n");
    };
    let sources = match band.sources.as_slice() {
        [first, second, others @ ..] if !others.is_empty() => {
            format!("{first}, {second} and {} more", others.len())
        }
        sources => sources.join(" and "),
    };
    let mut text = format!(
        "its time is uncertain by {} (half of runs: {} or less):\n\
         of the {} published runs most like it, 8 of 10 took so much less or more than\n\
         was predicted of them from the runs of other sources ({sources})\n",
        ends(band),
        signed(band.middle),
        band.runs,
    );
    if band.is_far() {
        text += "warning: in the mean they are unlike it, so that assumptions carry much of its time\n";
    }
    text
}
