//! How many blocks lie between two kept inputs, where that is left to the predicted memory.

use quadrille_spec::{Layout, Model, Recompute};

use crate::{StepError, StepProgram};

/// The full recomputation, of every interval, with which the rank that allocates the most allocates the least: the exact
/// counterpart of `N/k + 1 + k` in the dissertation (equation 3.1). Of equal intervals the shortest. The layout's own choice does not
/// matter.
///
/// # Errors
/// A layout of which no program can be made.
pub fn least_interval(model: &Model, layout: &Layout) -> Result<Recompute, StepError> {
    let longest = layout.stage_blocks.iter().copied().max().unwrap_or(1).max(1);
    let mut least: Option<(u64, Recompute)> = None;
    for every in 1..=longest {
        let recompute = Recompute::Full { every };
        let bytes = allocated(&StepProgram::new(model, &Layout { recompute, ..layout.clone() })?);
        if least.is_none_or(|(before, _)| bytes < before) {
            least = Some((bytes, recompute));
        }
    }
    Ok(least.map_or(Recompute::Full { every: 1 }, |(_, recompute)| recompute))
}

/// Bytes of the rank that allocates the most.
fn allocated(program: &StepProgram) -> u64 {
    program.stages.iter().map(|stage| stage.allocated().values().sum()).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use quadrille_spec::{LayoutRequest, Schedule};

    use super::*;

    fn layout(model: &Model, grid: &str, microbatches: usize) -> Layout {
        let grid: quadrille_spec::Grid = grid.parse().unwrap();
        let schedule = if microbatches > 8 { Schedule::Gpipe } else { Schedule::OneForwardOneBackward };
        let request = LayoutRequest { microbatch: Some(4), schedule, ..LayoutRequest::new(grid, 4 * microbatches) };
        Layout::new(model, &request).unwrap()
    }

    #[test]
    fn no_interval_allocates_less_and_shorter_ones_allocate_more() {
        for (layers, grid, microbatches) in
            [(12, "x=2", 1), (12, "pipe=2", 4), (7, "pipe=3", 5), (2, "pipe=2", 2), (9, "x=1", 2)]
        {
            let model = Model::gpt(layers, 48, 4, 31, 16);
            let layout = layout(&model, grid, microbatches);
            let Recompute::Full { every: chosen } = least_interval(&model, &layout).unwrap() else { unreachable!() };
            let bytes = |every| {
                let recompute = Recompute::Full { every };
                allocated(&StepProgram::new(&model, &Layout { recompute, ..layout.clone() }).unwrap())
            };
            for every in 1..=layers {
                let least = bytes(chosen);
                let other = bytes(every);
                assert!(if every < chosen { least < other } else { least <= other }, "{grid}: {chosen} and {every}");
            }
        }
    }

    #[test]
    fn the_interval_grows_with_the_inputs_that_are_kept() {
        // GPipe keeps the inputs of all microbatches, so that fewer of them pay.
        let model = Model::gpt(16, 48, 4, 31, 16);
        let interval = |microbatches| match least_interval(&model, &layout(&model, "pipe=2", microbatches)).unwrap() {
            Recompute::Full { every } => every,
            other => panic!("{other}"),
        };
        assert!(interval(64) > interval(2), "{} {}", interval(64), interval(2));
    }
}
