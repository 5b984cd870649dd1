//! The curves of a run: loss, gradient norm, learning rate, speed, and what routers of experts do.

use quadrille_engine::{Routed, StepRecord};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::read::Run;
use crate::curve::{CurvePoint, curve};

/// Steps that stand out or were not applied, of which a page shows the newest.
const MOST_MARKS: usize = 500;

/// Curves of a run over its steps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunCurves {
    /// Mean loss in nats.
    pub loss: Vec<CurvePoint>,
    /// Norm of the gradient before clipping.
    pub grad_norm: Vec<CurvePoint>,
    /// Learning rate.
    pub lr: Vec<CurvePoint>,
    /// Tokens in a second.
    pub tokens_per_second: Vec<CurvePoint>,
    /// Loss of validations.
    pub validation: Vec<CurvePoint>,
    /// Steps that stand out or were not applied, the newest first.
    pub marks: Vec<MarkedStep>,
    /// Least loss that a model can reach; null where it is not known.
    pub floor: Option<f64>,
    /// Curves of routers; absent if missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub router: Option<RouterCurves>,
}

/// Curves of routers of experts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RouterCurves {
    /// Loss of balance.
    pub balance: Vec<CurvePoint>,
    /// Part of the choices that were dropped.
    pub dropped: Vec<CurvePoint>,
    /// Load of the fullest expert as a multiple of the mean.
    pub most: Vec<CurvePoint>,
    /// Load of the fullest rank as a multiple of the mean.
    pub imbalance: Vec<CurvePoint>,
}

/// A step that stands out or was not applied.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MarkedStep {
    /// The step.
    pub step: u64,
    /// Its loss; null where it is not finite.
    pub loss: Option<f64>,
    /// `not applied` or `stands out`.
    pub kind: String,
}

/// Curves of a run; `None` of one without steps.
pub fn curves(run: &Run) -> Option<RunCurves> {
    if run.steps.is_empty() {
        return None;
    }
    let of = |value: fn(&StepRecord) -> f64| curve(run.steps.iter().map(|step| (step.step, value(step))));
    let routed =
        |value: fn(Routed) -> f64| curve(run.steps.iter().map(|step| (step.step, step.router.map_or(f64::NAN, value))));
    let router = || RouterCurves {
        balance: routed(|it| it.balance),
        dropped: routed(|it| it.dropped),
        most: routed(|it| it.most),
        imbalance: routed(|it| it.imbalance),
    };
    Some(RunCurves {
        loss: of(|step| step.loss),
        grad_norm: of(|step| step.grad_norm),
        lr: of(|step| step.lr),
        tokens_per_second: of(|step| step.tokens_per_second),
        validation: validation(run),
        marks: marks(run),
        floor: run.floor,
        router: run.steps.iter().any(|step| step.router.is_some()).then(router),
    })
}

fn validation(run: &Run) -> Vec<CurvePoint> {
    let validations = run.events.iter().filter(|event| event.kind == "validation");
    curve(validations.map(|event| (event.step, event.loss.unwrap_or(f64::NAN))))
}

/// The newest steps that stand out or were not applied.
fn marks(run: &Run) -> Vec<MarkedStep> {
    let marks = run.steps.iter().rev().filter_map(|step| {
        let kind = match step {
            StepRecord { applied: false, .. } => "not applied",
            StepRecord { spike: true, .. } => "stands out",
            _ => return None,
        };
        let loss = Some(step.loss).filter(|loss| loss.is_finite());
        Some(MarkedStep { step: step.step, loss, kind: kind.to_owned() })
    });
    marks.take(MOST_MARKS).collect()
}
