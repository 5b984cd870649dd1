//! The curves of a run: loss, gradient norm, learning rate, speed, and what routers of experts do.

use quadrille_engine::{Routed, StepRecord};
use serde_json::{Value, json};

use super::read::Run;
use crate::curve::curve;

/// Steps that stand out or were not applied, of which a page shows the newest.
const MOST_MARKS: usize = 500;

/// `null` of a run without steps.
pub fn curves(run: &Run) -> Value {
    if run.steps.is_empty() {
        return Value::Null;
    }
    let of = |value: fn(&StepRecord) -> f64| curve(run.steps.iter().map(|step| (step.step, value(step))));
    let mut curves = json!({
        "loss": of(|step| step.loss),
        "grad_norm": of(|step| step.grad_norm),
        "lr": of(|step| step.lr),
        "tokens_per_second": of(|step| step.tokens_per_second),
        "validation": validation(run),
        "marks": marks(run),
        "floor": run.floor,
    });
    if run.steps.iter().any(|step| step.router.is_some()) {
        let routed = |value: fn(Routed) -> f64| {
            curve(run.steps.iter().map(|step| (step.step, step.router.map_or(f64::NAN, value))))
        };
        curves["router"] = json!({
            "balance": routed(|it| it.balance),
            "dropped": routed(|it| it.dropped),
            "most": routed(|it| it.most),
            "imbalance": routed(|it| it.imbalance),
        });
    }
    curves
}

fn validation(run: &Run) -> Value {
    let validations = run.events.iter().filter(|event| event.kind == "validation");
    curve(validations.map(|event| (event.step, event.loss.unwrap_or(f64::NAN))))
}

/// The newest steps that stand out or were not applied.
fn marks(run: &Run) -> Value {
    let marks = run.steps.iter().rev().filter_map(|step| {
        let kind = match step {
            StepRecord { applied: false, .. } => "not applied",
            StepRecord { spike: true, .. } => "stands out",
            _ => return None,
        };
        let loss = Some(step.loss).filter(|loss| loss.is_finite());
        Some(json!({ "step": step.step, "loss": loss, "kind": kind }))
    });
    marks.take(MOST_MARKS).collect()
}
