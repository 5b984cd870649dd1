//! The tensors of a model that training changes, each said once.

use crate::{Attention, Block, Experts, FeedForward, InputLayer, Model, Norm, Normalization, Perceptron, QueryKeyNorm};

/// Standard deviation of the initial weights, those of GPT-2.
const DEVIATION: f64 = 0.02;

/// The layer that chooses experts.
const ROUTER: &str = "router";

/// How the elements of a parameter start.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Initial {
    /// Every element the same.
    Constant(f64),
    /// Normal numbers with mean 0 and this standard deviation.
    Normal(f64),
}

/// A tensor of a model that training changes: a row of the table at [`Model`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ModelParameter {
    /// The block that it is of; `None`: it is of an end of the model.
    pub block: Option<usize>,
    /// The layer, in its block: `qkv`.
    pub layer: &'static str,
    /// What it is to the layer: `weight`.
    pub part: &'static str,
    /// How many equal blocks of rows it consists of: as many as there are experts of their matrices, else 1.
    pub blocks: usize,
    /// Its rows, those of all blocks; 1 of a vector.
    pub rows: usize,
    /// Its columns.
    pub cols: usize,
    /// Whether weight decay applies: to matrices and tables, not to biases and norms.
    pub decay: bool,
    /// How it starts.
    pub initial: Initial,
    /// Whether the optimizer moves it by its gradient: all but the biases of routers, which follow the loads of experts.
    pub is_trained: bool,
}

impl ModelParameter {
    fn matrix(layer: &'static str, part: &'static str, [rows, cols]: [usize; 2], deviation: f64) -> Self {
        let initial = Initial::Normal(deviation);
        Self { block: None, layer, part, blocks: 1, rows, cols, decay: true, initial, is_trained: true }
    }

    fn vector(layer: &'static str, part: &'static str, cols: usize, value: f64) -> Self {
        let initial = Initial::Constant(value);
        Self { block: None, layer, part, blocks: 1, rows: 1, cols, decay: false, initial, is_trained: true }
    }

    /// The whole name: `block.0.qkv.weight`.
    pub fn name(&self) -> String {
        let Self { block, layer, part, .. } = self;
        match block {
            Some(block) => format!("block.{block}.{layer}.{part}"),
            None => format!("{layer}.{part}"),
        }
    }

    /// Whether it may be pruned: matrices of blocks, and with `tables` embedding and head; routers, positions, biases and
    /// norms never.
    pub fn is_prunable(&self, tables: bool) -> bool {
        let is_table = [("embedding", "table"), ("head", "weight")].contains(&(self.layer, self.part));
        if self.block.is_some() { self.decay && self.layer != ROUTER } else { tables && is_table }
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

    /// Number of parameters, vocabulary padding not counted, a tied table once.
    pub fn parameters(&self) -> u64 {
        self.summed(|_, parameter| parameter.elements())
    }

    /// Number of parameters that work on a token: of a block's experts those that it chooses.
    pub fn active_parameters(&self) -> u64 {
        self.summed(|block, parameter| match block.and_then(|block| block.feed_forward.experts()) {
            Some(experts) if parameter.blocks > 1 => {
                parameter.elements() / parameter.blocks as u64 * experts.per_token as u64
            }
            _ => parameter.elements(),
        })
    }

    /// Number of parameters of the experts' matrices.
    pub fn expert_parameters(&self) -> u64 {
        self.summed(|_, parameter| if parameter.blocks > 1 { parameter.elements() } else { 0 })
    }

    /// Number of parameters that the optimizer does not move: biases of routers.
    pub fn untrained_parameters(&self) -> u64 {
        self.summed(|_, parameter| if parameter.is_trained { 0 } else { parameter.elements() })
    }

    /// The sum over all parameters, each with the block that it is of.
    fn summed(&self, of: impl Fn(Option<&Block>, ModelParameter) -> u64) -> u64 {
        let of_kind = |block| self.parameters_of(block).map(|parameter| of(Some(block), parameter)).sum::<u64>();
        let blocks: u64 = self.blocks.counts().map(|(count, block)| count as u64 * of_kind(block)).sum();
        let ends = self.embedding_parameters().chain(self.head_parameters());
        blocks + ends.map(|end| of(None, end)).sum::<u64>()
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
        let Block { attention, feed_forward, norm, norm_place, .. } = *block;
        let stream_norm = |layer, stands| if stands { norm_vectors(layer, norm, h) } else { [None, None] };
        // Of what is added to the residual stream, as often as there are such layers.
        let added = DEVIATION / (2.0 * self.layers() as f64).sqrt();
        let before = [stream_norm("norm1", norm_place.is_before())];
        let inputs = attention.input_layers(h).flat_map(move |layer| input_parameters(layer, attention, norm));
        let attention_half = [
            qk_norm_vectors("query_norm", attention, attention.heads),
            qk_norm_vectors("key_norm", attention, attention.kv_heads),
            linear("projection", [attention.width(), h], attention.projection_bias, added),
            stream_norm("norm1_after", norm_place.is_after()),
            stream_norm("norm2", norm_place.is_before()),
        ];
        let layers = match feed_forward {
            FeedForward::Dense(perceptron) => {
                perceptron_parameters(["up", "down"], perceptron, h, added).into_iter().collect()
            }
            FeedForward::Experts(experts) => expert_parameters(experts, h, added),
        };
        let after = [stream_norm("norm2_after", norm_place.is_after())];
        before.into_iter().chain(inputs).chain(attention_half).chain(layers).chain(after).flatten().flatten()
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

/// Of a layer that makes queries, keys and values, and of the norm of its result if that is what others are made of.
fn input_parameters(layer: InputLayer, attention: Attention, norm: Normalization) -> [[Option<ModelParameter>; 2]; 2] {
    let InputLayer { kind, inputs, outputs } = layer;
    let of_norm = kind.norm().map_or([None, None], |named| norm_vectors(named, norm, outputs));
    [linear(kind.name(), [inputs, outputs], attention.qkv_bias, DEVIATION), of_norm]
}

fn linear(layer: &'static str, shape: [usize; 2], has_bias: bool, deviation: f64) -> [Option<ModelParameter>; 2] {
    let bias = has_bias.then(|| ModelParameter::vector(layer, "bias", shape[1], 0.0));
    [Some(ModelParameter::matrix(layer, "weight", shape, deviation)), bias]
}

/// The two layers of a perceptron, by their names; the second has the deviation of what is added to the stream.
fn perceptron_parameters(
    [up, down]: [&'static str; 2],
    perceptron: Perceptron,
    hidden: usize,
    added: f64,
) -> [[Option<ModelParameter>; 2]; 2] {
    [
        linear(up, [hidden, perceptron.up_width()], perceptron.up_bias, DEVIATION),
        linear(down, [perceptron.width, hidden], perceptron.down_bias, added),
    ]
}

/// Experts are blocks of rows of two matrices, and start like perceptrons.
fn expert_parameters(experts: Experts, hidden: usize, added: f64) -> Vec<[Option<ModelParameter>; 2]> {
    let Experts { count, expert, shared, router, .. } = experts;
    let router_bias = ModelParameter { is_trained: false, ..ModelParameter::vector(ROUTER, "bias", count, 0.0) };
    let matrix = |layer, rows, cols, deviation| {
        let all = ModelParameter::matrix(layer, "weight", [count * rows, cols], deviation);
        [Some(ModelParameter { blocks: count, ..all }), None]
    };
    let mut layers = vec![
        [
            Some(ModelParameter::matrix(ROUTER, "weight", [hidden, count], DEVIATION)),
            router.has_bias().then_some(router_bias),
        ],
        matrix("experts.up", hidden, expert.up_width(), DEVIATION),
        matrix("experts.down", expert.width, hidden, added),
    ];
    let names = ["shared.up", "shared.down"];
    layers.extend(shared.into_iter().flat_map(|shared| perceptron_parameters(names, shared, hidden, added)));
    layers
}

/// Of the queries or keys of so many heads.
fn qk_norm_vectors(layer: &'static str, attention: Attention, heads: usize) -> [Option<ModelParameter>; 2] {
    let vectors = |norm: QueryKeyNorm| norm_vectors(layer, norm.rule, norm.heads(heads) * attention.head_dim);
    attention.qk_norm.map_or([None, None], vectors)
}

fn norm_vectors(layer: &'static str, norm: Normalization, width: usize) -> [Option<ModelParameter>; 2] {
    let beta = (norm.kind == Norm::Layer).then(|| ModelParameter::vector(layer, "beta", width, 0.0));
    [Some(ModelParameter::vector(layer, "gamma", width, norm.initial_gamma())), beta]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_with_experts_has_matrices_of_all_of_them() {
        let overrides = [("shared_ffn".to_owned(), "8".to_owned()), ("norm_place".to_owned(), "both".to_owned())];
        let model = Model::from_toml(Model::preset_text("moe-tiny").unwrap(), &overrides).unwrap();
        let of_block: Vec<_> = model.block_parameters(1).skip_while(|it| it.layer != "norm2").skip(2).collect();
        let names: Vec<_> = of_block.iter().map(ModelParameter::name).collect();
        let expected = [
            "block.1.router.weight",
            "block.1.experts.up.weight",
            "block.1.experts.down.weight",
            "block.1.shared.up.weight",
            "block.1.shared.down.weight",
            "block.1.norm2_after.gamma",
            "block.1.norm2_after.beta",
        ];
        assert_eq!(names, expected);
        let shape = |it: &ModelParameter| [it.blocks, it.rows, it.cols];
        let shapes: Vec<_> = of_block.iter().take(5).map(shape).collect();
        assert_eq!(shapes, [[1, 16, 4], [4, 64, 64], [4, 128, 16], [1, 16, 16], [1, 8, 16]]);
        let added = Initial::Normal(DEVIATION / 2.0);
        assert_eq!([1, 2, 3, 4].map(|it| of_block[it].initial == added), [false, true, false, true]);
        assert!(of_block[..5].iter().all(|it| it.decay));
        let prunable: Vec<_> = of_block.iter().map(|it| it.is_prunable(true)).collect();
        assert_eq!(prunable, [false, true, true, true, true, false, false]);
        let unchosen = 2 * 2 * (16 * 64 + 32 * 16);
        assert_eq!(model.parameters() - model.active_parameters(), unchosen);
        assert_eq!(model.untrained_parameters(), 0);
    }

    #[test]
    fn biases_of_routers_are_not_trained() {
        let with = |overrides: &[(String, String)]| {
            Model::from_toml(Model::preset_text("moe-tiny").unwrap(), overrides).unwrap()
        };
        let model = with(&[("router_bias_rate".to_owned(), "0.001".to_owned())]);
        let untrained: Vec<_> = model.all_parameters().filter(|it| !it.is_trained).collect();
        let names: Vec<_> = untrained.iter().map(ModelParameter::name).collect();
        assert_eq!(names, ["block.0.router.bias", "block.1.router.bias"]);
        assert!(untrained.iter().all(|it| (it.rows, it.cols, it.decay) == (1, 4, false) && !it.is_prunable(true)));
        assert_eq!((model.untrained_parameters(), model.parameters() - with(&[]).parameters()), (8, 8));
    }
}
