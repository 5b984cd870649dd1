//! Every layout of a number of ranks over some axes, with all else as requested.

use quadrille_spec::{Axis, AxisSet, Grid, Layout, LayoutRequest, Model, SpecError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The grids of as many ranks as a request's grid has.
#[derive(Debug, Clone)]
pub struct Grids {
    /// Those that the model and the batch allow, with all else as requested; at least one.
    pub legal: Vec<Layout>,
    /// The others.
    pub skipped: Vec<Skipped>,
}

/// A grid that is left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Skipped {
    /// The grid.
    pub grid: String,
    /// The rule that it breaks.
    pub reason: String,
}

/// No grid is legal.
#[derive(Debug, Clone, thiserror::Error)]
#[error("none of the {grids} grids of {} ranks is legal for {model}; {last}: {reason}", last.ranks())]
pub struct NoGrid {
    /// How many there are.
    pub grids: usize,
    /// For what.
    pub model: String,
    /// One of them.
    pub last: Grid,
    /// The rule that it breaks.
    pub reason: Box<SpecError>,
}

impl Grids {
    /// Every grid over `axes`; where none are named, over x, y, z and data.
    ///
    /// # Errors
    /// No grid is legal: why the last one is not.
    pub fn all(model: &Model, request: &LayoutRequest, axes: Option<&[Axis]>) -> Result<Self, NoGrid> {
        let axes: AxisSet = axes.unwrap_or(&Axis::AXONN).iter().copied().collect();
        let mut legal = Vec::new();
        let mut skipped = Vec::new();
        let mut last: Option<(Grid, SpecError)> = None;
        for grid in Grid::all_over(request.grid.ranks(), axes) {
            let mut request = request.clone();
            request.grid = grid.with_order(request.grid.order());
            match Layout::new(model, &request) {
                Ok(layout) => legal.push(layout),
                Err(error) => {
                    skipped.push(Skipped { grid: grid.to_string(), reason: error.to_string() });
                    last = Some((grid, error));
                }
            }
        }
        match last {
            Some((last, error)) if legal.is_empty() => {
                let grids = skipped.len();
                let model = model.name.clone();
                Err(NoGrid { grids, model, last, reason: Box::new(error) })
            }
            _ => Ok(Self { legal, skipped }),
        }
    }
}
