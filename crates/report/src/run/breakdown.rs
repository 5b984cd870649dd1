//! What a step is spent on: measured beside predicted, by kind of operation.

use std::collections::BTreeMap;

use quadrille_run::units::seconds;
use quadrille_step::Group as OperationGroup;

use super::chart::row_legend;
use super::prediction::{Prediction, StageTimes, Times};
use super::read::Run;
use crate::drawing::{Anchor, Drawing, heading, paragraph, table};

const FONT: f64 = 12.0;
/// Length of the longest bar.
const LONGEST: f64 = 760.0;
/// Where bars begin.
const LEFT: f64 = 90.0;

/// What a group of operations is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Group {
    Products,
    Attention,
    ElementWise,
    Collectives,
    Stages,
    Other,
}

impl Group {
    const ALL: [(Self, &'static str, &'static str); 6] = [
        (Self::Products, "products", "var(--blue)"),
        (Self::Attention, "attention", "var(--teal)"),
        (Self::ElementWise, "element-wise", "var(--violet)"),
        (Self::Collectives, "waits for collectives", "var(--red)"),
        (Self::Stages, "waits for stages", "var(--orange)"),
        (Self::Other, "other", "var(--level)"),
    ];

    /// Of an operation, by its name.
    fn of(name: &str) -> Self {
        match name {
            "receive" | "release" | WAITS_FOR_STAGES => Self::Stages,
            WAITS_FOR_COLLECTIVES => Self::Collectives,
            _ => match OperationGroup::by_name(name) {
                Some(OperationGroup::Product) => Self::Products,
                Some(OperationGroup::Attention) => Self::Attention,
                Some(OperationGroup::ElementWise | OperationGroup::Optimizer) => Self::ElementWise,
                Some(OperationGroup::Wait) => Self::Collectives,
                Some(OperationGroup::Issue) | None => Self::Other,
            },
        }
    }
}

const WAITS_FOR_COLLECTIVES: &str = "all waits for collectives";
const WAITS_FOR_STAGES: &str = "all waits for stages";
const OUTSIDE: &str = "outside of operations";

/// Seconds of a step by kind, a mean over ranks.
type Kinds = BTreeMap<(Group, String), f64>;

/// The part of the page.
pub fn breakdown(run: &Run, prediction: &Prediction) -> String {
    let measured = run.summary.as_ref().ok().and_then(|summary| summary.breakdown());
    let ranks = measured.as_ref().map_or(run.program.layout.grid.ranks(), |(ranks, _)| ranks.len());
    let predicted = prediction.times.as_ref().ok().map(|times| predicted(run, times, ranks));
    let measured_kinds = measured.as_ref().map(|(ranks, step)| self::measured(ranks, *step));
    let mut html = heading(2, "What a step is spent on") + &paragraph(&about(prediction));
    html += &paragraph(&match (&run.summary, &measured) {
        (Err(reason), _) => format!("{reason} What was measured of kinds of operations is left out."),
        (Ok(_), None) => "The last part of the run has at most one step, its first, which does not count.".to_owned(),
        (Ok(summary), Some(_)) => format!(
            "measured: the mean of {} rank(s) and of all steps of the run's last part but the first, {} of them",
            ranks,
            summary.steps.len() - 1
        ),
    });
    let [measured_step, predicted_step] =
        [measured.as_ref().map(|(_, step)| *step), prediction.times.as_ref().ok().map(|times| times.step)];
    let sides = [("measured", &measured_kinds, measured_step), ("predicted", &predicted, predicted_step)];
    html += &bars(&sides);
    html + &table("", &rows(&sides))
}

/// What the prediction is for.
fn about(prediction: &Prediction) -> String {
    let Prediction { cluster, times } = prediction;
    match times {
        Err(reason) => format!("not predicted on the cluster {cluster}: {reason}"),
        Ok(_) => {
            format!("predicted: the step's program simulated with the native model's prices on the cluster {cluster}")
        }
    }
}

fn measured(ranks: &[BTreeMap<&str, f64>], step: f64) -> Kinds {
    let mut kinds = mean(ranks.iter().map(|rank| rank.iter().map(|(name, seconds)| (*name, *seconds)).collect()));
    let sum: f64 = kinds.values().sum();
    // Clocks of ranks and of the whole step are read at different times.
    kinds.insert((Group::Other, OUTSIDE.to_owned()), (step - sum).max(0.0));
    kinds
}

/// Of as many ranks as were measured.
fn predicted(run: &Run, times: &Times, ranks: usize) -> Kinds {
    let of = |StageTimes { operations, collectives, stages }: &StageTimes| {
        let waits = [(WAITS_FOR_COLLECTIVES, *collectives), (WAITS_FOR_STAGES, *stages)];
        operations.iter().map(|(name, seconds)| (*name, *seconds)).chain(waits).collect::<Vec<_>>()
    };
    mean((0..ranks).filter_map(|rank| times.of_rank(&run.program, rank)).map(of))
}

fn mean<'a>(ranks: impl Iterator<Item = Vec<(&'a str, f64)>>) -> Kinds {
    let mut kinds = Kinds::new();
    let mut count = 0.0;
    for rank in ranks {
        count += 1.0;
        for (name, seconds) in rank {
            *kinds.entry((Group::of(name), name.to_owned())).or_default() += seconds;
        }
    }
    kinds.values_mut().for_each(|seconds| *seconds /= count);
    kinds
}

/// A side's name, its kinds and its step.
type Side<'a> = (&'a str, &'a Option<Kinds>, Option<f64>);

fn of_group(kinds: &Kinds, group: Group) -> f64 {
    // The sum of nothing would be -0.
    kinds.iter().filter(|((of, _), _)| *of == group).fold(0.0, |sum, (_, seconds)| sum + seconds)
}

/// A bar for each side, in its groups.
fn bars(sides: &[Side; 2]) -> String {
    let known: Vec<_> = sides.iter().filter_map(|(name, kinds, _)| Some((*name, kinds.as_ref()?))).collect();
    let total = |kinds: &Kinds| kinds.values().sum::<f64>();
    let most = known.iter().map(|(_, kinds)| total(kinds)).fold(0.0, f64::max);
    if most <= 0.0 {
        return String::new();
    }
    let mut drawing = Drawing::transparent(LEFT + LONGEST + 110.0, 36.0 + 30.0 * known.len() as f64);
    let legend: Vec<_> = Group::ALL.iter().map(|(_, name, colour)| (*colour, *name)).collect();
    row_legend(&mut drawing, LEFT, 4.0, &legend);
    for (line, (name, kinds)) in known.iter().enumerate() {
        let (mut x, y) = (LEFT, 32.0 + 30.0 * line as f64);
        drawing.text(LEFT - 8.0, y + 15.0, Anchor::End, FONT, name);
        for (group, group_name, colour) in Group::ALL {
            let time = of_group(kinds, group);
            let long = LONGEST * time / most;
            if time > 0.0 {
                drawing.rectangle([x, y, long, 22.0], colour, &format!("{name} {group_name}: {}", seconds(time)));
            }
            x += long;
        }
        drawing.text(x + 8.0, y + 15.0, Anchor::Start, FONT, &seconds(total(kinds)));
    }
    drawing.finish()
}

/// A row for each group, and below it one for each of its kinds.
fn rows(sides: &[Side; 2]) -> Vec<Vec<String>> {
    let [(_, measured, measured_step), (_, predicted, predicted_step)] = sides;
    let row = |name: String, measured: Option<f64>, predicted: Option<f64>| {
        let told = |value: Option<f64>| value.map_or("-".to_owned(), seconds);
        let ratio = measured.zip(predicted).filter(|(measured, _)| *measured > 0.0);
        let ratio = ratio.map_or("-".to_owned(), |(measured, predicted)| format!("{:.2}", predicted / measured));
        vec![name, told(measured), told(predicted), ratio]
    };
    let header = ["", "measured", "predicted", "predicted / measured"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    for (group, name, _) in Group::ALL {
        let knows = |kinds: &&Kinds| kinds.keys().any(|(of, _)| *of == group);
        let sum = |kinds: &Option<Kinds>| kinds.as_ref().filter(knows).map(|kinds| of_group(kinds, group));
        rows.push(row(name.to_owned(), sum(measured), sum(predicted)));
        let names = [measured, predicted].into_iter().filter_map(|kinds| kinds.as_ref()).flat_map(BTreeMap::keys);
        // What the prediction knows of waits stands in the group's row.
        let all = |name: &str| [WAITS_FOR_COLLECTIVES, WAITS_FOR_STAGES].contains(&name);
        let mut names: Vec<_> = names.filter(|(of, name)| *of == group && !all(name)).collect();
        names.sort_unstable();
        names.dedup();
        for key in names {
            let of = |kinds: &Option<Kinds>| kinds.as_ref().and_then(|kinds| kinds.get(key).copied());
            rows.push(row(format!("\u{2003}{}", key.1), of(measured), of(predicted)));
        }
    }
    rows.push(row("whole step".to_owned(), *measured_step, *predicted_step));
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_is_told_from_what_computes() {
        for name in quadrille_engine::WAITING {
            assert!(matches!(Group::of(name), Group::Collectives | Group::Stages), "{name}");
        }
        assert_eq!([Group::of("gemm-weight-gradient"), Group::of("adamw")], [Group::Products, Group::ElementWise]);
    }

    #[test]
    fn parts_of_a_measured_step_add_up_to_it() {
        let rank = |wait: f64| BTreeMap::from([("gemm", 2.0), ("wait", wait)]);
        let kinds = measured(&[rank(1.0), rank(3.0)], 5.0);
        assert_eq!((of_group(&kinds, Group::Collectives), of_group(&kinds, Group::Other)), (2.0, 1.0));
        assert_eq!(kinds.values().sum::<f64>(), 5.0);
    }
}
