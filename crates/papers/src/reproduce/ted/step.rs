//! TED's communication: collectives of a block with experts, elements that they send, shares of a step's time.

use quadrille_spec::{Activations, Dispatch, SpecError};
use serde::Deserialize;

use crate::reproduce::experts::Block;
use crate::reproduce::point::Point;
use crate::reproduce::printed::Printed;
use crate::ted::{self, Sent, passes};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    tensor: usize,
    communication_percent: f64,
    all_to_all_percent: f64,
    all_to_alls: Printed,
    all_reduces: Printed,
    times_recomputed: Printed,
    cac_percent: Printed,
    dtd_all_to_all_percent: Printed,
    all_to_all_less_percent: Printed,
    all_reduce_less_percent: Printed,
    dtd_step_percent: Printed,
    step_percent: Printed,
    time_note: String,
    product_note: String,
    dtd_step_note: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rows {
    tensor: usize,
    expert: usize,
    elements: usize,
    dropped_note: String,
    scattered_note: String,
}

pub fn points(step: &Step, rows: &Rows) -> Result<Vec<Point>, SpecError> {
    let Rows { tensor, expert, elements, .. } = *rows;
    let block = Block { tensor, expert, elements };
    let of_step = Block { tensor: step.tensor, ..block };
    Ok([sent(rows, block)?, collectives(step, of_step)?, reductions(step, of_step)?, shares(step)].concat())
}

/// The part of all-to-alls' elements that DTD and CAC save in groups of so many tensor parallel GPUs, with recomputation.
pub fn saved_all_to_alls(tensor: usize) -> f64 {
    // The size of an expert parallel group, above 1, changes all of them alike.
    let sent = |dispatch: ted::Dispatch, kept| dispatch.sent(1.0, tensor, 2).times(passes(true, kept)).all_to_all;
    1.0 - sent(ted::Dispatch::Dropped, true) / sent(ted::Dispatch::Duplicated, false)
}

/// What TED sends for rows at experts beside what our programs send.
fn sent(rows: &Rows, block: Block) -> Result<Vec<Point>, SpecError> {
    let Rows { tensor, expert, elements, dropped_note, scattered_note } = rows;
    let by_form =
        |dispatch: ted::Dispatch| dispatch.sent(*elements as f64, *tensor, *expert).times(passes(false, false));
    let [ted, dtd] = [ted::Dispatch::Duplicated, ted::Dispatch::Dropped].map(by_form);
    let ours = |activations, dispatch| block.sent(activations, dispatch);
    let duplicated = ours(Activations::Replicated, Dispatch::Duplicated)?;
    let dropped = ours(Activations::Replicated, Dispatch::Dropped)?;
    let scattered = ours(Activations::Scattered, Dispatch::Dropped)?;
    let point = |of: &str, source: &str, published: f64, ours: f64, note: &str| {
        let what = format!("{tensor} x {expert} GPUs, {elements} elements: {of}");
        Ok(Point::new(what, source, Printed::rounded(published, 0)?, ours, "elements").because(note))
    };
    let all = Sent::all;
    [
        point("baseline, all-to-alls", "section 7.1", ted.all_to_all, duplicated.all_to_all, ""),
        point("baseline, all collectives", "section 7.1", all(&ted), all(&duplicated), ""),
        point("DTD, all-to-alls", "section 7.3.1", dtd.all_to_all, dropped.all_to_all, ""),
        point("DTD, all collectives", "section 7.3.1", all(&dtd), all(&dropped), dropped_note),
        point("DTD beside scattered rows", "section 7.3.1", all(&dtd), all(&scattered), scattered_note),
    ]
    .into_iter()
    .collect()
}

/// Collectives of a block with recomputation, of our program, and what recomputation adds to them.
fn collectives(step: &Step, block: Block) -> Result<Vec<Point>, SpecError> {
    let [all_to_alls, all_reduces] = block.recomputed_collectives()?;
    let times = passes(true, false) / passes(true, true);
    let point =
        |what: &str, published: Printed, ours: f64, unit| Point::new(what, "section 7.3", published, ours, unit);
    Ok(vec![
        point("recomputed block with experts: all-to-alls", step.all_to_alls, all_to_alls as f64, "collectives"),
        point("recomputed block with experts: all-reduces over x", step.all_reduces, all_reduces as f64, "collectives"),
        point("communication more by recomputation", step.times_recomputed, times, "x"),
    ])
}

/// What DTD and CAC save of each kind of collective: printed as time, ours as elements.
fn reductions(step: &Step, block: Block) -> Result<Vec<Point>, SpecError> {
    let base = block.recomputed_all_to_alls(Dispatch::Duplicated, false)?;
    let less = |dispatch, kept| Ok(100.0 * (1.0 - block.recomputed_all_to_alls(dispatch, kept)? / base));
    let [cac, dtd, both] = [(Dispatch::Duplicated, true), (Dispatch::Dropped, false), (Dispatch::Dropped, true)]
        .map(|(dispatch, kept)| less(dispatch, kept));
    let third = 1.0 - passes(true, true) / passes(true, false);
    let by_product = 1.0 - (1.0 - step.dtd_all_to_all_percent.nearest(0.0) / 100.0) * (1.0 - third);
    let point = |of: &str, published: Printed, ours: f64, note: &str| {
        let what = format!("x={}: {of}", step.tensor);
        Point::new(what, "figure 7.5", published, ours, "%").because(note)
    };
    let published = step.all_to_all_less_percent;
    Ok(vec![
        point("all-to-alls less by CAC", step.cac_percent, cac?, ""),
        point("all-to-alls less by DTD", step.dtd_all_to_all_percent, dtd?, &step.time_note),
        point("all-to-alls less by both", published, both?, &step.time_note),
        point("all-to-alls less by both, of printed", published, 100.0 * by_product, &step.product_note),
        point("all-reduces less by both", step.all_reduce_less_percent, 100.0 * third, ""),
    ])
}

/// Time of a step saved, by the printed shares and what is saved of each.
fn shares(step: &Step) -> Vec<Point> {
    let [dtd, all_to_alls, all_reduces] =
        [step.dtd_all_to_all_percent, step.all_to_all_less_percent, step.all_reduce_less_percent]
            .map(|printed| printed.nearest(0.0) / 100.0);
    let others = step.communication_percent - step.all_to_all_percent;
    let both = step.all_to_all_percent * all_to_alls + others * all_reduces;
    let step_note = format!(
        "as for DTD, and 'almost half' for both kinds of collectives is taken as {}%",
        step.communication_percent
    );
    let point = |of: &str, published: Printed, ours: f64, note: &str| {
        Point::new(format!("step's time less by {of}"), "figure 7.5", published, ours, "%").because(note)
    };
    vec![
        point("DTD", step.dtd_step_percent, step.all_to_all_percent * dtd, &step.dtd_step_note),
        point("DTD and CAC", step.step_percent, both, &step_note),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_dtd_and_cac_save_by_hand() {
        let by_hand = [(1, 1.0 / 3.0), (2, 2.0 / 3.0), (4, 5.0 / 6.0), (8, 11.0 / 12.0)];
        assert!(by_hand.into_iter().all(|(tensor, saved)| (saved_all_to_alls(tensor) - saved).abs() < 1e-12));
    }
}
