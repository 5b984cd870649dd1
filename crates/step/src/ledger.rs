//! The predicted ledger: what a rank will send, compute and hold in one step, from the program alone.

use std::collections::{BTreeMap, BTreeSet};

use quadrille_spec::{
    AxesLedger, Axis, AxisSet, CollectiveKind, FlopsLedger, LayerLedger, Ledger, MemoryClass, MemoryLedger, RankLedger,
    Transfer,
};

use crate::{GemmPass, Layer, Op, Operation, Product, Section, StepError, StepProgram, ValueId, ring_wire_bytes};

/// Bytes of a scalar that is reduced in f64.
const SCALAR_BYTES: u64 = 8;

/// The ledgers of all ranks for one step.
pub fn predict(program: &StepProgram) -> Ledger {
    Ledger { ranks: (0..program.layout.grid.ranks()).map(|rank| predict_rank(program, rank)).collect() }
}

/// The ledger of one rank for one step.
pub fn predict_rank(program: &StepProgram, rank: usize) -> RankLedger {
    let (axes, layers) = transfers(program, rank);
    let (flops, elements) = work(program);
    RankLedger { rank, axes, layers, flops, elements, memory: memory(program) }
}

/// Every set of axes over which the program may communicate, whatever their sizes.
pub fn declared_axes(program: &StepProgram) -> BTreeSet<AxisSet> {
    let reductions = program.parameters.iter().map(|parameter| parameter.unreduced);
    let vocabulary = Axis::X.only().union(Axis::Y.only());
    let loss = Axis::Z.only().union(Axis::Data.only());
    Axis::ALL.map(Axis::only).into_iter().chain([vocabulary, loss, AxisSet::WORLD]).chain(reductions).collect()
}

/// A ledger of transfers in which every declared set of axes appears, empty.
pub fn empty_axes(program: &StepProgram) -> AxesLedger {
    declared_axes(program).into_iter().map(|axes| (axes.key(), BTreeMap::new())).collect()
}

/// The operations of a step with the number of times that each runs.
fn executed(program: &StepProgram) -> impl Iterator<Item = (&Op, u64)> {
    let microbatches = program.layout.microbatches() as u64;
    let pass = program.pass.ops.iter().map(move |op| (op, microbatches));
    pass.chain(program.update.ops.iter().map(|op| (op, 1)))
}

fn transfers(program: &StepProgram, rank: usize) -> (AxesLedger, Vec<LayerLedger>) {
    let mut total = empty_axes(program);
    let mut by_layer: BTreeMap<Layer, AxesLedger> =
        program.layers().into_iter().map(|layer| (layer, empty_axes(program))).collect();
    for (op, times) in executed(program) {
        let Some((axes, kind, transfer)) = transfer(program, &op.operation, rank) else { continue };
        let transfer = Transfer {
            calls: times,
            payload_bytes: times * transfer.payload_bytes,
            wire_bytes: times * transfer.wire_bytes,
        };
        for ledger in [Some(&mut total), by_layer.get_mut(&op.layer)].into_iter().flatten() {
            *ledger.entry(axes.key()).or_default().entry(kind).or_default() += transfer;
        }
    }
    let layers = by_layer.into_iter().map(|(layer, axes)| LayerLedger { layer: layer.to_string(), axes });
    (total, layers.collect())
}

/// What one operation sends; a collective counts at its issue.
fn transfer(program: &StepProgram, operation: &Operation, rank: usize) -> Option<(AxisSet, CollectiveKind, Transfer)> {
    let (axes, kind, elements, element_bytes) = match *operation {
        Operation::Issue(collective) => {
            let value = match collective.kind {
                CollectiveKind::AllGather => collective.output,
                _ => collective.input,
            };
            let elements = program.value(value).local_elements;
            (collective.axes, collective.kind, elements, program.layout.dtype.bytes())
        }
        Operation::ReduceScalar { axes, .. } => (axes, CollectiveKind::AllReduce, 1, SCALAR_BYTES),
        _ => return None,
    };
    let grid = &program.layout.grid;
    let members = grid.size_of(axes);
    if members == 1 {
        return None;
    }
    let index = grid.group_index(grid.coordinate(rank), axes);
    let payload_bytes = elements as u64 * element_bytes;
    let wire_bytes = ring_wire_bytes(kind, elements, members, index, element_bytes);
    Some((axes, kind, Transfer { calls: 1, payload_bytes, wire_bytes }))
}

/// FLOPs of products and attention, and elements that element-wise operations sweep over.
fn work(program: &StepProgram) -> (FlopsLedger, BTreeMap<&'static str, u64>) {
    let mut ledger = FlopsLedger::default();
    let mut elements = BTreeMap::new();
    for (op, times) in executed(program) {
        // `check_counts` has made sure that all of them together fit.
        let flops = times * operation_flops(program, &op.operation) as u64;
        match op.operation {
            Operation::Gemm { pass: GemmPass::Forward, .. } => ledger.gemm_forward += flops,
            Operation::Gemm { pass: GemmPass::InputGradient, .. } => ledger.gemm_input_gradient += flops,
            Operation::Gemm { pass: GemmPass::WeightGradient, .. } => ledger.gemm_weight_gradient += flops,
            Operation::Attention { .. } => ledger.attention_forward += flops,
            Operation::AttentionBackward { .. } => ledger.attention_backward += flops,
            _ => {
                if let Some(value) = swept(&op.operation) {
                    let swept = times * program.value(value).local_elements as u64;
                    *elements.entry(op.operation.name()).or_default() += swept;
                }
            }
        }
    }
    (ledger, elements)
}

/// FLOPs of a product (2mkn) or of attention (4 s per element of the output forward, twice that backward); 0 for
/// everything else.
pub(crate) fn operation_flops(program: &StepProgram, operation: &Operation) -> u128 {
    if let Some(Product { m, n, k, .. }) = operation.product(program) {
        return 2 * m as u128 * n as u128 * k as u128;
    }
    match *operation {
        Operation::Attention { output, .. } => attention_flops(program, output),
        Operation::AttentionBackward { result, .. } => 2 * attention_flops(program, result),
        _ => 0,
    }
}

fn attention_flops(program: &StepProgram, output: ValueId) -> u128 {
    4 * program.layout.seq_len as u128 * program.value(output).local_elements as u128
}

/// Makes sure that the ledger's 64-bit counts hold a step of this program.
pub(crate) fn check_counts(program: &StepProgram) -> Result<(), StepError> {
    let check = |what, amount: u128, unit| match u64::try_from(amount) {
        Ok(_) => Ok(()),
        Err(_) => Err(StepError::TooLarge { what, amount: amount as f64, unit }),
    };
    let flops = executed(program).map(|(op, times)| u128::from(times) * operation_flops(program, &op.operation)).sum();
    check("compute", flops, "FLOP")?;
    // Every storage is sent or swept over a few times at most in a pass.
    let passes = 16 * program.layout.microbatches() as u128;
    let elements: u128 = program.storages.iter().map(|storage| storage.elements as u128).sum();
    check("move", passes * elements * u128::from(program.layout.dtype.bytes()), "bytes")
}

/// The value whose local elements an element-wise operation sweeps over.
fn swept(operation: &Operation) -> Option<ValueId> {
    match *operation {
        Operation::Embed { output, .. } => Some(output),
        Operation::AddPositions { input, .. }
        | Operation::Dropout { input, .. }
        | Operation::RowSums { input, .. }
        | Operation::CenteredSquares { input, .. }
        | Operation::Norm { input, .. }
        | Operation::Bias { input, .. }
        | Operation::BiasGelu { input, .. }
        | Operation::Residual { input, .. }
        | Operation::NormBackwardSums { input, .. }
        | Operation::NormBackward { input, .. }
        | Operation::GeluBackward { input, .. }
        | Operation::Pack { input, .. }
        | Operation::Unpack { input, .. }
        | Operation::Accumulate { input, .. } => Some(input),
        Operation::CrossEntropyMax { logits, .. }
        | Operation::CrossEntropySums { logits, .. }
        | Operation::CrossEntropyGradient { logits, .. } => Some(logits),
        Operation::EmbedBackward { gradient, .. }
        | Operation::PositionsBackward { gradient, .. }
        | Operation::BiasBackward { gradient, .. }
        | Operation::AdamW { gradient, .. } => Some(gradient),
        Operation::SliceRows { output, .. } | Operation::SliceColumns { output, .. } => Some(output),
        Operation::Gemm { .. }
        | Operation::Attention { .. }
        | Operation::AttentionBackward { .. }
        | Operation::Issue(_)
        | Operation::Wait(_)
        | Operation::SumSquares { .. }
        | Operation::ReduceScalar { .. } => None,
    }
}

/// Walks births and deaths. AdamW keeps two states per parameter.
fn memory(program: &StepProgram) -> MemoryLedger {
    let element_bytes = program.layout.dtype.bytes();
    let bytes = |storage: crate::StorageId| program.storages[storage.0].elements as u64 * element_bytes;
    let mut ledger = MemoryLedger::new();
    for parameter in &program.parameters {
        let shard = bytes(program.value(parameter.value).storage);
        ledger.take(MemoryClass::Parameters, shard);
        ledger.take(MemoryClass::Gradients, shard);
        ledger.take(MemoryClass::Optimizer, 2 * shard);
    }
    let mut walk = |section: &Section| {
        for (births, deaths) in section.lifetimes.births.iter().zip(&section.lifetimes.deaths) {
            for storage in births {
                ledger.take(program.storages[storage.0].class, bytes(*storage));
            }
            for storage in deaths {
                ledger.give_back(program.storages[storage.0].class, bytes(*storage));
            }
        }
    };
    walk(&program.pass);
    walk(&program.update);
    let states: u64 = ledger.now.values().sum();
    let buffers: usize = program.placement.buffer_elements.iter().sum();
    ledger.allocated = states + buffers as u64 * element_bytes;
    ledger
}
