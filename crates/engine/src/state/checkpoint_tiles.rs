//! The state of a rank as tiles of logical tensors: what a checkpoint takes from it and gives to it.
//!
//! Every element of a parameter and of its moments is written by one rank, the one that counts it in the gradient norm.
//! Who writes follows from the sharding of what the optimizer updates, so a ZeRO rank writes its own shard.

use std::collections::HashSet;

use quadrille_checkpoint::{Checkpoint, Quantity, TensorShape, Tile};
use quadrille_comm::Label;
use quadrille_spec::{Axis, Coordinate};
use quadrille_step::{Layer, Parameter, ParameterId, StageProgram, StepProgram};
use quadrille_tensor::{Element, Stored};

use super::masks::{MaskReader, check_pruned};
use crate::backend::View;
use crate::interpreter::Interpreter;
use crate::optimizer::tier::State;
use crate::training::loop_state::updates;
use crate::{Backend, EngineError, RankEngine, Run, Shard};

/// Parts of a checkpoint that a rank restores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Restore {
    /// Parameters, moments and the number of steps done: a run that goes on.
    Everything,
    /// Parameters only: a run that begins from a trained model.
    Values,
}

/// The shape of every parameter that a program's ranks hold together.
pub fn tensor_shapes(program: &StepProgram) -> Vec<TensorShape> {
    let shape = |each: &Parameter| TensorShape { name: each.name.clone(), rows: each.rows, cols: each.cols };
    program.parameters().map(|(_, parameter)| shape(parameter)).collect()
}

/// Refuses a checkpoint whose tensors are not those of the program.
pub(crate) fn check_tensors(program: &StepProgram, checkpoint: &Checkpoint) -> Result<(), EngineError> {
    let missing = |shapes: &[TensorShape], others: &[TensorShape]| {
        let others: HashSet<_> = others.iter().map(|each| (&each.name, each.rows, each.cols)).collect();
        let missing = shapes.iter().find(|each| !others.contains(&(&each.name, each.rows, each.cols)));
        missing.map(|TensorShape { name, rows, cols }| format!("{name} [{rows}, {cols}]"))
    };
    let wanted = tensor_shapes(program);
    let held = checkpoint.tensors();
    let path = checkpoint.path().display().to_string();
    if let Some(tensor) = missing(&wanted, held) {
        return Err(EngineError::OtherModel { path, what: "does not hold", tensor });
    }
    match missing(held, &wanted) {
        Some(tensor) => Err(EngineError::OtherModel { path, what: "also holds", tensor }),
        None => Ok(()),
    }
}

/// The ranks that write a part of a checkpoint. Of pruned parameters it is the mask that says who has some; all are
/// named who may.
pub fn writers(program: &StepProgram) -> Vec<usize> {
    let grid = &program.layout.grid;
    let writes = |rank: &usize| {
        let stage = program.of_rank(*rank);
        let place = grid.coordinate(*rank);
        let shard = |each: &Parameter| Shard::of(stage, each, each.updated, place);
        let (pruned, whole): (Vec<&Parameter>, _) =
            stage.parameters.iter().partition(|parameter| parameter.compressed.is_some());
        whole.into_iter().any(|parameter| !owned(stage, parameter, shard(parameter), place).is_empty())
            || pruned.into_iter().any(|parameter| stage.value(parameter.updated).sharding.is_owner(place))
    };
    (0..grid.ranks()).filter(writes).collect()
}

/// A rectangle of a parameter, and where its rows begin in the shard that the optimizer updates.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Rectangle {
    row: usize,
    col: usize,
    cols: usize,
    locals: Vec<usize>,
}

/// The rectangles that the rank at `place` writes of a parameter, whose part `shard` it updates.
fn owned(program: &StageProgram, parameter: &Parameter, shard: Shard, place: Coordinate) -> Vec<Rectangle> {
    if parameter.copy || !program.value(parameter.updated).sharding.is_owner(place) {
        return Vec::new();
    }
    // Of ranks that hold the same keys and values the first of their block writes them.
    let elsewhere = parameter.shared.filter(|shared| !place.on(Axis::X).is_multiple_of(shared.copies));
    let runs = shard.runs().filter(|run| run.row < parameter.rows);
    rectangles(runs.filter(|run| !elsewhere.is_some_and(|shared| shared.is_copied(run.col))))
}

/// Runs below each other, put together.
fn rectangles(runs: impl Iterator<Item = Run>) -> Vec<Rectangle> {
    let mut done: Vec<Rectangle> = Vec::new();
    // Rectangles that the next row may continue, by where they are in `done`.
    let mut open: Vec<usize> = Vec::new();
    for Run { local, row, col, len } in runs {
        open.retain(|index| done[*index].row + done[*index].locals.len() >= row);
        let continued = open.iter().find(|index| {
            let above = &done[**index];
            (above.col, above.cols, above.row + above.locals.len()) == (col, len, row)
        });
        if let Some(index) = continued {
            done[*index].locals.push(local);
        } else {
            open.push(done.len());
            done.push(Rectangle { row, col, cols: len, locals: vec![local] });
        }
    }
    done
}

/// A tile of a logical tensor with its numbers, row by row.
pub type OwnTile<T> = (Tile, Vec<T>);

impl<B: Backend> RankEngine<'_, B> {
    /// Copies of what this rank writes into a checkpoint, row by row.
    ///
    /// # Errors
    /// The job was stopped.
    pub fn own_tiles(&mut self) -> Result<Vec<OwnTile<B::Real>>, EngineError> {
        let interpreter = &mut self.interpreter;
        interpreter.communicators.enter(Layer::Step, "copy state")?;
        interpreter.settle()?;
        let Interpreter { rank, backend, kept, optimizer, .. } = &*interpreter;
        let mut tiles = Vec::new();
        for (index, parameter) in rank.program.parameters.iter().enumerate() {
            let id = ParameterId(index);
            let shard = kept.shard(id, parameter.updated)?;
            let elements = shard.elements();
            let rectangles = owned(rank.program, parameter, shard, rank.place);
            let mut copy = |quantity: Quantity, source: &[B::Real]| {
                for Rectangle { row, col, cols, locals } in &rectangles {
                    let mut numbers = Vec::with_capacity(locals.len() * cols);
                    locals.iter().for_each(|local| numbers.extend_from_slice(&source[*local..local + cols]));
                    let tensor = parameter.name.clone();
                    let [row, col, cols] = [*row, *col, *cols];
                    tiles.push((Tile { tensor, quantity, row, col, rows: locals.len(), cols }, numbers));
                }
            };
            let part = kept.part(id, parameter.updated)?;
            for (quantity, state) in Quantity::NUMBERS.into_iter().zip(State::ALL) {
                match (optimizer.read(kept, id, state, |source| copy(quantity, source))?, state) {
                    (Some(()), _) => {}
                    // What has no master is its own.
                    (None, State::Master) => {
                        let own = match &part {
                            None => interpreter.read(parameter.updated)?,
                            Some(part) => interpreter.read(parameter.value)?.part(part.tile.clone()),
                        };
                        backend.download(own, |source| copy(quantity, source))?;
                    }
                    // What is not trained has no moments.
                    (None, State::Mean | State::Squares) => copy(quantity, &vec![B::Real::ZERO; elements]),
                }
            }
            if let Some(part) = part {
                copy(Quantity::Kept, &part.expanded(&vec![B::Real::ONE; part.places().count()]));
            }
        }
        Ok(tiles)
    }

    /// Takes this rank's part of a checkpoint that any layout has written.
    ///
    /// # Errors
    /// A damaged file; a checkpoint of another model, or without what is asked for; the job was stopped.
    pub fn load(&mut self, checkpoint: &Checkpoint, restore: Restore) -> Result<(), EngineError> {
        let interpreter = &mut self.interpreter;
        let program = interpreter.rank.program;
        interpreter.communicators.context.enter(Label::new("start"), "loading the checkpoint")?;
        interpreter.settle()?;
        check_tensors(self.whole, checkpoint)?;
        check_pruned(program, &self.whole.kept, checkpoint)?;
        interpreter.kept.use_masks(&mut MaskReader::of(checkpoint))?;
        let Interpreter { backend, storages, kept, optimizer, step, .. } = interpreter;
        let mut reader = checkpoint.reader();
        for (index, parameter) in program.parameters.iter().enumerate() {
            let id = ParameterId(index);
            let storage = program.value(parameter.value).storage;
            let stored = kept.shard(id, parameter.value)?;
            let updated = kept.shard(id, parameter.updated)?;
            let mut part = |quantity: Quantity, shard: Shard, out: &mut [B::Real]| {
                let mut runs = shard.runs().filter(|run| run.row < parameter.rows);
                runs.try_for_each(|Run { local, row, col, len }| {
                    reader.read(&parameter.name, quantity, row, col, &mut out[local..local + len])
                })
            };
            let mut values = storages.take(storage)?;
            let read = backend.upload(&mut values.whole_mut(), |out| part(Quantity::Value, stored, out));
            storages.put(storage, values);
            read??;
            if let Some(compressed) = parameter.compressed
                && kept.zero_pruned(storages, id, compressed)?
            {
                let path = checkpoint.path().display().to_string();
                let tensor = parameter.name.clone();
                return Err(EngineError::NotPruned { path, tensor });
            }
            for (quantity, state) in Quantity::NUMBERS.into_iter().zip(State::ALL) {
                if state == State::Master || restore == Restore::Everything {
                    let read = optimizer.change(kept, id, state, |out| part(quantity, updated, out))?;
                    read.transpose()?;
                }
            }
        }
        if restore == Restore::Everything {
            step.number = checkpoint.about().step;
            optimizer.updates = updates(checkpoint);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(local: usize, row: usize, col: usize, len: usize) -> Run {
        Run { local, row, col, len }
    }

    #[test]
    fn rows_below_each_other_are_one_rectangle() {
        // A flat shard: the end of a row, two whole rows, the beginning of one.
        let flat = [run(0, 1, 3, 2), run(2, 2, 0, 5), run(7, 3, 0, 5), run(12, 4, 0, 1)];
        let found = rectangles(flat.into_iter());
        let shape = |each: &Rectangle| (each.row, each.col, each.locals.len(), each.cols);
        assert_eq!(found.iter().map(shape).collect::<Vec<_>>(), [(1, 3, 1, 2), (2, 0, 2, 5), (4, 0, 1, 1)]);
        // Columns in two places of each row, the second row of the first place missing.
        let apart = [run(0, 0, 0, 2), run(2, 0, 6, 1), run(3, 1, 6, 1), run(4, 2, 0, 2), run(6, 2, 6, 1)];
        let found = rectangles(apart.into_iter());
        assert_eq!(found.iter().map(shape).collect::<Vec<_>>(), [(0, 0, 1, 2), (0, 6, 3, 1), (2, 0, 1, 2)]);
        assert_eq!(found[1].locals, [2, 3, 6]);
    }
}
