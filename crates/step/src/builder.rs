//! The workbench on which a program is put together: values, parameters, operations of the current layer.

use quadrille_spec::{Axis, AxisSet, CollectiveKind, Layout, MemoryClass, Model};

use crate::backward::Node;
use crate::operation::{Collective, Op, Operation, Reduction};
use crate::parameter::{Initial, Parameter, ParameterId};
use crate::{Layer, Sharding, StepError, StorageId, StorageInfo, Value, ValueId};

/// What the names of partial sums end with, until they are reduced.
pub(crate) const PARTIAL: &str = " partial";

/// Everything that is known of a program while it is built.
pub(crate) struct Builder<'a> {
    pub model: &'a Model,
    pub layout: &'a Layout,
    pub values: Vec<Value>,
    pub storages: Vec<StorageInfo>,
    pub parameters: Vec<Parameter>,
    pub ops: Vec<Op>,
    /// What the forward pass did, for the backward pass to reverse.
    pub tape: Vec<(Layer, Node)>,
    pub layer: Layer,
}

impl<'a> Builder<'a> {
    pub fn new(model: &'a Model, layout: &'a Layout) -> Self {
        Self {
            model,
            layout,
            values: Vec::new(),
            storages: Vec::new(),
            parameters: Vec::new(),
            ops: Vec::new(),
            tape: Vec::new(),
            layer: Layer::Embedding,
        }
    }

    pub fn axis_size(&self, axis: Axis) -> usize {
        self.layout.grid.size(axis)
    }

    /// A value in a storage of its own.
    pub fn value(
        &mut self,
        name: impl Into<String>,
        [rows, cols]: [usize; 2],
        sharding: Sharding,
        class: MemoryClass,
    ) -> Result<ValueId, StepError> {
        let storage = StorageId(self.storages.len());
        let id = self.view(name, [rows, cols], sharding, storage)?;
        let elements = self.values[id.0].local_elements;
        let persistent = matches!(class, MemoryClass::Parameters | MemoryClass::Gradients | MemoryClass::Optimizer);
        self.storages.push(StorageInfo { elements, class, persistent });
        Ok(id)
    }

    /// A value in an existing storage.
    pub fn view(
        &mut self,
        name: impl Into<String>,
        [rows, cols]: [usize; 2],
        sharding: Sharding,
        storage: StorageId,
    ) -> Result<ValueId, StepError> {
        let name = name.into();
        let grid = &self.layout.grid;
        let (local_rows, local_cols) = sharding.tile(&name, rows, cols, grid)?;
        let flat: usize = sharding.flat.iter().map(|axis| grid.size(*axis)).product();
        let local_elements = local_rows * local_cols / flat;
        self.values.push(Value { name, rows, cols, sharding, local_rows, local_cols, local_elements, storage });
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
        let Value { rows, cols, sharding, .. } = self.values[input.0].clone();
        self.value(name, [rows, cols], sharding, MemoryClass::Activations)
    }

    pub fn sharding(&self, value: ValueId) -> &Sharding {
        &self.values[value.0].sharding
    }

    pub fn shape(&self, value: ValueId) -> [usize; 2] {
        [self.values[value.0].rows, self.values[value.0].cols]
    }

    pub fn class(&self, value: ValueId) -> MemoryClass {
        self.storages[self.values[value.0].storage.0].class
    }

    pub fn push(&mut self, operation: Operation) {
        self.ops.push(Op { layer: self.layer, operation });
    }

    pub fn record(&mut self, node: Node) {
        self.tape.push((self.layer, node));
    }

    /// A parameter of the current layer with its gradient. `padded_rows` >= `rows` only for vocabularies.
    pub fn parameter(
        &mut self,
        name: String,
        [rows, cols]: [usize; 2],
        padded_rows: usize,
        sharding: Sharding,
        initial: Initial,
        decay: bool,
    ) -> Result<ParameterId, StepError> {
        let shape = [padded_rows, cols];
        let value = self.value(name.clone(), shape, sharding.clone(), MemoryClass::Parameters)?;
        let gradient = self.value(format!("d {name}"), shape, sharding, MemoryClass::Gradients)?;
        let (layer, unreduced) = (self.layer, AxisSet::EMPTY);
        self.parameters.push(Parameter { name, layer, rows, cols, initial, decay, value, gradient, unreduced });
        Ok(ParameterId(self.parameters.len() - 1))
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
        let collective = Collective { kind, axes, reduction, input, output };
        self.push(Operation::Issue(collective));
        self.push(Operation::Wait(collective));
    }

    /// The weight as its products use it: its shards gathered over z, or the parameter itself if z is 1.
    pub fn gather_weight(&mut self, parameter: ParameterId) -> Result<ValueId, StepError> {
        let stored = self.parameters[parameter.0].value;
        if self.axis_size(Axis::Z) == 1 {
            return Ok(stored);
        }
        let Value { name, rows, cols, sharding, .. } = self.values[stored.0].clone();
        let whole = Sharding::new(&sharding.rows, &sharding.cols);
        let gathered = self.value(format!("{name} gathered"), [rows, cols], whole, MemoryClass::GatheredWeights)?;
        self.collective(CollectiveKind::AllGather, Axis::Z.only(), Reduction::Sum, stored, gathered);
        Ok(gathered)
    }

    /// Sharding of the residual stream: rows over data, z and, scattered, x; columns over y.
    pub fn residual_sharding(&self) -> Sharding {
        Sharding::new(&self.rows_with(Axis::X), &[Axis::Y])
    }

    /// Rows over data and z, and over `axis` where activations are scattered.
    pub fn rows_with(&self, axis: Axis) -> Vec<Axis> {
        match self.layout.activations {
            quadrille_spec::Activations::Scattered => vec![Axis::Data, Axis::Z, axis],
            quadrille_spec::Activations::Replicated => vec![Axis::Data, Axis::Z],
        }
    }

    /// Token rows of a pass over one microbatch, of all data ranks together.
    pub fn pass_rows(&self) -> usize {
        self.layout.grid.size(Axis::Data) * self.layout.microbatch * self.layout.seq_len
    }
}
