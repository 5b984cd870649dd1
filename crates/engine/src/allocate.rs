//! Everything that a rank has, allocated before its first step.

use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;

use quadrille_comm::{Label, Ledger as Counted, RankContext};
use quadrille_spec::{Attention, Axis, Coordinate, ElementType, FlopsLedger, MemoryClass};
use quadrille_step::{
    BlockKind, Layer, Loads, ParameterId, Practice, Purpose, StageProgram, StepProgram, StorageId, Verdict,
    declared_axes, empty_axes,
};
use quadrille_tensor::ContextPart;

use crate::fusion::Biased;
use crate::generate::PassPositions;
use crate::optimizer::OptimizerStates;
use crate::samples::OwnSamples;
use crate::slots::Slots;
use crate::streamed::Streamed;
use crate::{Backend, EngineError, Hyper, MatmulChoices, RankEngine, Totals};

impl<'a, B: Backend> RankEngine<'a, B> {
    /// Allocates everything but the storages `lent`, which another engine has; offloaded states in a `folder`, if there is one.
    pub(crate) fn allocate(
        program: &'a StepProgram,
        context: &'a RankContext,
        backend: Rc<B>,
        hyper: Hyper,
        seed: u64,
        lent: &[StorageId],
        folder: Option<&Path>,
    ) -> Result<Self, EngineError> {
        let own = Practice::of(&program.layout).formats;
        let is_exact = |practice: &Practice| {
            let Practice { pads_shards, gates_apart, sparsity, imbalance, .. } = practice;
            let Practice { reserves_expert_rows, weighs_activations, counts_tokens, .. } = practice;
            let experts = *reserves_expert_rows && !weighs_activations && *counts_tokens;
            !pads_shards && !gates_apart && sparsity.is_none() && *imbalance == 1.0 && experts
        };
        let runs = |practice: &Practice| is_exact(practice) && practice.formats.run_as(&own);
        if !program.stages.iter().all(|stage| runs(&stage.practice)) || !stores_as::<B>(program.layout.dtype) {
            return Err(EngineError::Formats { dtype: program.layout.dtype });
        }
        let grid = &program.layout.grid;
        let rank = context.rank();
        let place = grid.coordinate(context.rank());
        let whole = program;
        let program = program.of_rank(rank);
        context.enter(Label::new("step"), "allocate")?;
        let mut groups = BTreeMap::new();
        for axes in declared_axes(program) {
            groups.insert(axes, context.group(&axes.key(), &grid.group(rank, axes))?);
        }
        let stages = grid.group(rank, Axis::Pipe.only());
        let first = stages[0];
        let last = stages[stages.len() - 1];
        let pipe_ends = if first != last && (rank == first || rank == last) {
            Some(context.group(&Axis::Pipe.only().key(), &[first, last])?)
        } else {
            None
        };
        let mut key_copies = BTreeMap::new();
        for block in program.model.blocks.kinds() {
            let copies = program.layout.kv_copies(&block.attention);
            if copies > 1 && !key_copies.contains_key(&copies) {
                let along_x = grid.group(rank, Axis::X.only());
                let ranks = along_x.chunks_exact(copies).nth(place.on(Axis::X) / copies).unwrap_or_default();
                key_copies.insert(copies, context.group(&Axis::X.only().key(), ranks)?);
            }
        }
        let mut slots = Slots::new(backend.clone(), program, lent)?;
        let streamed = program.offloads().then(|| Streamed::new(&*backend, program, folder, rank)).transpose()?;
        if let Some(streamed) = &streamed {
            slots.count_state(MemoryClass::Optimizer, streamed.device_bytes());
            slots.count_host(streamed.host_bytes());
        }
        let parameters = program.parameters.iter().enumerate().filter(|_| program.trains() && streamed.is_none());
        let trained = parameters.filter(|(_, parameter)| parameter.is_trained());
        let sizes = trained.clone().flat_map(|(_, parameter)| OptimizerStates::<B>::sizes(program, parameter));
        backend.reserve(&sizes.collect::<Vec<_>>())?;
        let states = trained
            .map(|(index, parameter)| Ok((ParameterId(index), OptimizerStates::new(&*backend, program, parameter)?)));
        let states = states.collect::<Result<BTreeMap<_, _>, EngineError>>()?;
        slots.count_state(MemoryClass::Optimizer, states.values().map(OptimizerStates::bytes).sum());

        slots.count_state(MemoryClass::Optimizer, program.index_bytes());
        let kept = program.parameters.iter().map(|_| None).collect();
        let angles = angles(&*backend, program, place)?;
        Ok(Self {
            whole,
            program,
            context,
            backend,
            place,
            slots,
            states,
            streamed,
            kept,
            groups,
            pipe_ends,
            key_copies,
            flights: BTreeMap::new(),
            messages: BTreeMap::new(),
            matmuls: MatmulChoices::default(),
            angles,
            hyper,
            seed,
            step: 0,
            updates: 0,
            microbatch: 0,
            samples_of: None,
            staged: OwnSamples::default(),
            step_counts: None,
            samples: B::Samples::default(),
            sequences: program.layout.global_batch,
            pass: PassPositions::default(),
            set_aside: Counted::new(),
            totals: Totals::default(),
            verdict: Verdict::default(),
            loss_scale: 1.0,
            loss_limit: f64::INFINITY,
            loads: Loads::new(),
            chosen: Vec::new(),
            layer: Layer::Step,
            choices: None,
            scan: None,
            biased: Biased::default(),
            squares: Vec::new(),
            empty_axes: empty_axes(program),
            flops: FlopsLedger::default(),
            elements: BTreeMap::new(),
            breakdown: BTreeMap::new(),
            spans: None,
            pace: None,
        })
    }

    /// The angles by which a block turns queries and keys.
    pub(crate) fn angles(&self, block: BlockKind) -> &B::Angles {
        &self.angles[block.0]
    }
}

/// Whether the backend stores values in this type.
fn stores_as<B: Backend>(dtype: ElementType) -> bool {
    <B::Stored as quadrille_tensor::Stored>::NAME == dtype.to_string()
}

/// By kind of block, the angles of the tokens of a sequence that the rank at `place` has, of generation those of all
/// positions in the cache; empty where queries and keys do not turn.
fn angles<B: Backend>(backend: &B, program: &StageProgram, place: Coordinate) -> Result<Vec<B::Angles>, EngineError> {
    let seq_len = program.layout.seq_len;
    let part = ContextPart { part: place.on(Axis::Context), parts: program.grid().size(Axis::Context) };
    let frequencies = |rotary: quadrille_spec::Rotary| rotary.frequencies().collect::<Vec<_>>();
    let table = |attention: &Attention| match (attention.rotary, program.purpose) {
        (None, _) => backend.angles(0, &[], 0..0),
        (Some(rotary), Purpose::Generation(generation)) => {
            backend.angles(attention.head_dim, &frequencies(rotary), 0..generation.capacity)
        }
        (Some(rotary), _) => {
            let positions = (0..part.tokens(seq_len)).map(|token| part.position(token, seq_len));
            backend.angles(attention.head_dim, &frequencies(rotary), positions)
        }
    };
    program.model.blocks.kinds().iter().map(|block| table(&block.attention)).collect()
}
