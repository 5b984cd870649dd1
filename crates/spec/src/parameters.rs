//! The trained tensors of a model, each said once.

use crate::{Attention, Block, Model, Norm, Normalization};

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

    /// Whether it may be pruned: matrices of blocks, and with `tables` embedding and head; positions, biases and norms never.
    pub fn is_prunable(&self, tables: bool) -> bool {
        let is_table = [("embedding", "table"), ("head", "weight")].contains(&(self.layer, self.part));
        if self.block.is_some() { self.decay } else { tables && is_table }
    }

    /// Number of elements.
    pub fn elements(&self) -> u64 {
        self.rows as u64 * self.cols as u64
    }
}

impl Model {
    /// Every parameter, in the order of the table.
    pub fn all_parameters(&self) -> impl Iterator<Item = ModelParameter> {
        let blocks = (0..self.layers()).flat_map(|block| self.block_parameters(block));
        self.embedding_parameters().chain(blocks).chain(self.head_parameters())
    }

    /// Number of trained parameters, vocabulary padding not counted, a tied table once.
    pub fn parameters(&self) -> u64 {
        let of_kind = |block| self.parameters_of(block).map(|parameter| parameter.elements()).sum::<u64>();
        let blocks: u64 = self.blocks.counts().map(|(count, block)| count as u64 * of_kind(block)).sum();
        let ends: u64 = self.embedding_parameters().chain(self.head_parameters()).map(|end| end.elements()).sum();
        blocks + ends
    }

    fn embedding_parameters(&self) -> impl Iterator<Item = ModelParameter> {
        let h = self.hidden;
        let [first, bias] = match self.patch_values {
            None => [Some(ModelParameter::matrix("embedding", "table", [self.vocab, h], DEVIATION)), None],
            Some(values) => linear("embedding", [values, h], self.patch_biases, DEVIATION),
        };
        let positions = || ModelParameter::matrix("embedding", "positions", [self.seq_len, h], DEVIATION);
        [first, bias, self.learned_positions.then(positions)].into_iter().flatten()
    }

    fn block_parameters(&self, block: usize) -> impl Iterator<Item = ModelParameter> {
        let parameters = self.parameters_of(&self.blocks[block]);
        parameters.map(move |parameter| ModelParameter { block: Some(block), ..parameter })
    }

    fn parameters_of(&self, block: &Block) -> impl Iterator<Item = ModelParameter> + use<> {
        let h = self.hidden;
        let Block { attention, perceptron, norm, norm_place, .. } = *block;
        let stream_norm = |layer, stands| if stands { norm_vectors(layer, norm, h) } else { [None, None] };
        // Of what is added to the residual stream, as often as there are such layers.
        let added = DEVIATION / (2.0 * self.layers() as f64).sqrt();
        let layers = [
            stream_norm("norm1", norm_place.is_before()),
            linear("qkv", [h, attention.qkv_width()], attention.qkv_bias, DEVIATION),
            qk_norm_vectors("query_norm", attention),
            qk_norm_vectors("key_norm", attention),
            linear("projection", [attention.width(), h], attention.projection_bias, added),
            stream_norm("norm1_after", norm_place.is_after()),
            stream_norm("norm2", norm_place.is_before()),
            linear("up", [h, perceptron.up_width()], perceptron.up_bias, DEVIATION),
            linear("down", [perceptron.width, h], perceptron.down_bias, added),
            stream_norm("norm2_after", norm_place.is_after()),
        ];
        layers.into_iter().flatten().flatten()
    }

    /// Of the final norm and the head.
    fn head_parameters(&self) -> impl Iterator<Item = ModelParameter> {
        let h = self.hidden;
        let head = match self.patch_values {
            None if self.tied_head => [None, None],
            None => [Some(ModelParameter::matrix("head", "weight", [self.vocab, h], DEVIATION)), None],
            Some(values) => linear("head", [h, values], self.patch_biases, DEVIATION),
        };
        norm_vectors("final_norm", self.final_norm, h).into_iter().chain(head).flatten()
    }
}

fn linear(layer: &'static str, shape: [usize; 2], has_bias: bool, deviation: f64) -> [Option<ModelParameter>; 2] {
    let bias = has_bias.then(|| ModelParameter::vector(layer, "bias", shape[1], 0.0));
    [Some(ModelParameter::matrix(layer, "weight", shape, deviation)), bias]
}

/// Of the queries or keys of all heads together.
fn qk_norm_vectors(layer: &'static str, attention: Attention) -> [Option<ModelParameter>; 2] {
    attention.qk_norm.map_or([None, None], |norm| norm_vectors(layer, norm, attention.head_dim))
}

fn norm_vectors(layer: &'static str, norm: Normalization, width: usize) -> [Option<ModelParameter>; 2] {
    let beta = (norm.kind == Norm::Layer).then(|| ModelParameter::vector(layer, "beta", width, 0.0));
    [Some(ModelParameter::vector(layer, "gamma", width, norm.initial_gamma())), beta]
}
