//! Conventions by which the FLOPs that a model needs are counted, so that a rate can be compared with a program's log.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Block, FeedForward, Model, named};

/// A convention of counting a step's FLOPs. None counts recomputation.
///
/// ```
/// use quadrille_spec::{FlopsConvention, Model};
///
/// // Llama 3 8B, 8,192 tokens: 6 (8,030,261,248 - 128,256 x 4,096) + 12 x 32 x 4,096 x 8,192.
/// let model = Model::preset("llama3-8b")?;
/// let counted = FlopsConvention::Torchtitan.of_token(&model, 8192, 128_256);
/// assert_eq!(counted, Some(57_914_449_920.0));
/// # Ok::<(), quadrille_spec::SpecError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FlopsConvention {
    /// This program's: products and attention, forward and backward, without causal discount.
    #[default]
    Native,
    /// Megatron-LM's `num_floating_point_operations` (`megatron/training/training.py`): products with the padded vocabulary, half of
    /// attention whatever its window, no routers, as many experts as a token chooses.
    Megatron,
    /// torchtitan's (`torchtitan/models/utils.py`): 6 FLOPs for each active parameter, norms and biases among them, the embedding only
    /// where it is the head's too; attention over its window, without causal discount.
    Torchtitan,
}

named!(FlopsConvention, "FLOPs convention", {
    "native" => Native,
    "megatron" => Megatron,
    "torchtitan" => Torchtitan,
});

/// FLOPs of a token, forward and backward: 6 for each parameter, and 12 for each column of a key, or of a value, and token that it
/// attends to, in all heads and layers (PaLM: Chowdhery et al. 2022, appendix B).
pub fn six_per_parameter(parameters: f64, attended: f64) -> f64 {
    6.0 * parameters + 12.0 * attended
}

impl FlopsConvention {
    /// FLOPs of a token, forward and backward, in sequences of `seq_len` by a model whose vocabulary is padded to so many rows; `None`
    /// by this program's own convention, which prices hold.
    pub fn of_token(self, model: &Model, seq_len: usize, padded_vocab: usize) -> Option<f64> {
        match self {
            Self::Native => None,
            Self::Megatron => Some(megatron(model, seq_len, padded_vocab)),
            Self::Torchtitan => Some(six_per_parameter(multiplied(model) as f64, attended(model, seq_len))),
        }
    }
}

fn megatron(model: &Model, seq_len: usize, padded_vocab: usize) -> f64 {
    let hidden = model.hidden;
    let of_block = |block: &Block| {
        let Block { attention, feed_forward, .. } = block;
        let columns = match feed_forward {
            FeedForward::Dense(perceptron) => perceptron.columns(),
            FeedForward::Experts(experts) => {
                experts.per_token * experts.expert.columns() + experts.shared.map_or(0, |shared| shared.columns())
            }
        };
        let inputs: usize = attention.input_layers(hidden).map(|layer| layer.inputs * layer.outputs).sum();
        // Their norms count as a column each.
        let latents = attention.latent.map_or(0, |latent| latent.queries.unwrap_or(0) + latent.keys_values);
        let scores = seq_len as f64 * (attention.queries_width() + attention.width()) as f64 / 2.0;
        (inputs + latents + hidden * (attention.width() + columns)) as f64 + scores
    };
    let blocks: f64 = model.blocks.counts().map(|(count, block)| count as f64 * of_block(block)).sum();
    let ends = model.patch_values.map_or(padded_vocab, |values| 2 * values);
    6.0 * (blocks + (ends * hidden) as f64)
}

/// Parameters that a token is multiplied with: of experts the chosen ones, no tables that are only looked up.
fn multiplied(model: &Model) -> u64 {
    let is_table = |layer, part| layer == "embedding" && (part == "positions" || (part == "table" && !model.tied_head));
    let ends = model.all_parameters().filter(|parameter| parameter.block.is_none());
    let tables: u64 = ends.filter(|end| is_table(end.layer, end.part)).map(|end| end.elements()).sum();
    model.active_parameters() - model.untrained_parameters() - tables
}

/// Columns of keys and values, halved, times the tokens that a position may see, over all heads and blocks.
fn attended(model: &Model, seq_len: usize) -> f64 {
    let of_block = |block: &Block| {
        let attention = &block.attention;
        (attention.keys(seq_len) * (attention.queries_width() + attention.width())) as f64 / 2.0
    };
    model.blocks.counts().map(|(count, block)| count as f64 * of_block(block)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(convention: FlopsConvention, model: &str, seq_len: usize, padded_vocab: usize) -> f64 {
        convention.of_token(&Model::preset(model).unwrap(), seq_len, padded_vocab).unwrap()
    }

    /// By hand, of the sizes in the models' publications.
    #[test]
    fn megatron_counts_padded_logits_and_half_of_attention() {
        let megatron = |model, seq_len, vocab| counted(FlopsConvention::Megatron, model, seq_len, vocab);
        // 32 layers of 4,096 columns, 8 of 32 heads of keys, SwiGLU of 14,336; 128,256 padded for TP8 to 129,024.
        let block = 4096.0 * (4096.0 + 2.0 * 1024.0) + 4096.0 * 4096.0 + 3.0 * 4096.0 * 14_336.0 + 8192.0 * 4096.0;
        assert_eq!(megatron("llama3-8b", 8192, 129_024), 6.0 * (32.0 * block + 4096.0 * 129_024.0));
        // 96 layers of 12,288: 24 B s h^2 of products forward, 2 B s^2 h of half the scores; 51,200 rows of the vocabulary.
        let [s, h] = [2048.0, 12_288.0];
        let forward = 96.0 * (24.0 * h * h + 2.0 * s * h) + 2.0 * h * 51_200.0;
        assert_eq!(megatron("gpt3-175b", 2048, 51_200), 3.0 * forward);
        // Two of eight experts, no router.
        let block =
            4096.0 * (4096.0 + 2.0 * 1024.0) + 4096.0 * 4096.0 + 2.0 * 3.0 * 4096.0 * 14_336.0 + 4096.0 * 4096.0;
        assert_eq!(megatron("mixtral-8x7b", 4096, 32_000), 6.0 * (32.0 * block + 4096.0 * 32_000.0));
    }

    #[test]
    fn torchtitan_counts_six_for_each_active_parameter() {
        let torchtitan = |model, seq_len| counted(FlopsConvention::Torchtitan, model, seq_len, 0);
        let llama = 8_030_261_248.0 - 128_256.0 * 4096.0;
        assert_eq!(torchtitan("llama3-8b", 8192), 6.0 * llama + 12.0 * 32.0 * 4096.0 * 8192.0);
        // Norms (2 of each block, one at the end), routers, two of eight experts.
        let block = 4096.0 * (4096.0 + 2048.0) + 4096.0 * 4096.0 + 2.0 * 3.0 * 4096.0 * 14_336.0 + 8.0 * 4096.0;
        let mixtral = 32.0 * (block + 2.0 * 4096.0) + 4096.0 + 32_000.0 * 4096.0;
        assert_eq!(torchtitan("mixtral-8x7b", 4096), 6.0 * mixtral + 12.0 * 32.0 * 4096.0 * 4096.0);
        // A tied table is the head's, positions are looked up: 124,439,808 parameters of which 1,024 x 768 are positions.
        let gpt2 = 124_439_808.0 - 1024.0 * 768.0;
        assert_eq!(torchtitan("gpt2-124m", 1024), 6.0 * gpt2 + 12.0 * 12.0 * 768.0 * 1024.0);
    }

    /// Gemma 2 2B: 26 blocks, every second of which sees 4,096 tokens; 8 heads of 256 columns; the table is the head's.
    #[test]
    fn windows_count_for_torchtitan_and_not_for_megatron() {
        let model = Model::preset("gemma2-2b").unwrap();
        assert_eq!(model.blocks.iter().filter(|block| block.attention.window == Some(4096)).count(), 13);
        let torchtitan = counted(FlopsConvention::Torchtitan, "gemma2-2b", 8192, 0);
        assert_eq!(torchtitan, 6.0 * 2_614_341_888.0 + 12.0 * 13.0 * (8.0 * 256.0) * (4096.0 + 8192.0));
        let block = 2304.0 * (2048.0 + 2.0 * 1024.0) + 2048.0 * 2304.0 + 3.0 * 2304.0 * 9216.0 + 8192.0 * 2048.0;
        let megatron = counted(FlopsConvention::Megatron, "gemma2-2b", 8192, 256_000);
        assert_eq!(megatron, 6.0 * (26.0 * block + 2304.0 * 256_000.0));
    }

    /// DeepSeek-V3: 128 heads whose keys have 192 columns and whose values 128, of latent rows of 1,536 and 512.
    #[test]
    fn latent_attention_counts_its_projections() {
        let attention = 7168.0 * 1536.0
            + 1536.0 * (128.0 * 192.0)
            + 7168.0 * 512.0
            + 512.0 * 128.0 * (128.0 + 128.0)
            + 7168.0 * 64.0
            + 128.0 * 128.0 * 7168.0;
        let norms = 1536.0 + 512.0;
        let scores = 4096.0 * 128.0 * (192.0 + 128.0) / 2.0;
        let [dense, experts] = [3.0 * 18_432.0, 3.0 * 2048.0 * 9.0].map(|columns| 7168.0 * columns);
        let blocks = 61.0 * (attention + norms + scores) + 3.0 * dense + 58.0 * experts;
        let counted = counted(FlopsConvention::Megatron, "deepseek-v3", 4096, 129_280);
        assert!((counted / (6.0 * (blocks + 7168.0 * 129_280.0)) - 1.0).abs() < 1e-12, "{counted}");
    }
}
