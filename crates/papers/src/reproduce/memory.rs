//! Memory by our own programs: the interval of kept activations that is best, the bytes of a parameter's states.

use quadrille_spec::{Axis, ElementType, Layout, LayoutRequest, Model, Recompute, Schedule, SpecError};
use quadrille_step::{Formats, StepError};

/// Blocks between two kept inputs with which the fullest stage allocates the least, by [`quadrille_step::least_interval`]:
/// of all of a stage's blocks, not only of their factors. A pipeline of `stages` stages as AxoNN's, values in 16 bits, with
/// as many microbatches of one sequence as may be in flight.
pub fn least_interval(model: &Model, stages: usize) -> Result<usize, SpecError> {
    let grid = format!("{}={stages}", Axis::Pipe).parse()?;
    let request = LayoutRequest {
        schedule: Schedule::MessageDriven,
        microbatch: Some(1),
        dtype: ElementType::F16,
        gradients: Some(ElementType::F16),
        ..LayoutRequest::new(grid, stages)
    };
    let wrong = |error: StepError| {
        SpecError::invalid("stages", stages, error.to_string(), "correct the published figures' file")
    };
    match quadrille_step::least_interval(model, &Layout::new(model, &request)?).map_err(wrong)? {
        Recompute::Full { every } => Ok(every),
        Recompute::None | Recompute::Selective => Ok(0),
    }
}

/// Bytes of a parameter with values and gradients in 16 bits: its weight, and gradient, master copy and moments together.
pub fn state_bytes() -> [f64; 2] {
    let formats = Formats::of(ElementType::F16, ElementType::F16);
    [formats.weights as f64, (formats.gradients + formats.masters + formats.moments) as f64]
}
