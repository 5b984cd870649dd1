//! The curves of a run: loss, gradient norm, learning rate, speed.

use quadrille_engine::StepRecord;

use super::chart::{Axis, Chart, Line, Marks};
use super::read::Run;

/// Of the chart of losses.
const LARGE: [f64; 2] = [960.0, 360.0];
/// Of the others.
const SMALL: [f64; 2] = [470.0, 240.0];
const TRAINING: &str = "var(--blue)";
const VALIDATION: &str = "var(--orange)";
const SPIKE: &str = "var(--yellow)";
const SKIPPED: &str = "var(--red)";

/// The charts as HTML.
pub fn curves(run: &Run) -> String {
    let (Some(first), Some(last)) = (run.steps.first(), run.steps.last()) else {
        return "<p>No step is done.</p>\n".to_owned();
    };
    let steps = [first.step, last.step];
    let unit = run.program.model.sequence_unit();
    let speed = format!("{} per second", capitalised(unit));
    let norm =
        Chart { axis: Axis::Close, ..small(run, steps, "Gradient norm, before clipping", |step| step.grad_norm) };
    let rate = small(run, steps, "Learning rate", |step| step.lr);
    let speed = small(run, steps, &speed, |step| step.tokens_per_second);
    let routed = run.steps.iter().any(|step| step.router.is_some()).then(|| {
        let balance = |step: &StepRecord| step.router.map_or(f64::NAN, |it| it.balance);
        let dropped = |step: &StepRecord| step.router.map_or(f64::NAN, |it| it.dropped);
        let most = |step: &StepRecord| step.router.map_or(f64::NAN, |it| it.most);
        let imbalance = |step: &StepRecord| step.router.map_or(f64::NAN, |it| it.imbalance);
        [
            small(run, steps, "Balance loss of experts", balance),
            small(run, steps, "Part of choices that is dropped", dropped),
            small(run, steps, "Largest load of an expert, as a multiple of the mean", most),
            small(run, steps, "Load of the fullest ranks, as a multiple of the mean", imbalance),
        ]
    });
    let small: String = [norm, rate, speed].iter().chain(routed.iter().flatten()).map(Chart::draw).collect();
    format!("{}<div class=\"charts\">\n{small}</div>\n", loss(run, steps).draw())
}

fn capitalised(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// Losses with validation, floor, spikes and steps that were not applied.
fn loss(run: &Run, steps: [u64; 2]) -> Chart<'static> {
    let validations = run.events.iter().filter(|event| event.kind == "validation");
    let validation = validations.map(|event| {
        let loss = event.loss.unwrap_or(f64::NAN);
        (event.step, loss, format!("step {}: validation loss {loss:.4}", event.step))
    });
    let marked = |name, colour, of: fn(&StepRecord) -> bool, what: &str| {
        let points = run.steps.iter().filter(|step| of(step)).map(|record| {
            let StepRecord { step, loss, .. } = *record;
            (step, loss, format!("step {step}: loss {loss:.4}, {what}"))
        });
        Marks { name, colour, points: points.collect() }
    };
    Chart {
        title: if run.program.model.patch_values.is_some() {
            "Loss: mean squared error"
        } else {
            "Loss, nats per token"
        },
        size: LARGE,
        steps,
        axis: Axis::Close,
        lines: vec![
            Line { name: "training", colour: TRAINING, points: points(run, |step| step.loss) },
            Line { name: "validation", colour: VALIDATION, points: validation.collect() },
        ],
        marks: vec![
            marked("spike", SPIKE, |step| step.spike && step.applied, "stands out"),
            marked("not applied", SKIPPED, |step| !step.applied, "not applied"),
        ],
        level: run.floor.map(|floor| (floor, format!("floor {floor:.4}"))),
    }
}

fn small<'a>(run: &Run, steps: [u64; 2], title: &'a str, of: fn(&StepRecord) -> f64) -> Chart<'a> {
    let lines = vec![Line { name: title, colour: TRAINING, points: points(run, of) }];
    Chart { title, size: SMALL, steps, axis: Axis::FromZero, lines, marks: Vec::new(), level: None }
}

fn points(run: &Run, of: fn(&StepRecord) -> f64) -> Vec<(u64, f64, String)> {
    run.steps.iter().map(|step| (step.step, of(step), String::new())).collect()
}
