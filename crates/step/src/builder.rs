//! The workbench on which a program is put together: values, parameters, operations of the current layer.

use std::collections::BTreeMap;

use quadrille_spec::{Axis, AxisSet, CollectiveKind, KeepWeights, Layout, Linear, MemoryClass, Model, Zero};

use crate::backward::Node;
use crate::operation::{BlockKind, Collective, Members, Op, Operation, Reduction, When};
use crate::parameter::{Initial, Parameter, ParameterId};
use crate::value::{Home, Sized};
use crate::{
    AxisList, Bucket, Extent, KeptCounts, Layer, Practice, Purpose, Sharding, StepError, StorageId, StorageInfo, Value,
    ValueId,
};

/// What the names of partial sums end with, until they are reduced.
pub(crate) const PARTIAL: &str = " partial";

/// Everything that is known of a stage's program while it is built.
pub(crate) struct Builder<'a> {
    pub model: &'a Model,
    pub layout: &'a Layout,
    pub purpose: Purpose,
    pub practice: Practice,
    /// Of pruned tensors.
    pub counts: &'a KeptCounts,
    pub values: Vec<Value>,
    pub storages: Vec<StorageInfo>,
    pub parameters: Vec<Parameter>,
    pub ops: Vec<Op>,
    /// What the forward pass did, for the backward pass to reverse.
    pub tape: Vec<(Layer, Node)>,
    pub layer: Layer,
    /// Whether what is emitted serves the gradient of a weight.
    pub weight_gradient: bool,
    /// Whether the backward pass is emitted.
    pub of_gradients: bool,
    /// Weights that are gathered once per step, by their parameters.
    kept_weights: BTreeMap<ParameterId, ValueId>,
    /// By parameter: whether its use in this program has begun.
    used: Vec<bool>,
    /// Keys and values of earlier passes, by block.
    pub caches: Vec<ValueId>,
    /// What the last stage's passes leave for the logits: a table that the head shares, and the residual stream.
    pub collected: Option<(Option<ParameterId>, ValueId)>,
    /// Of states in the host's memory.
    pub buckets: Vec<Bucket>,
    /// By layer whose experts drop nothing: how many rows each gets.
    pub queues: BTreeMap<Layer, ValueId>,
}

impl<'a> Builder<'a> {
    pub fn new(
        model: &'a Model,
        layout: &'a Layout,
        purpose: Purpose,
        practice: Practice,
        counts: &'a KeptCounts,
    ) -> Self {
        Self {
            model,
            layout,
            purpose,
            practice,
            counts,
            values: Vec::new(),
            storages: Vec::new(),
            parameters: Vec::new(),
            ops: Vec::new(),
            tape: Vec::new(),
            layer: Layer::Embedding,
            weight_gradient: false,
            of_gradients: false,
            kept_weights: BTreeMap::new(),
            used: Vec::new(),
            caches: Vec::new(),
            collected: None,
            buckets: Vec::new(),
            queues: BTreeMap::new(),
        }
    }

    /// The kind of a block.
    pub fn block_kind(&self, block: usize) -> BlockKind {
        BlockKind(self.model.blocks.kind_of(block))
    }

    pub fn axis_size(&self, axis: Axis) -> usize {
        self.layout.grid.size(axis)
    }

    /// A value of token rows in a storage of its own.
    pub fn value(
        &mut self,
        name: impl Into<String>,
        shape: [Extent; 2],
        sharding: Sharding,
        home: Home,
    ) -> Result<ValueId, StepError> {
        let id = self.weight_value(name, shape, sharding, home)?;
        self.values[id.0].chunk = Some(0);
        Ok(id)
    }

    /// A value that has no token rows, in a storage of its own.
    pub fn weight_value(
        &mut self,
        name: impl Into<String>,
        shape: [Extent; 2],
        sharding: Sharding,
        home: Home,
    ) -> Result<ValueId, StepError> {
        let storage = StorageId(self.storages.len());
        let id = self.view(name, shape, sharding, storage)?;
        self.values[id.0].chunk = None;
        let elements = self.values[id.0].allocated(self.layout, &self.practice);
        let Home { class, format } = home;
        let element_bytes = self.practice.formats.bytes(format);
        let persistent = matches!(class, MemoryClass::Parameters | MemoryClass::Gradients);
        let sized = Sized::By(id);
        let instances = 1;
        let kept = false;
        self.storages.push(StorageInfo { elements, sized, element_bytes, format, class, persistent, instances, kept });
        Ok(id)
    }

    /// A value of token rows in an existing storage.
    pub fn view(
        &mut self,
        name: impl Into<String>,
        extents: [Extent; 2],
        sharding: Sharding,
        storage: StorageId,
    ) -> Result<ValueId, StepError> {
        let name = name.into();
        let grid = &self.layout.grid;
        let [rows, cols] = extents.map(|extent| extent.of(self.layout));
        let blocks = extents[0].blocks();
        let counts = match extents[0] {
            Extent::Queues { .. } => self.queues.get(&self.layer).copied(),
            _ => None,
        };
        let (local_rows, local_cols) = match counts {
            None => sharding.tile(&name, [blocks, rows, cols], grid, self.practice.pads_shards)?,
            Some(_) => sharding.queues_tile(&name, [blocks, rows, cols], grid)?,
        };
        let local_blocks = blocks / grid.size_of(sharding.blocks.into_iter().collect());
        let local_elements = sharding.flat_share(local_rows * local_cols, None, grid);
        let mut value = Value {
            name,
            extents,
            rows,
            cols,
            blocks,
            sharding,
            local_blocks,
            local_rows,
            local_cols,
            local_elements,
            pruned: None,
            storage,
            counts,
            chunk: Some(0),
            inside: AxisSet::EMPTY,
        };
        value.crowd(self.layout, self.practice.imbalance);
        self.values.push(value);
        Ok(ValueId(self.values.len() - 1))
    }

    /// The result of an operation in place of `input`: the same shape, sharding and storage.
    pub fn in_place(&mut self, name: impl Into<String>, input: ValueId) -> ValueId {
        let value = Value { name: name.into(), ..self.values[input.0].clone() };
        self.values.push(value);
        ValueId(self.values.len() - 1)
    }

    /// A value of the same shape and sharding in a storage of its own.
    pub fn like(&mut self, name: impl Into<String>, input: ValueId) -> Result<ValueId, StepError> {
        let Value { extents, sharding, .. } = self.values[input.0].clone();
        self.value(name, extents, sharding, Home::ACTIVATIONS)
    }

    pub fn sharding(&self, value: ValueId) -> &Sharding {
        &self.values[value.0].sharding
    }

    pub fn shape(&self, value: ValueId) -> [Extent; 2] {
        self.values[value.0].extents
    }

    /// What the storage of a value is.
    pub fn home(&self, value: ValueId) -> Home {
        let StorageInfo { class, format, .. } = self.storages[self.values[value.0].storage.0];
        Home { class, format }
    }

    pub fn push(&mut self, operation: impl Into<Operation>) {
        let layer = self.layer;
        let weight_gradient = self.weight_gradient;
        self.ops.push(Op { layer, when: When::Always, weight_gradient, operation: operation.into() });
    }

    /// An operation of the step's first microbatch only.
    pub fn push_once(&mut self, operation: impl Into<Operation>) {
        self.push(operation);
        if let Some(op) = self.ops.last_mut() {
            op.when = When::First;
        }
    }

    pub fn record(&mut self, node: Node) {
        self.tape.push((self.layer, node));
    }

    /// Issue and wait, one after the other: passes move them apart.
    pub fn collective(
        &mut self,
        kind: CollectiveKind,
        axes: AxisSet,
        reduction: Reduction,
        input: ValueId,
        output: ValueId,
    ) {
        let collective = Collective { kind, axes, members: Members::All, reduction, input, output };
        self.push(Operation::Issue(collective));
        self.push(Operation::Wait(collective));
    }

    /// A parameter of the current layer with its gradient. Under ZeRO the storages are padded so that all shards are equally long.
    pub fn parameter(
        &mut self,
        name: String,
        shape: [Extent; 2],
        sharding: Sharding,
        initial: Initial,
        decay: bool,
    ) -> Result<ParameterId, StepError> {
        // What decays is a matrix or a table.
        let homes = if decay { [Home::WEIGHTS, Home::GRADIENTS] } else { [Home::VECTORS, Home::VECTOR_GRADIENTS] };
        self.parameter_at(name, shape, sharding, initial, decay, homes)
    }

    /// The same where its value and its gradient are at home as said.
    pub fn parameter_at(
        &mut self,
        name: String,
        shape: [Extent; 2],
        sharding: Sharding,
        initial: Initial,
        decay: bool,
        [stored, of_gradient]: [Home; 2],
    ) -> Result<ParameterId, StepError> {
        let value = self.weight_value(name.clone(), shape, sharding, stored)?;
        let by_product = sharding.is_of_tiles();
        if self.purpose != Purpose::Training {
            let updated = self.shard_inside(format!("{name} shard"), value)?;
            return self.push_parameter(name, shape, initial, decay, [value, value, updated, updated], None);
        }
        let pruned = self.pruned(&name, by_product);
        let compressed = pruned.map(|kept| self.compressed_weight(&name, value, kept)).transpose()?;
        let updated = self.shard_inside(format!("{name} shard"), compressed.unwrap_or(value))?;
        let gradient_name = format!("d {name}");
        let (gradient, reduced) = if by_product && self.shards_gradients(&sharding) {
            let shard = self.values[updated.0].sharding;
            let gradient = self.weight_value(gradient_name, shape, shard, of_gradient)?;
            pruned.map_or(Ok(()), |kept| self.prune(gradient, kept))?;
            (gradient, gradient)
        } else {
            let gradient = self.weight_value(gradient_name.clone(), shape, sharding, of_gradient)?;
            pruned.map_or(Ok(()), |kept| self.prune(gradient, kept))?;
            (gradient, self.shard_inside(format!("{gradient_name} shard"), gradient)?)
        };
        self.push_parameter(name, shape, initial, decay, [value, gradient, reduced, updated], compressed)
    }

    fn push_parameter(
        &mut self,
        name: String,
        shape: [Extent; 2],
        initial: Initial,
        decay: bool,
        [value, gradient, reduced, updated]: [ValueId; 4],
        compressed: Option<ValueId>,
    ) -> Result<ParameterId, StepError> {
        let shared = self.shared_keys(&name, shape, compressed.is_some())?;
        let layer = self.layer;
        let unreduced = AxisSet::EMPTY;
        let [rows, cols] = shape.map(|extent| extent.logical(self.layout));
        Ok(self.add_parameter(Parameter {
            name,
            layer,
            rows,
            cols,
            shared,
            initial,
            decay,
            follows: None,
            value,
            gradient,
            reduced,
            updated,
            compressed,
            copy: false,
            unreduced,
        }))
    }

    pub fn add_parameter(&mut self, parameter: Parameter) -> ParameterId {
        self.parameters.push(parameter);
        self.used.push(false);
        ParameterId(self.parameters.len() - 1)
    }

    /// Whether gradients of weights that are cut as `sharding` are kept as shards over the axes that replicate them.
    pub fn shards_gradients(&self, sharding: &Sharding) -> bool {
        self.layout.zero == Zero::Gradients && !self.sharing(sharding).is_empty()
    }

    /// The axes over which ZeRO shards the states of a weight that is cut as `sharding`.
    pub fn sharing(&self, sharding: &Sharding) -> AxisSet {
        let replicating = sharding.replicating(self.layout);
        let Some(over) = self.practice.sums_whole else { return replicating };
        replicating.without(replicating.without(over))
    }

    /// The rank's ZeRO shard of a parameter or gradient, at its place in the same storage; the value itself where
    /// nothing is sharded.
    fn shard_inside(&mut self, name: String, whole: ValueId) -> Result<ValueId, StepError> {
        let axes = self.sharing(self.sharding(whole));
        if self.layout.zero == Zero::Off || axes.is_empty() {
            return Ok(whole);
        }
        let Value { extents, sharding, pruned, storage, .. } = self.values[whole.0].clone();
        let shard = self.view(name, extents, self.zero_sharding(&sharding), storage)?;
        pruned.map_or(Ok(()), |kept| self.prune(shard, kept))?;
        self.values[shard.0].chunk = None;
        self.values[shard.0].inside = axes;
        self.pad(storage, shard);
        Ok(shard)
    }

    /// How the ZeRO shards of a value that is cut as `sharding` are cut.
    pub fn zero_sharding(&self, sharding: &Sharding) -> Sharding {
        let replicating = self.sharing(sharding);
        let axes = Axis::BATCH.into_iter().chain([Axis::Context]).filter(|axis| replicating.contains(*axis));
        let flat: AxisList = sharding.flat.iter().copied().chain(axes).collect();
        (*sharding).flat(&flat)
    }

    /// Makes a storage as long as all shards like `shard`.
    pub fn pad(&mut self, storage: StorageId, shard: ValueId) {
        let sized = Sized::ByShards(shard);
        let info = &mut self.storages[storage.0];
        (info.sized, info.elements) = (sized, sized.elements(&self.values, self.layout, &self.practice));
    }

    /// The parameter's value for its use in the forward pass. Under ZeRO the first use of a step waits for the
    /// gather that the last step's update has issued.
    pub fn parameter_value(&mut self, parameter: ParameterId) -> ValueId {
        let Parameter { value, updated, compressed, .. } = self.parameters[parameter.0];
        let first = !std::mem::replace(&mut self.used[parameter.0], true);
        let carried = self.purpose == Purpose::Training && self.practice.gathers_under_forward;
        if first && value != updated && compressed.is_none() && carried {
            let gather = self.gather_updated(value);
            self.push_once(Operation::WaitCarried(gather));
        }
        value
    }

    /// The in-place gather of a parameter's updated ZeRO shards.
    pub fn gather_updated(&self, value: ValueId) -> Collective {
        Collective {
            kind: CollectiveKind::AllGather,
            axes: self.sharing(self.sharding(value)),
            members: Members::All,
            reduction: Reduction::Sum,
            input: value,
            output: value,
        }
    }

    /// Whether z has shards of the tile of a weight.
    pub fn cuts_flat(&self, parameter: ParameterId) -> bool {
        let stored = self.sharding(self.parameters[parameter.0].value);
        self.axis_size(Axis::Z) > 1 && stored.flat.contains(&Axis::Z)
    }

    /// The weight as its products use it: its shards gathered over z, or the parameter itself if z is 1.
    pub fn gather_weight(&mut self, parameter: ParameterId) -> Result<ValueId, StepError> {
        let stored = self.parameter_value(parameter);
        if !self.cuts_flat(parameter) {
            return Ok(stored);
        }
        if let Some(kept) = self.kept_weights.get(&parameter) {
            return Ok(*kept);
        }
        let Value { name, extents, sharding, .. } = self.values[stored.0].clone();
        let whole = sharding.whole();
        let gathered = self.weight_value(format!("{name} gathered"), extents, whole, Home::GATHERED_WEIGHTS)?;
        let before = self.ops.len();
        self.collective(CollectiveKind::AllGather, Axis::Z.only(), Reduction::Sum, stored, gathered);
        if self.layout.keep_weights == KeepWeights::Step {
            self.ops[before..].iter_mut().for_each(|op| op.when = When::First);
            let storage = self.values[gathered.0].storage;
            self.storages[storage.0].persistent = true;
            self.kept_weights.insert(parameter, gathered);
        }
        Ok(gathered)
    }

    /// Sharding of the residual stream: with whole-tile products, rows over x where activations are scattered, and
    /// columns over y; with SUMMA rows over y and columns over x.
    pub fn residual_sharding(&self) -> Sharding {
        match self.layout.linear {
            Linear::Pmm => Sharding::new(&self.rows_with(Axis::X), &[Axis::Y]),
            Linear::Summa => Sharding::new(&self.rows_with(Axis::Y), &[Axis::X]),
        }
    }

    /// The axes that cut the rows of every activation.
    pub fn rows(&self) -> AxisList {
        self.layout.row_axes().collect()
    }

    /// The same and, where activations are scattered, `axis`.
    pub fn rows_with(&self, axis: Axis) -> AxisList {
        let axis = self.layout.scatters_rows().then_some(axis);
        self.rows().into_iter().chain(axis).collect()
    }
}
