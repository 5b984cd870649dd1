//! The work of an operation on the compute stream: FLOPs and bytes of memory traffic.

use quadrille_step::{Operation, Product, StageProgram, ValueId};

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
    /// A product `[m,k] [k,n]` counts 2mkn FLOPs, attention 4 s per element of its output and twice that backward, as
    /// ledgers do. Every operand is read or written once: a fused kernel that keeps the rest in caches. Where an
    /// operation touches a part of an operand only, the part counts; panels count as on the rank that holds them, for
    /// which the others wait.
    pub fn of(program: &StageProgram, operation: &Operation) -> Self {
        let bytes = moved_elements(program, operation) as f64 * program.layout.dtype.bytes() as f64;
        Self { flops: flops(program, operation), bytes }
    }
}

fn flops(program: &StageProgram, operation: &Operation) -> f64 {
    if let Some(Product { m, n, k, .. }) = operation.product(program) {
        return 2.0 * m as f64 * n as f64 * k as f64;
    }
    let attention = |output: ValueId| 4.0 * program.layout.seq_len as f64 * program.value(output).local_elements as f64;
    match *operation {
        Operation::Attention { output, .. } => attention(output),
        Operation::AttentionBackward { result, .. } => 2.0 * attention(result),
        _ => 0.0,
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
