//! What a step is spent on: measured beside predicted, by kind of operation.

use std::collections::BTreeMap;

use quadrille_spec::counted;
use quadrille_step::Group as OperationGroup;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::prediction::{Prediction, StageTimes, Times};
use super::read::Run;

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
    const ALL: [(Self, &'static str); 6] = [
        (Self::Products, "products"),
        (Self::Attention, "attention"),
        (Self::ElementWise, "element-wise"),
        (Self::Collectives, "waits for collectives"),
        (Self::Stages, "waits for stages"),
        (Self::Other, "other"),
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

/// Seconds of a step by group and kind, measured and predicted, as a mean over ranks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StepBreakdown {
    /// Sentences on the prediction and the measurement.
    pub told: [String; 2],
    /// The whole step.
    pub step: StepSides,
    /// Groups of operations.
    pub groups: Vec<GroupSeconds>,
}

/// Measured and predicted seconds of a step.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StepSides {
    /// Measured seconds; null if missing.
    pub measured_s: Option<f64>,
    /// Predicted seconds; null if missing.
    pub predicted_s: Option<f64>,
}

/// Seconds of a group of operations.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GroupSeconds {
    /// Measured seconds; null if missing.
    pub measured_s: Option<f64>,
    /// Predicted seconds; null if missing.
    pub predicted_s: Option<f64>,
    /// The group.
    pub name: String,
    /// Kinds of operations in it.
    pub kinds: Vec<KindSeconds>,
}

/// Seconds of a kind of operations.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct KindSeconds {
    /// Measured seconds; null if missing.
    pub measured_s: Option<f64>,
    /// Predicted seconds; null if missing.
    pub predicted_s: Option<f64>,
    /// The kind.
    pub name: String,
}

/// Seconds of a step by group and kind.
pub fn breakdown(run: &Run, prediction: &Prediction) -> StepBreakdown {
    let breakdown = run.summary.as_ref().ok().and_then(|summary| summary.breakdown());
    let ranks = breakdown.as_ref().map_or(run.program.layout.grid.ranks(), |(ranks, _)| ranks.len());
    let times = prediction.times.as_ref().ok();
    let measured = breakdown.as_ref().map(|(ranks, step)| measured(ranks, *step));
    let predicted = times.map(|times| predicted(run, times, ranks));
    let told = match (&run.summary, &breakdown) {
        (Err(reason), _) => format!("{reason} What was measured of kinds of operations is left out."),
        (Ok(_), None) => "The last part of the run has at most one step, its first, which does not count.".to_owned(),
        (Ok(summary), Some(_)) => format!(
            "measured: the mean of {} and of all steps of the run's last part but the first, {} of them",
            counted(ranks, "rank"),
            summary.steps.len() - 1
        ),
    };
    StepBreakdown {
        told: [about(prediction), told],
        step: StepSides {
            measured_s: breakdown.as_ref().map(|(_, step)| *step),
            predicted_s: times.map(|times| times.step),
        },
        groups: Group::ALL.map(|(group, name)| of_both(group, name, measured.as_ref(), predicted.as_ref())).to_vec(),
    }
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

fn of_group(kinds: &Kinds, group: Group) -> f64 {
    // The sum of nothing would be -0.
    kinds.iter().filter(|((of, _), _)| *of == group).fold(0.0, |sum, (_, seconds)| sum + seconds)
}

/// A group with its kinds.
fn of_both(group: Group, name: &str, measured: Option<&Kinds>, predicted: Option<&Kinds>) -> GroupSeconds {
    let knows = |kinds: &&Kinds| kinds.keys().any(|(of, _)| *of == group);
    let sum = |kinds: Option<&Kinds>| kinds.filter(knows).map(|kinds| of_group(kinds, group));
    let names = [measured, predicted].into_iter().flatten().flat_map(BTreeMap::keys);
    // What the prediction knows of waits are those of the group.
    let all = |name: &str| [WAITS_FOR_COLLECTIVES, WAITS_FOR_STAGES].contains(&name);
    let mut keys: Vec<_> = names.filter(|(of, name)| *of == group && !all(name)).collect();
    keys.sort_unstable();
    keys.dedup();
    let kinds = keys.into_iter().map(|key| {
        let of = |kinds: Option<&Kinds>| kinds.and_then(|kinds| kinds.get(key).copied());
        KindSeconds { measured_s: of(measured), predicted_s: of(predicted), name: key.1.clone() }
    });
    GroupSeconds {
        measured_s: sum(measured),
        predicted_s: sum(predicted),
        name: name.to_owned(),
        kinds: kinds.collect(),
    }
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

    #[test]
    fn groups_have_what_either_side_knows() {
        let kinds = |entries: &[(&str, f64)]| -> Kinds {
            entries.iter().map(|(name, time)| ((Group::of(name), (*name).to_owned()), *time)).collect()
        };
        let measured = kinds(&[("gemm", 2.0), ("wait", 1.0)]);
        let predicted = kinds(&[(WAITS_FOR_COLLECTIVES, 0.5)]);
        let of = |group| of_both(group, "name", Some(&measured), Some(&predicted));
        let wait = KindSeconds { measured_s: Some(1.0), predicted_s: None, name: "wait".to_owned() };
        let waits =
            GroupSeconds { measured_s: Some(1.0), predicted_s: Some(0.5), name: "name".to_owned(), kinds: vec![wait] };
        assert_eq!(of(Group::Collectives), waits);
        assert_eq!(of(Group::Products).predicted_s, None);
        assert!(of(Group::Stages).kinds.is_empty());
    }
}
