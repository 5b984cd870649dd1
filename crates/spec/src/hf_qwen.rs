//! Qwen2, Qwen2.5 and Qwen3 as a Hugging Face configuration describes them: kin of Llama in which the last blocks may look back over
//! a window only.

use crate::choices::QkNorm;
use crate::hf_fields::Fields;
use crate::hf_llama::{default_width, rotary_decoder, with_heads};
use crate::{ModelFile, SpecError};

/// Qwen2: biases of queries, keys and values only.
pub(crate) fn qwen2(fields: &mut Fields) -> Result<ModelFile, SpecError> {
    fields.check_flag("use_mrope", false, "tokens of texts have one position each")?;
    let file = rotary_decoder(fields, "Qwen2ForCausalLM")?;
    let file = with_heads(fields, file, Some(32))?;
    let ffn = Some(fields.needed_size("intermediate_size")?);
    windowed(fields, ModelFile { ffn, qkv_bias: Some(true), ..file })
}

/// Qwen3: norms of every query and key, heads of any width.
pub(crate) fn qwen3(fields: &mut Fields) -> Result<ModelFile, SpecError> {
    let file = rotary_decoder(fields, "Qwen3ForCausalLM")?;
    let file = with_heads(fields, ModelFile { head_dim: default_width(fields, &file, 128), ..file }, Some(32))?;
    let bias = Some(fields.flag("attention_bias", false)?);
    let ffn = Some(fields.needed_size("intermediate_size")?);
    let qk_norm = Some(QkNorm::Rms);
    windowed(fields, ModelFile { ffn, qk_norm, qkv_bias: bias, projection_bias: bias, ..file })
}

/// The window of the blocks after the first `max_window_layers`, or of those that `layer_types` says, where it is switched on.
fn windowed(fields: &mut Fields, file: ModelFile) -> Result<ModelFile, SpecError> {
    let window = fields.window(Some(4096))?;
    let window = if fields.flag("use_sliding_window", false)? { window } else { None };
    let first = fields.size("max_window_layers")?.unwrap_or(28);
    fields.windows_by_block(file, window, first)
}
