//! Memory by our own programs: the interval of kept activations that is best, the bytes of a parameter's states.

use quadrille_spec::{Axis, ElementType, Layout, LayoutRequest, MemoryClass, Model, Recompute, Schedule, SpecError};
use quadrille_step::{Formats, Practice, StepProgram};

/// Blocks between two kept inputs with which the fullest stage has least activations: of all of a stage's blocks, not only
/// of their factors; of equally good ones the smallest. A pipeline of `stages` stages as AxoNN's, values in 16 bits, with
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
    let bytes = |every: usize| {
        let request = LayoutRequest { recompute: Recompute::Full { every }, ..request.clone() };
        Ok((activations(model, &Layout::new(model, &request)?)?, every))
    };
    let all = (1..=model.layers() / stages).map(bytes).collect::<Result<Vec<_>, SpecError>>()?;
    Ok(all.into_iter().min().map_or(1, |(_, every)| every))
}

/// The most bytes of activations of a rank, on the fullest stage.
fn activations(model: &Model, layout: &Layout) -> Result<u64, SpecError> {
    let program = StepProgram::folded(model, layout, Practice::of(layout)).map_err(|error| {
        SpecError::invalid("recompute", layout.recompute, error.to_string(), "correct the published figures' file")
    })?;
    Ok(program.living().iter().map(|living| living.most(MemoryClass::Activations)).max().unwrap_or(0))
}

/// Bytes of a parameter with values and gradients in 16 bits: its weight, and gradient, master copy and moments together.
pub fn state_bytes() -> [f64; 2] {
    let formats = Formats::of(ElementType::F16, ElementType::F16);
    [formats.weights as f64, (formats.gradients + formats.masters + formats.moments) as f64]
}
