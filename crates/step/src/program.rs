//! The step program itself: built once from model and layout, the same for every rank.

use std::fmt;

use quadrille_spec::{Layout, Model};

use crate::builder::Builder;
use crate::ledger::check_counts;
use crate::{
    Lifetimes, Op, Parameter, Placement, StepError, StorageInfo, Value, ValueId, backward, blocks, passes, update,
};

/// A part of the model, for ledgers and messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Layer {
    /// Token and position embedding.
    Embedding,
    /// A transformer block.
    Block(usize),
    /// Final norm, language-model head and loss.
    Head,
    /// What belongs to the whole step: loss and norm.
    Step,
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Embedding => f.write_str("embedding"),
            Self::Block(index) => write!(f, "block {index}"),
            Self::Head => f.write_str("head"),
            Self::Step => f.write_str("step"),
        }
    }
}

/// A list of operations with the births and deaths of the storages that live in it.
#[derive(Debug, Clone, PartialEq)]
pub struct Section {
    /// In the order of execution.
    pub ops: Vec<Op>,
    /// When storages are taken and given back.
    pub lifetimes: Lifetimes,
}

/// One optimizer step of one rank: the section `pass` once per microbatch, then `update`.
#[derive(Debug, Clone, PartialEq)]
pub struct StepProgram {
    /// The model that is trained.
    pub model: Model,
    /// How it is spread.
    pub layout: Layout,
    /// Every value.
    pub values: Vec<Value>,
    /// Every storage.
    pub storages: Vec<StorageInfo>,
    /// Every parameter.
    pub parameters: Vec<Parameter>,
    /// Forward and backward of one microbatch.
    pub pass: Section,
    /// The index in `pass` at which the backward pass begins.
    pub backward_start: usize,
    /// Reduction of gradients, norm, optimizer.
    pub update: Section,
    /// Where the storages of both sections lie.
    pub placement: Placement,
}

impl StepProgram {
    /// Builds the program and applies the overlap passes of the layout.
    ///
    /// # Errors
    /// A dimension that its axes do not divide; a step too large to be counted.
    pub fn new(model: &Model, layout: &Layout) -> Result<Self, StepError> {
        let mut builder = Builder::new(model, layout);
        blocks::forward(&mut builder)?;
        let mut forward = std::mem::take(&mut builder.ops);
        backward::backward(&mut builder)?;
        let mut backward = std::mem::take(&mut builder.ops);
        update::update(&mut builder);
        let update = std::mem::take(&mut builder.ops);
        let Builder { values, storages, parameters, .. } = builder;

        passes::apply(layout.overlap, &values, &mut forward, &mut backward);
        let backward_start = forward.len();
        let section = |ops: Vec<Op>| Section { lifetimes: Lifetimes::of(&ops, &values, &storages), ops };
        let pass = section(forward.into_iter().chain(backward).collect());
        let update = section(update);
        let placement = Placement::of(&[&pass.lifetimes, &update.lifetimes], &storages);
        let program = Self {
            model: model.clone(),
            layout: layout.clone(),
            values,
            storages,
            parameters,
            backward_start,
            placement,
            pass,
            update,
        };
        check_counts(&program)?;
        Ok(program)
    }

    /// A value by its number.
    pub fn value(&self, id: ValueId) -> &Value {
        &self.values[id.0]
    }

    /// The layers in the order of the model.
    pub fn layers(&self) -> Vec<Layer> {
        let blocks = (0..self.model.layers).map(Layer::Block);
        [Layer::Embedding].into_iter().chain(blocks).chain([Layer::Head, Layer::Step]).collect()
    }
}
