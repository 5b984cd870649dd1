//! Programs that differ from what the builder made.

use quadrille_step::{ChunkProgram, Collective, Op, Operation, StageProgram, StepProgram};

/// Where an operation stands: its stage, its list (the passes of every chunk, then the update), its place there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The coordinate on the pipe axis.
    pub stage: usize,
    /// The number of the list.
    pub list: usize,
    /// The number of the operation.
    pub index: usize,
}

/// Every operation of a program with its place, in the order of stages and lists.
pub fn operations(program: &StepProgram) -> Vec<(Place, &Op)> {
    let mut operations = Vec::new();
    for (stage, its) in program.stages.iter().enumerate() {
        let passes = its.chunks.iter().flat_map(ChunkProgram::sections);
        for (list, section) in passes.chain([&its.update]).enumerate() {
            let placed = section.ops.iter().enumerate();
            operations.extend(placed.map(|(index, op)| (Place { stage, list, index }, op)));
        }
    }
    operations
}

/// The operations of the passes over a microbatch, without the update, of all stages.
pub fn pass_operations(program: &StepProgram) -> Vec<(Place, &Op)> {
    let mut operations = operations(program);
    operations.retain(|(place, _)| place.list < 3 * program.layout.chunks);
    operations
}

/// `program` with one stage as `change` leaves it.
pub fn edited_stage(program: &StepProgram, stage: usize, change: impl FnOnce(&mut StageProgram)) -> StepProgram {
    let mut edited = program.clone();
    let stage = &mut edited.stages[stage];
    change(stage);
    stage.place_storages();
    edited
}

/// `program` with the list of operations at `place` as `change` leaves it; it is also given the index there.
pub fn edited_at(program: &StepProgram, place: Place, change: impl FnOnce(&mut Vec<Op>, usize)) -> StepProgram {
    edited_stage(program, place.stage, |stage| {
        let passes = stage.chunks.iter_mut();
        let passes = passes.flat_map(|chunk| [&mut chunk.forward, &mut chunk.backward, &mut chunk.weight_gradient]);
        if let Some(section) = passes.chain([&mut stage.update]).nth(place.list) {
            change(&mut section.ops, place.index);
        }
    })
}

/// `program`, of one stage and chunk without put-off weight gradients, with the operations of its passes (forward,
/// backward) and of its update section as `change` leaves them.
///
/// # Panics
/// If the program has several stages or chunks.
pub fn edited(program: &StepProgram, change: impl FnOnce(&mut Vec<Op>, &mut Vec<Op>, &mut Vec<Op>)) -> StepProgram {
    assert_eq!((program.stages.len(), program.layout.chunks), (1, 1), "one stage, one chunk");
    edited_stage(program, 0, |stage| {
        let chunk = &mut stage.chunks[0];
        change(&mut chunk.forward.ops, &mut chunk.backward.ops, &mut stage.update.ops);
    })
}

/// `program`, as for [`edited`], with the operations of its update that `change` gives for each.
///
/// # Panics
/// As [`edited`].
pub fn with_update(program: &StepProgram, change: impl Fn(&Op) -> Vec<Operation>) -> StepProgram {
    edited(program, |_, _, update| {
        let each = |op: &Op| change(op).into_iter().map(|operation| Op { operation, ..*op }).collect::<Vec<_>>();
        *update = update.iter().flat_map(each).collect();
    })
}

/// `program` with every operation of every stage replaced by those that `change` gives for it.
pub fn replaced(program: &StepProgram, change: impl Fn(&Op) -> Vec<Op>) -> StepProgram {
    let stages = 0..program.stages.len();
    stages.fold(program.clone(), |program, stage| {
        edited_stage(&program, stage, |stage| {
            let passes = stage.chunks.iter_mut();
            let passes = passes.flat_map(|chunk| [&mut chunk.forward, &mut chunk.backward, &mut chunk.weight_gradient]);
            for section in passes.chain([&mut stage.update]) {
                section.ops = section.ops.iter().flat_map(&change).collect();
            }
        })
    })
}

/// The collective that `op` issues or waits for.
pub fn is_collective(op: &Op) -> Option<Collective> {
    match op.operation {
        Operation::Issue(collective) | Operation::Wait(collective) => Some(collective),
        _ => None,
    }
}
