//! The bytes of ranks, from their programs.

use quadrille_spec::MemoryClass;
use quadrille_step::{FoldedProgram, StageProgram};

use super::{Memory, Problem};

impl Problem {
    /// What a rank of the stage that needs most has; the first of several.
    pub(super) fn memory_of_program(&self, program: &mut FoldedProgram) -> Memory {
        let stages = 0..program.stages.len();
        let memories = stages.map(|stage| self.memory_of_stage_program(program.unfolded(stage)));
        memories.reduce(|most, other| if other.total() > most.total() { other } else { most }).unwrap_or_default()
    }

    /// What a rank of a stage has: of this program's engine what it allocates; of others what lives at the worst moment, and
    /// what their libraries take and their allocators lose beside it.
    pub fn memory_of_stage_program(&self, program: &StageProgram) -> Memory {
        if self.framework.is_own() {
            return allocated(program);
        }
        let ledger = program.memory();
        let most = |class: MemoryClass| ledger.peak_of.get(&class).copied().unwrap_or(0);
        let [parameters, gradients, optimizer] =
            [MemoryClass::Parameters, MemoryClass::Gradients, MemoryClass::Optimizer].map(most);
        let rest = ledger.peak - parameters - gradients - optimizer;
        let activations = most(MemoryClass::Activations).min(rest);
        let lost = ledger.peak as f64 * (self.framework.allocator_factor - 1.0);
        Memory {
            stage: program.stage,
            parameters,
            gradients,
            optimizer,
            activations,
            buffers: rest - activations,
            framework: self.framework.reserved_bytes + lost.ceil() as u64,
        }
    }
}

/// What a rank of the stage allocates.
fn allocated(program: &StageProgram) -> Memory {
    let bytes = program.allocated();
    let of = |classes: &[MemoryClass]| classes.iter().filter_map(|class| bytes.get(class)).sum();
    Memory {
        stage: program.stage,
        parameters: of(&[MemoryClass::Parameters]),
        gradients: of(&[MemoryClass::Gradients]),
        optimizer: of(&[MemoryClass::Optimizer]),
        activations: of(&[MemoryClass::Activations]),
        buffers: of(&[MemoryClass::GatheredWeights, MemoryClass::Buffers]),
        framework: 0,
    }
}
