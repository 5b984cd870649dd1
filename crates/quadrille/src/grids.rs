//! Every layout of a number of ranks over some axes.

use quadrille_spec::{Axis, AxisSet, Grid, Layout, LayoutRequest, Model, SpecError};
use serde::Serialize;

use crate::failure::Failure;

/// The grids of as many ranks as a request's grid has.
pub struct Grids {
    /// Those that the model and the batch allow, with all else as requested; at least one.
    pub legal: Vec<Layout>,
    /// The others.
    pub skipped: Vec<Skipped>,
}

/// A grid that is left out.
#[derive(Debug, Serialize)]
pub struct Skipped {
    pub grid: String,
    pub reason: String,
}

impl Grids {
    /// Every grid over `axes`; where none are named, over x, y, z and data.
    ///
    /// # Errors
    /// No grid is legal: why the last one is not.
    pub fn all(model: &Model, request: &LayoutRequest, axes: Option<&[Axis]>) -> Result<Self, Failure> {
        let axes: AxisSet = axes.unwrap_or(&Axis::AXONN).iter().copied().collect();
        let (mut legal, mut skipped) = (Vec::new(), Vec::new());
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
            Some((grid, error)) if legal.is_empty() => Err(Failure::usage(format!(
                "none of the {} grids of {} ranks is legal for {}; {grid}: {error}",
                skipped.len(),
                grid.ranks(),
                model.name
            ))),
            _ => Ok(Self { legal, skipped }),
        }
    }
}
