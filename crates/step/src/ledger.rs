//! The predicted ledger: what a rank will send, compute and hold in one step, from the program alone.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use quadrille_spec::{
    Attention, AxesLedger, Axis, AxisSet, CollectiveKind, Coordinate, FlopsLedger, HOST, LayerLedger, Ledger,
    RankLedger, Route, Routing, Transfer,
};

use crate::program::ChunkProgram;
use crate::routes::Routes;
use crate::schedule::Step;
use crate::{
    At, Collective, Computation, GemmPass, Layer, Loads, Members, Op, Operation, Queues, Scalar, StageProgram,
    StepError, StepProgram, Verdict, kind, wire_bytes,
};

/// The ledgers of all ranks for one step, with collectives as thread ranks run them: counted as rings.
pub fn predict(program: &StepProgram) -> Ledger {
    predict_routed(program, &Routing::native(program.layout.grid.ranks()))
}

/// The ledgers of all ranks for one step, with collectives by the algorithms that `routing` chooses.
pub fn predict_routed(program: &StepProgram, routing: &Routing) -> Ledger {
    predict_after(program, routing, Verdict::Kept)
}

/// As [`predict_routed`], of a step after whose update there was this verdict.
pub fn predict_after(program: &StepProgram, routing: &Routing, verdict: Verdict) -> Ledger {
    let ranks = 0..program.layout.grid.ranks();
    let predict = |rank| predict_rank_loaded(program, rank, routing, verdict, &Loads::new());
    Ledger { ranks: ranks.map(predict).collect() }
}

/// As [`predict`], of one rank.
pub fn predict_rank(program: &StepProgram, rank: usize) -> RankLedger {
    predict_rank_routed(program, rank, &Routing::native(program.layout.grid.ranks()))
}

/// As [`predict_routed`], of one rank.
pub fn predict_rank_routed(program: &StepProgram, rank: usize, routing: &Routing) -> RankLedger {
    predict_rank_loaded(program, rank, routing, Verdict::Kept, &Loads::new())
}

/// As [`predict_after`], of one rank, in a step in which its experts that drop nothing got these rows. Where there are none loads
/// are taken to be equal.
pub fn predict_rank_loaded(
    program: &StepProgram,
    rank: usize,
    routing: &Routing,
    verdict: Verdict,
    loads: &Loads,
) -> RankLedger {
    let stage = program.of_rank(rank);
    let step = ExecutedStep::new(stage, stage.grid().coordinate(rank), verdict, loads);
    let (axes, layers) = transfers(&step, rank, routing);
    let (flops, elements) = work(&step);
    RankLedger { rank, axes, layers, flops, elements, memory: crate::memory::predict(stage) }
}

/// Every set of axes over which the program may communicate: those that are there whatever their sizes (context,
/// expert and pipe only above 1), and those over which this stage's gradients are reduced.
pub fn declared_axes(program: &StageProgram) -> BTreeSet<AxisSet> {
    let size = |axis: &Axis| program.grid().size(*axis);
    let optional = [Axis::Context, Axis::Expert, Axis::Pipe].into_iter().filter(|axis| size(axis) > 1);
    let split: AxisSet = [Axis::Z, Axis::Data].into_iter().chain(optional.clone()).collect();
    let mut declared: BTreeSet<AxisSet> = Axis::AXONN.into_iter().chain(optional).map(Axis::only).collect();
    declared.extend([Axis::X.only().union(Axis::Y.only()), split, AxisSet::WORLD]);
    declared.extend(program.parameters.iter().map(|parameter| parameter.unreduced));
    let issued = program
        .update
        .ops
        .iter()
        .chain(program.chunks.iter().flat_map(ChunkProgram::sections).flat_map(|section| &section.ops));
    declared.extend(issued.filter_map(|op| match op.operation {
        Operation::Issue(collective) => Some(collective.axes),
        Operation::ReduceScalar(kind::ReduceScalar { axes, .. }) => Some(axes),
        _ => None,
    }));
    declared.extend(program.is_message_driven().then(|| decision_axes(program)));
    declared
}

/// The ranks of a stage that choose the same next pass in a message-driven schedule.
pub fn decision_axes(program: &StageProgram) -> AxisSet {
    let context = (program.grid().size(Axis::Context) > 1).then_some(Axis::Context);
    // Every pass sends rows to experts: the ranks that exchange them run the same one.
    let stage: AxisSet = [Axis::X, Axis::Y, Axis::Z].into_iter().chain(context).collect();
    stage.union(program.layout.experts_over)
}

/// A ledger of transfers in which every declared set of axes appears, empty, and the host where states lie there.
pub fn empty_axes(program: &StageProgram) -> AxesLedger {
    let keys = declared_axes(program).into_iter().map(AxisSet::key);
    keys.chain(program.offloads().then(|| HOST.to_owned())).map(|key| (key, BTreeMap::new())).collect()
}

/// What an operation moves between the device and the host's memory, in which direction and how many bytes.
pub fn moved_to_host(program: &StageProgram, operation: &Operation) -> Option<(CollectiveKind, u64)> {
    match operation {
        Operation::Fetch(kind::Fetch { bucket, masters }) => {
            let bytes = if *masters { program.bucket_masters(*bucket) } else { program.bucket_bytes(*bucket) };
            Some((CollectiveKind::Fetch, bytes))
        }
        Operation::Store(kind::Store { bucket }) => Some((CollectiveKind::Store, program.bucket_bytes(*bucket))),
        _ => None,
    }
}

/// A step of one rank.
struct ExecutedStep<'a> {
    program: &'a StageProgram,
    place: Coordinate,
    verdict: Verdict,
    loads: &'a Loads,
    /// By microbatch: the program with the sizes that its values have in passes over it; none if loads are not known.
    loaded: Vec<Cow<'a, StageProgram>>,
}

/// An operation that runs so many times with the sizes of a program, in passes over one microbatch if it says which.
struct Executed<'s> {
    program: &'s StageProgram,
    microbatch: Option<usize>,
    op: &'s Op,
    times: u64,
}

impl<'a> ExecutedStep<'a> {
    fn new(program: &'a StageProgram, place: Coordinate, verdict: Verdict, loads: &'a Loads) -> Self {
        let microbatches = if loads.is_empty() { 0 } else { program.layout.microbatches() };
        let is_loaded = |microbatch| loads.keys().any(|(_, loaded)| *loaded == microbatch);
        let loaded = |microbatch| {
            if is_loaded(microbatch) {
                Cow::Owned(program.loaded(loads, microbatch, place))
            } else {
                Cow::Borrowed(program)
            }
        };
        let loaded = (0..microbatches).map(loaded).collect();
        Self { program, place, verdict, loads, loaded }
    }

    /// The operations that a step runs.
    fn operations(&self) -> impl Iterator<Item = Executed<'_>> {
        let passes = self.program.chunks.iter().flat_map(ChunkProgram::sections).flat_map(|section| &section.ops);
        let update = self.program.update.ops.iter().map(|op| (op, op.times_after(1, self.verdict) as u64));
        let update = update.map(|(op, times)| Executed { program: self.program, microbatch: None, op, times });
        passes.flat_map(|op| self.of_pass(op)).chain(update).filter(|executed| executed.times > 0)
    }

    /// An operation of passes: once for each microbatch where that decides about sizes.
    fn of_pass<'s>(&'s self, op: &'s Op) -> Vec<Executed<'s>> {
        let microbatches = self.program.layout.microbatches();
        if self.loaded.is_empty() || !self.program.counts_rows(&op.operation) {
            let times = op.times(microbatches) as u64;
            return vec![Executed { program: self.program, microbatch: None, op, times }];
        }
        let executed = |(microbatch, program): (usize, &'s Cow<'_, StageProgram>)| Executed {
            program: program.as_ref(),
            microbatch: Some(microbatch),
            op,
            times: u64::from(op.when.includes(microbatch, microbatches, self.verdict)),
        };
        self.loaded.iter().enumerate().map(executed).collect()
    }

    /// The queues whose rows a collective moves, if they are known.
    fn queues(&self, collective: &Collective, microbatch: Option<usize>) -> Option<&Queues> {
        let counts = self.program.value(collective.input).counts?;
        self.loads.get(&(counts, microbatch?))
    }
}

fn transfers(step: &ExecutedStep, rank: usize, routing: &Routing) -> (AxesLedger, Vec<LayerLedger>) {
    let program = step.program;
    let mut routes = Routes::new(routing, program.grid(), rank);
    let mut total = empty_axes(program);
    let mut by_layer: BTreeMap<Layer, AxesLedger> =
        program.layers().into_iter().map(|layer| (layer, total.clone())).collect();
    let mut add = |layer: Layer, key: String, kind: CollectiveKind, transfer: Transfer, times: u64| {
        let transfer = Transfer {
            calls: times,
            payload_bytes: times * transfer.payload_bytes,
            wire_bytes: times * transfer.wire_bytes,
        };
        for ledger in [Some(&mut total), by_layer.get_mut(&layer)].into_iter().flatten() {
            *ledger.entry(key.clone()).or_default().entry(kind).or_default() += transfer;
        }
    };
    for executed in step.operations() {
        let Executed { op, times, .. } = executed;
        if let Some((axes, kind, transfer)) = transfer(step, &executed, &mut routes) {
            add(op.layer, axes.key(), kind, transfer, times);
        }
        if let Some((kind, bytes)) = moved_to_host(program, &op.operation) {
            add(op.layer, HOST.to_owned(), kind, Transfer { calls: 1, payload_bytes: bytes, wire_bytes: 0 }, times);
        }
    }
    let microbatches = program.layout.microbatches() as u64;
    for section in program.chunks.iter().flat_map(ChunkProgram::sections) {
        let received = section.receives.iter().map(|message| (message, CollectiveKind::Receive));
        for (message, kind) in received.chain(section.sends.iter().map(|message| (message, CollectiveKind::Send))) {
            let payload_bytes = program.local_bytes(message.value);
            let wire_bytes = if kind == CollectiveKind::Send { payload_bytes } else { 0 };
            let transfer = Transfer { calls: 1, payload_bytes, wire_bytes };
            add(message.layer, Axis::Pipe.only().key(), kind, transfer, microbatches);
        }
    }
    if let Some((axes, transfer)) = decision(program, rank, &mut routes) {
        let passes = program.steps.iter().filter(|step| matches!(step, Step::Run(_))).count() as u64;
        add(Layer::Step, axes.key(), CollectiveKind::Broadcast, transfer, passes);
    }
    let layers = by_layer.into_iter().map(|(layer, axes)| LayerLedger { layer: layer.to_string(), axes });
    (total, layers.collect())
}

/// What one call of an operation sends on a rank of the stage, with collectives as thread ranks run them: over which axes,
/// and as what; `None`: nothing, also in a group of one.
pub fn transfer_of(program: &StageProgram, rank: usize, op: &Op) -> Option<(AxisSet, CollectiveKind, Transfer)> {
    let loads = Loads::new();
    let routing = Routing::native(program.grid().ranks());
    let step = ExecutedStep::new(program, program.grid().coordinate(rank), Verdict::Kept, &loads);
    let executed = Executed { program, microbatch: None, op, times: 1 };
    transfer(&step, &executed, &mut Routes::new(&routing, program.grid(), rank))
}

/// What the ranks of a message-driven stage send before each pass, to agree which it is: over which axes; `None`: nothing.
pub fn decision_of(program: &StageProgram, rank: usize) -> Option<(AxisSet, Transfer)> {
    let routing = Routing::native(program.grid().ranks());
    decision(program, rank, &mut Routes::new(&routing, program.grid(), rank))
}

/// What a message-driven stage sends to agree on its next pass.
fn decision(program: &StageProgram, rank: usize, routes: &mut Routes<'_>) -> Option<(AxisSet, Transfer)> {
    let axes = decision_axes(program);
    if !program.is_message_driven() || program.grid().size_of(axes) == 1 {
        return None;
    }
    let grid = program.grid();
    let members = grid.size_of(axes);
    let index = grid.group_index(grid.coordinate(rank), axes);
    let route = routes.route(axes, Members::Root(0), CollectiveKind::Broadcast, Scalar::BYTES);
    let wire_bytes = wire_bytes(&route, CollectiveKind::Broadcast, 1, members, index, 0, Scalar::BYTES);
    Some((axes, Transfer { calls: 1, payload_bytes: Scalar::BYTES, wire_bytes }))
}

/// The bytes of a collective's payload.
pub fn payload_bytes(program: &StageProgram, collective: &Collective) -> u64 {
    payload_elements(program, collective) as u64 * program.sent_element_bytes(collective)
}

/// The elements of a collective's payload: of the whole on one side of a gather or scatter.
pub fn payload_elements(program: &StageProgram, collective: &Collective) -> usize {
    let members = collective.size(program.grid());
    let [input, output] = [collective.input, collective.output].map(|value| program.value(value));
    match collective.kind {
        CollectiveKind::AllGather if output.counts.is_some() => output.local_elements,
        CollectiveKind::ReduceScatter if input.counts.is_some() => input.local_elements,
        CollectiveKind::AllGather if collective.input == collective.output => {
            program.storages[output.storage.0].elements
        }
        CollectiveKind::AllGather => members * input.local_elements,
        CollectiveKind::ReduceScatter => members * output.local_elements,
        _ => input.local_elements,
    }
}

/// The elements that the rank which moves most moves for a collective. Rows that are exchanged lie equally with their tokens, and
/// unequally with experts: there come as many as are sent back.
pub fn most_elements(program: &StageProgram, collective: &Collective) -> usize {
    let payload = payload_elements(program, collective);
    match collective.kind {
        CollectiveKind::AllToAll => payload.max(program.value(collective.output).local_elements),
        _ => payload,
    }
}

/// What one operation sends; a collective counts at its issue.
fn transfer(
    step: &ExecutedStep,
    executed: &Executed,
    routes: &mut Routes<'_>,
) -> Option<(AxisSet, CollectiveKind, Transfer)> {
    let program = executed.program;
    let grid = executed.program.grid();
    let (axes, kind, elements, element_bytes, members, who) = match &executed.op.operation {
        Operation::Issue(collective) => {
            let elements = payload_elements(program, collective);
            let members = collective.size(grid);
            let element_bytes = program.sent_element_bytes(collective);
            (collective.axes, collective.kind, elements, element_bytes, members, collective.members)
        }
        Operation::ReduceScalar(kind::ReduceScalar { axes, scalar }) => {
            (*axes, CollectiveKind::AllReduce, scalar.elements(), Scalar::BYTES, grid.size_of(*axes), Members::All)
        }
        _ => return None,
    };
    let place = grid.group_index(step.place, axes);
    let (index, root) = match who {
        Members::All => (place, 0),
        Members::Root(root) => (place, root),
        Members::Ends => (usize::from(place > 0), 0),
        Members::Blocks(size) => (place % size, 0),
    };
    if members == 1 {
        return None;
    }
    let payload_bytes = elements as u64 * element_bytes;
    let wire_bytes = match &executed.op.operation {
        Operation::Issue(collective) if program.moves_queues(collective) => {
            let queues = step.queues(collective, executed.microbatch);
            match queues.and_then(|queues| queues.parts(program, collective, step.place)) {
                Some(parts) => parts.elements_sent(index, kind) as u64 * element_bytes,
                None => wire_bytes(&Route::Ring, kind, elements, members, index, root, element_bytes),
            }
        }
        _ => {
            let route = routes.route(axes, who, kind, payload_bytes);
            wire_bytes(&route, kind, elements, members, index, root, element_bytes)
        }
    };
    Some((axes, kind, Transfer { calls: 1, payload_bytes, wire_bytes }))
}

/// FLOPs of products and attention, and elements that element-wise operations sweep over.
fn work(step: &ExecutedStep) -> (FlopsLedger, BTreeMap<Cow<'static, str>, u64>) {
    let mut ledger = FlopsLedger::default();
    let mut elements = BTreeMap::new();
    for Executed { program, op, times, .. } in step.operations() {
        let work = op.operation.work(At { program, place: step.place });
        // `check_counts` has made sure that all of them together fit.
        let flops = times * work.flops() as u64;
        match work.computation {
            Computation::None => {}
            Computation::Product { pass: GemmPass::Forward, .. } => ledger.gemm_forward += flops,
            Computation::Product { pass: GemmPass::InputGradient, .. } => ledger.gemm_input_gradient += flops,
            Computation::Product { pass: GemmPass::WeightGradient, .. } => ledger.gemm_weight_gradient += flops,
            Computation::Attention { backward: false, .. } => ledger.attention_forward += flops,
            Computation::Attention { backward: true, .. } => ledger.attention_backward += flops,
            Computation::Sweep { elements: swept, .. } => {
                *elements.entry(op.operation.name().into()).or_default() += times * swept as u64;
            }
        }
    }
    (ledger, elements)
}

/// What a pass of generation adds to the predicted FLOPs of attention, on the rank at `place`, if each sequence of the
/// global batch has `cached` positions in the cache before it. Without causal discount, as all attention is counted; of a window
/// what its length adds to that.
pub fn cached_attention_flops(program: &StageProgram, place: Coordinate, cached: &[usize]) -> u64 {
    let layout = &program.layout;
    let parts = layout.microbatch / layout.grid.size(Axis::Z);
    let first = layout.first_of_share(place) + place.on(Axis::Z) * parts;
    let tokens = layout.seq_len;
    let added = |attention: &Attention| -> usize {
        let microbatches = (0..layout.microbatches()).map(|index| first + index * layout.microbatch);
        let sequences = microbatches.flat_map(|first| &cached[first..first + parts]);
        sequences.map(|cached| attention.keys(cached + tokens) - attention.keys(tokens)).sum()
    };
    let operations = program.chunks.iter().flat_map(ChunkProgram::sections).flat_map(|section| &section.ops);
    let pairs = operations.filter_map(|op| match op.operation {
        Operation::CachedAttention(kind::CachedAttention { block, output, .. }) => {
            let attention = block.of(&program.model).attention;
            let heads = program.value(output).local_cols / attention.value_dim;
            Some((added(&attention) * heads * attention.pair_width()) as u64)
        }
        _ => None,
    });
    2 * tokens as u64 * pairs.sum::<u64>()
}

/// Makes sure that the ledger's 64-bit counts hold a step of this program.
pub(crate) fn check_counts(program: &StageProgram) -> Result<(), StepError> {
    let check = |what, amount: u128, unit| match u64::try_from(amount) {
        Ok(_) => Ok(()),
        Err(_) => Err(StepError::TooLarge { what, amount: amount as f64, unit }),
    };
    let at = At::first(program);
    let loads = Loads::new();
    let step = ExecutedStep::new(program, at.place, Verdict::Kept, &loads);
    let flops = step.operations().map(|it| u128::from(it.times) * it.op.operation.work(at).flops()).sum();
    check("compute", flops, "FLOP")?;
    // Every storage is sent or swept over a few times at most in a pass.
    let passes = 16 * program.layout.microbatches() as u128;
    let bytes: u128 = program.storages.iter().map(|storage| u128::from(storage.bytes())).sum();
    check("move", passes * bytes, "bytes")
}
