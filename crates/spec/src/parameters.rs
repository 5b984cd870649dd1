//! The trained tensors of a model, each said once.

use crate::{Model, Norm, Positions};

/// Standard deviation of the initial weights, those of GPT-2.
const DEVIATION: f64 = 0.02;

/// How the elements of a parameter start.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Initial {
    /// Every element the same.
    Constant(f64),
    /// Normal numbers with mean 0 and this standard deviation.
    Normal(f64),
}

/// A trained tensor of a model: a row of the table at [`Model`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ModelParameter {
    /// The block that it is of; `None`: it is of an end of the model.
    pub block: Option<usize>,
    /// The layer, in its block: `qkv`.
    pub layer: &'static str,
    /// What it is to the layer: `weight`.
    pub part: &'static str,
    /// Its rows; 1 of a vector.
    pub rows: usize,
    /// Its columns.
    pub cols: usize,
    /// Whether weight decay applies: to matrices and tables, not to biases and norms.
    pub decay: bool,
    /// How it starts.
    pub initial: Initial,
}

impl ModelParameter {
    fn matrix(layer: &'static str, part: &'static str, [rows, cols]: [usize; 2], deviation: f64) -> Self {
        Self { block: None, layer, part, rows, cols, decay: true, initial: Initial::Normal(deviation) }
    }

    fn vector(layer: &'static str, part: &'static str, cols: usize, value: f64) -> Self {
        Self { block: None, layer, part, rows: 1, cols, decay: false, initial: Initial::Constant(value) }
    }

    /// The whole name: `block.0.qkv.weight`.
    pub fn name(&self) -> String {
        let Self { block, layer, part, .. } = self;
        match block {
            Some(block) => format!("block.{block}.{layer}.{part}"),
            None => format!("{layer}.{part}"),
        }
    }

    /// Number of elements.
    pub fn elements(&self) -> u64 {
        self.rows as u64 * self.cols as u64
    }
}

impl Model {
    /// Every parameter, in the order of the table.
    pub fn all_parameters(&self) -> impl Iterator<Item = ModelParameter> {
        let blocks = (0..self.layers).flat_map(|block| self.block_parameters(block));
        self.embedding_parameters().chain(blocks).chain(self.head_parameters())
    }

    /// Number of trained parameters, vocabulary padding not counted, a tied table once.
    pub fn parameters(&self) -> u64 {
        let block: u64 = self.block_parameters(0).map(|parameter| parameter.elements()).sum();
        let ends: u64 = self.embedding_parameters().chain(self.head_parameters()).map(|end| end.elements()).sum();
        self.layers as u64 * block + ends
    }

    fn embedding_parameters(&self) -> impl Iterator<Item = ModelParameter> {
        let h = self.hidden;
        let [first, bias] = match self.patch_values {
            None => [Some(ModelParameter::matrix("embedding", "table", [self.vocab, h], DEVIATION)), None],
            Some(values) => self.linear("embedding", [values, h], DEVIATION),
        };
        let positions = || ModelParameter::matrix("embedding", "positions", [self.seq_len, h], DEVIATION);
        [first, bias, (self.positions == Positions::Learned).then(positions)].into_iter().flatten()
    }

    /// Of block `block`; every block has the same.
    fn block_parameters(&self, block: usize) -> impl Iterator<Item = ModelParameter> {
        let h = self.hidden;
        // Of what is added to the residual stream, as often as there are such layers.
        let added = DEVIATION / (2.0 * self.layers as f64).sqrt();
        let layers = [
            self.norm_parameters("norm1"),
            self.linear("qkv", [h, self.qkv_width()], DEVIATION),
            self.linear("projection", [h, h], added),
            self.norm_parameters("norm2"),
            self.linear("up", [h, self.up_width()], DEVIATION),
            self.linear("down", [self.ffn, h], added),
        ];
        layers.into_iter().flatten().flatten().map(move |parameter| ModelParameter { block: Some(block), ..parameter })
    }

    /// Of the final norm and the head.
    fn head_parameters(&self) -> impl Iterator<Item = ModelParameter> {
        let h = self.hidden;
        let head = match self.patch_values {
            None if self.tied_head => [None, None],
            None => [Some(ModelParameter::matrix("head", "weight", [self.vocab, h], DEVIATION)), None],
            Some(values) => self.linear("head", [h, values], DEVIATION),
        };
        self.norm_parameters("final_norm").into_iter().chain(head).flatten()
    }

    fn linear(&self, layer: &'static str, shape: [usize; 2], deviation: f64) -> [Option<ModelParameter>; 2] {
        let bias = self.biases.then(|| ModelParameter::vector(layer, "bias", shape[1], 0.0));
        [Some(ModelParameter::matrix(layer, "weight", shape, deviation)), bias]
    }

    fn norm_parameters(&self, layer: &'static str) -> [Option<ModelParameter>; 2] {
        let beta = (self.norm == Norm::Layer).then(|| ModelParameter::vector(layer, "beta", self.hidden, 0.0));
        [Some(ModelParameter::vector(layer, "gamma", self.hidden, 1.0)), beta]
    }
}
