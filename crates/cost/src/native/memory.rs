//! The bytes of ranks, from their programs.

use quadrille_spec::MemoryClass;
use quadrille_step::{FoldedProgram, Living, StageProgram};

use super::{Memory, Problem};

impl Problem {
    /// What a rank of the stage that needs most has; the first of several.
    pub(super) fn memory_of_program(&self, program: &mut FoldedProgram) -> Memory {
        let larger = |most: Memory, other: Memory| if other.total() > most.total() { other } else { most };
        self.memories(program).into_iter().reduce(larger).unwrap_or_default()
    }

    /// What a rank of each stage has.
    pub fn memories(&self, program: &mut FoldedProgram) -> Vec<Memory> {
        if self.framework.is_own() {
            return (0..program.stages.len()).map(|stage| allocated(program.unfolded(stage))).collect();
        }
        let living = program.living();
        living.iter().enumerate().map(|(stage, living)| self.beside(stage, living)).collect()
    }

    /// What a rank of a stage has: of this program's engine what it allocates; of others what lives at the worst moment, and
    /// what their libraries take and their allocators lose beside it.
    pub fn memory_of_stage_program(&self, program: &StageProgram) -> Memory {
        if self.framework.is_own() {
            return allocated(program);
        }
        self.beside(program.stage, &program.living())
    }

    /// What lives on a rank of a stage, with what is taken and lost beside it.
    fn beside(&self, stage: usize, living: &Living) -> Memory {
        let [parameters, gradients, optimizer] =
            [MemoryClass::Parameters, MemoryClass::Gradients, MemoryClass::Optimizer].map(|class| living.most(class));
        let rest = living.peak - parameters - gradients - optimizer;
        let activations = living.most(MemoryClass::Activations).min(rest);
        let lost = living.peak as f64 * (self.framework.allocator_factor - 1.0);
        Memory {
            stage,
            parameters,
            gradients,
            optimizer,
            activations,
            buffers: rest - activations,
            framework: self.framework.reserved_on(self.device_memory) + lost.ceil() as u64,
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
