//! Programs that differ from what the builder made.

use quadrille_step::{Collective, Lifetimes, Op, Operation, Placement, Section, StepProgram};

/// `program` with the operations of its pass and of its update section as `change` leaves them.
pub fn edited(program: &StepProgram, change: impl FnOnce(&mut Vec<Op>, &mut Vec<Op>)) -> StepProgram {
    let mut edited = program.clone();
    change(&mut edited.pass.ops, &mut edited.update.ops);
    for section in [&mut edited.pass, &mut edited.update] {
        let ops = std::mem::take(&mut section.ops);
        *section = Section { lifetimes: Lifetimes::of(&ops, &program.values, &program.storages), ops };
    }
    edited.placement = Placement::of(&[&edited.pass.lifetimes, &edited.update.lifetimes], &program.storages);
    edited
}

/// The collective that `op` issues or waits for.
pub fn is_collective(op: &Op) -> Option<Collective> {
    match op.operation {
        Operation::Issue(collective) | Operation::Wait(collective) => Some(collective),
        _ => None,
    }
}
