//! How often each expert was chosen.

use quadrille_run::ExpertLoads;

use super::read::Run;
use crate::drawing::{Anchor, Drawing, heading, paragraph, table};

const FONT: f64 = 12.0;
/// Width of all experts of a block.
const WIDTH: f64 = 760.0;
/// Where experts begin.
const LEFT: f64 = 70.0;
/// Height of a block.
const ROW: f64 = 18.0;

/// The part of the page; nothing of a model without experts, or of a part of a run without steps.
pub fn loads(run: &Run) -> String {
    let Some(summary) = run.summary.as_ref().ok().filter(|summary| summary.expert_loads.iter().any(is_chosen)) else {
        return String::new();
    };
    let about = "How often each expert was chosen in the run's last part, as a multiple of its block's mean: the darker, the \
                 more often; white is never, the darkest twice the mean and above.";
    let mut rows = vec![["block", "most", "expert", "least", "expert", "never chosen"].map(str::to_owned).to_vec()];
    rows.extend(summary.expert_loads.iter().map(row));
    heading(2, "Loads of experts") + &paragraph(about) + &drawn(&summary.expert_loads) + &table("", &rows)
}

fn is_chosen(loads: &ExpertLoads) -> bool {
    loads.chosen.iter().any(|chosen| *chosen > 0)
}

/// As multiples of their mean.
fn multiples(loads: &ExpertLoads) -> Vec<f64> {
    let mean = loads.chosen.iter().sum::<u64>() as f64 / loads.chosen.len() as f64;
    loads.chosen.iter().map(|chosen| *chosen as f64 / mean).collect()
}

fn row(loads: &ExpertLoads) -> Vec<String> {
    let multiples = multiples(loads);
    let of = |better: fn(f64, f64) -> bool| {
        let experts = 1..multiples.len();
        let expert =
            experts.fold(0, |best, other| if better(multiples[other], multiples[best]) { other } else { best });
        [format!("{:.3}", multiples[expert]), expert.to_string()]
    };
    let never = loads.chosen.iter().filter(|chosen| **chosen == 0).count();
    let [most, least] = [of(|a, b| a > b), of(|a, b| a < b)];
    [loads.block.to_string()].into_iter().chain(most).chain(least).chain([never.to_string()]).collect()
}

/// A row of cells for each block.
fn drawn(blocks: &[ExpertLoads]) -> String {
    let mut drawing = Drawing::transparent(LEFT + WIDTH, ROW * blocks.len() as f64);
    for (line, loads) in blocks.iter().enumerate() {
        let top = ROW * line as f64;
        drawing.text(LEFT - 8.0, top + ROW - 5.0, Anchor::End, FONT, &format!("block {}", loads.block));
        let width = WIDTH / loads.chosen.len() as f64;
        for (expert, (multiple, chosen)) in multiples(loads).into_iter().zip(&loads.chosen).enumerate() {
            let share = (50.0 * multiple).min(100.0);
            let colour = format!("color-mix(in srgb, var(--blue) {share:.0}%, white)");
            let title = format!("block {}, expert {expert}: {multiple:.3} of the mean, {chosen} times", loads.block);
            let gap = if width > 3.0 { 1.0 } else { 0.0 };
            drawing.rectangle([LEFT + width * expert as f64, top, width - gap, ROW - 1.0], &colour, &title);
        }
    }
    drawing.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_name_the_most_and_the_least_chosen() {
        let loads = ExpertLoads { block: 3, chosen: vec![4, 0, 8, 0] };
        assert_eq!(row(&loads), ["3", "2.667", "2", "0.000", "1", "2"]);
        let drawn = drawn(&[loads]);
        assert!(drawn.contains("block 3, expert 2: 2.667 of the mean, 8 times"), "{drawn}");
        assert_eq!((drawn.matches("blue) 100%").count(), drawn.matches("blue) 0%").count()), (1, 2), "{drawn}");
    }
}
