//! Models, parameters and batches small enough for finite differences.

use quadrille_oracle::{Batch, DropoutSeed, Samples, Tensors, loss_and_gradients, parameter_shapes};
use quadrille_spec::{Activation, Model, Norm, Positions, RandomStream};

/// A GPT with odd sizes that are all different; its epsilon keeps norms smooth where dropout empties a row.
pub fn model() -> Model {
    Model::gpt(2, 6, 2, 11, 5).reshaped(|m| {
        m.ffn = 7;
        m.tied_head = false;
        m.norm_epsilon = 0.1;
    })
}

/// A Llama with two groups of two heads, each of two pairs of numbers, the second of which turn a third as fast.
pub fn llama() -> Model {
    model().reshaped(|m| {
        m.hidden = 16;
        m.heads = 4;
        m.kv_heads = 2;
        m.biases = false;
        m.norm = Norm::Rms;
        m.positions = Positions::Rotary;
        m.rotary_base = 9.0;
        m.activation = Activation::Swiglu;
    })
}

/// A vision transformer that reads patches of five numbers.
pub fn vit() -> Model {
    model().reshaped(|m| {
        m.vocab = 0;
        m.patch_values = Some(5);
        m.causal = false;
    })
}

/// A mixture of experts: two blocks of four of which two are chosen, with places for 3 of 6 tokens.
pub const MOE: &str = "name = \"moe\"\nlayers = 2\nhidden = 6\nheads = 2\nffn = 5\nvocab = 11\nseq_len = 6\n\
    tied_head = false\nnorm_epsilon = 0.1\nexperts = 4\ncapacity = 0.7\n";

/// Latent attention with values of other widths than keys, whose shared columns are two pairs of numbers, which turn.
pub const LATENT: &str = "name = \"latent\"\nlayers = 2\nhidden = 6\nheads = 2\nffn = 5\nvocab = 11\nseq_len = 6\n\
    tied_head = false\nnorm_epsilon = 0.1\npositions = \"rotary\"\nrotary_base = 9.0\nhead_dim = 7\nvalue_dim = 3\n\
    key_value_latent = 5\nshared_key = 4\nrotary_dim = 4\n";

/// [`MOE`] with other fields.
pub fn moe(overrides: &[(&str, &str)]) -> Model {
    changed(MOE, overrides)
}

/// The model of a file with other fields.
pub fn changed(text: &str, overrides: &[(&str, &str)]) -> Model {
    let owned: Vec<_> = overrides.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    Model::from_toml(text, &owned).unwrap()
}

/// Parameters far enough from zero that every path carries gradient.
pub fn parameters(model: &Model, seed: u64) -> Tensors {
    let values = |name: &str, count: usize| {
        let stream = RandomStream::new(seed, name);
        let centre = if name.ends_with("gamma") { 1.0 } else { 0.0 };
        (0..count as u64).map(|i| centre + 0.5 * stream.normal(i)).collect()
    };
    parameter_shapes(model).into_iter().map(|(name, [r, c])| (name.clone(), values(&name, r * c))).collect()
}

/// A batch that owns its memory; what the model does not read is empty.
#[derive(Debug, Clone)]
pub struct Sample {
    pub tokens: Vec<u32>,
    pub targets: Vec<u32>,
    pub patches: Vec<f64>,
    pub patch_targets: Vec<f64>,
    pub sequences: usize,
    pub seq_len: usize,
}

impl Sample {
    pub fn new(model: &Model, sequences: usize, seq_len: usize, seed: u64) -> Self {
        let rows = (sequences * seq_len) as u64;
        let ids = |what| {
            let stream = RandomStream::new(seed, what);
            let count = if model.patch_values.is_none() { rows } else { 0 };
            (0..count).map(|i| stream.below(i, model.vocab as u64) as u32).collect()
        };
        let numbers = |what| {
            let stream = RandomStream::new(seed, what);
            (0..rows * model.patch_values.unwrap_or(0) as u64).map(|i| stream.normal(i)).collect()
        };
        Self {
            tokens: ids("tokens"),
            targets: ids("targets"),
            patches: numbers("patches"),
            patch_targets: numbers("patch targets"),
            sequences,
            seq_len,
        }
    }

    pub fn batch(&self) -> Batch<'_> {
        let samples = if self.patches.is_empty() {
            Samples::Tokens { inputs: &self.tokens, targets: &self.targets }
        } else {
            Samples::Patches { inputs: &self.patches, targets: &self.patch_targets }
        };
        Batch { samples, sequences: self.sequences, seq_len: self.seq_len }
    }
}

/// Loss without gradients.
pub fn loss(model: &Model, parameters: &Tensors, sample: &Sample, dropout: Option<DropoutSeed>) -> f64 {
    loss_and_gradients(model, parameters, &sample.batch(), dropout).0
}

/// Gradients without dropout.
pub fn gradients(model: &Model, parameters: &Tensors, sample: &Sample) -> Tensors {
    loss_and_gradients(model, parameters, &sample.batch(), None).1
}

/// The largest magnitude.
pub fn largest(values: &[f64]) -> f64 {
    values.iter().fold(0.0, |most, value| value.abs().max(most))
}
