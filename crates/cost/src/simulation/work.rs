//! The work of an operation on the compute stream: FLOPs and bytes of memory traffic.

use quadrille_step::{Operation, StageProgram, ValueId, operation_flops, rotated_elements};

/// What an operation computes and moves on one rank.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Work {
    /// FLOPs of products and attention, as ledgers count them; 0 for element-wise operations.
    pub flops: f64,
    /// Bytes read from and written to the device's memory.
    pub bytes: f64,
}

impl Work {
    /// The work of an operation; none for communication.
    ///
    /// FLOPs are those of the ledger. Every operand is read or written once: a fused kernel that keeps the rest in caches. Where an
    /// operation touches a part of an operand only, the part counts; panels count as on the rank that holds them, for
    /// which the others wait.
    pub fn of(program: &StageProgram, operation: &Operation) -> Self {
        let bytes = moved_elements(program, operation) as f64 * program.layout.dtype.bytes() as f64;
        Self { flops: operation_flops(program, operation) as f64, bytes }
    }
}

fn moved_elements(program: &StageProgram, operation: &Operation) -> usize {
    let elements = |value: ValueId| program.value(value).local_elements;
    match *operation {
        // What is moved is read and written, not the table or tile that it lies in.
        Operation::Embed { output, .. }
        | Operation::CopyPanel { output, .. }
        | Operation::SliceRows { output, .. }
        | Operation::SliceColumns { output, .. }
        | Operation::PackKeysValues { output, .. } => 2 * elements(output),
        Operation::StorePanel { input, .. } | Operation::UnpackKeysValues { input, .. } => 2 * elements(input),
        // Values are left alone.
        Operation::Rotate { input, .. } => 2 * rotated_elements(program, input),
        // The gradient is read, the rows of the table's gradient are read and written.
        Operation::EmbedBackward { gradient, .. } => 3 * elements(gradient),
        // The gradient is read; the weights and two moments are read and written.
        Operation::AdamW { value, .. } => 7 * elements(value),
        Operation::Issue(_) | Operation::Wait(_) | Operation::WaitCarried(_) | Operation::ReduceScalar { .. } => 0,
        _ => {
            let (reads, writes) = operation.operands();
            reads.into_iter().chain(writes).map(elements).sum()
        }
    }
}
