//! Attention and norms in the words of Megatron Core.
//!
//! What fields mean was read in `megatron/core/transformer/{transformer_config,utils,multi_latent_attention}.py` and
//! `megatron/core/models/common/embeddings` of releases 0.17.1 and 0.19.2: a window's left side counts the positions before a
//! position, itself not; rotary frequencies of longer sequences are mixed between 1 and 4 waves in 8192 positions; YaRN is that of
//! latent attention, between 1 and 32 waves in 4096 positions, whose scores its `mscale_all_dim` scales.

use quadrille_spec::{RotaryScaling, SpecError};

use super::fields::{Fields, Setting};
use super::model::Described;
use super::properties::{LatentHeads, Properties};

/// What Megatron Core is told of attention and norms.
///
/// # Errors
/// What it computes otherwise.
pub(super) fn fields(framework: &str, described: &Described) -> Result<Fields, SpecError> {
    let Properties { qkv_bias, rotary_columns, scaling, score_scale, norm_offset, .. } = described.properties;
    let head_dim = described.head_dim.unwrap_or(described.sizes.head_dim());
    let mut fields = Fields::default();
    fields.switch("add_qkv_bias", qkv_bias);
    fields.switch("layernorm_zero_centered_gamma", norm_offset);
    let window = described.properties.window.as_ref();
    fields.set("window_size", window.map(|window| Setting::Pair([window.positions - 1, 0])), "null");
    let some = window.filter(|window| window.at.contains(&false));
    fields.set("window_attn_skip_freq", some.map(|window| Setting::Blocks(window.at.clone())), "null");
    match described.properties.latent {
        Some(latent) => latent_fields(&mut fields, framework, described, latent)?,
        None => {
            let part = rotary_columns.map(|columns| columns as f64 / head_dim as f64);
            fields.set("rotary_percent", part.map(|part| Setting::Said(part.to_string())), "1.0");
            scaling_fields(&mut fields, framework, scaling)?;
            let scale = (score_scale != 1.0).then(|| score_scale / (head_dim as f64).sqrt());
            fields.maybe("softmax_scale", scale);
        }
    }
    Ok(fields)
}

/// How frequencies of plain attention are scaled.
fn scaling_fields(fields: &mut Fields, framework: &str, scaling: RotaryScaling) -> Result<(), SpecError> {
    let (llama, linear) = match scaling {
        RotaryScaling::None => (None, None),
        RotaryScaling::Llama3 { factor, low: 1.0, high: 4.0, positions: 8192 } => (Some(factor), None),
        RotaryScaling::Linear { factor } if factor.fract() == 0.0 => (None, Some(factor)),
        RotaryScaling::Llama3 { low, high, positions, .. } => {
            let rule = format!("{framework} mixes frequencies between 1 and 4 waves in 8192 positions");
            return Err(refused(format!("llama3 of {low} to {high} waves in {positions} positions"), rule));
        }
        RotaryScaling::Linear { factor } => {
            return Err(refused(format!("linear by {factor}"), format!("{framework} divides by whole numbers")));
        }
        RotaryScaling::Yarn { .. } => {
            return Err(refused("yarn".to_owned(), format!("{framework} knows it of latent attention")));
        }
    };
    fields.switch("rope_scaling", llama.is_some());
    fields.set("rope_scaling_factor", llama.map(|factor| Setting::Said(factor.to_string())), "8.0");
    fields.maybe("seq_len_interpolation_factor", linear);
    Ok(())
}

fn refused(value: String, rule: String) -> SpecError {
    SpecError::invalid("rotary_scaling", value, rule, "leave it out, or use the released one")
}

fn latent_fields(
    fields: &mut Fields,
    framework: &str,
    described: &Described,
    LatentHeads { rows, head_dim, value_dim }: LatentHeads,
) -> Result<(), SpecError> {
    let Properties { rotary_columns, score_scale, scaling, .. } = described.properties;
    if described.qk_norm {
        let rule = format!("{framework} norms the narrow rows of latent attention, not queries and keys");
        return Err(SpecError::invalid("qk_norm", true, rule, "leave it out"));
    }
    if rotary_columns != Some(rows.shared_key) {
        let columns = rotary_columns.unwrap_or(head_dim);
        let rule = format!("in {framework} the {} columns that all heads share turn, and no others", rows.shared_key);
        return Err(SpecError::invalid("rotary_dim", columns, rule, "use as many"));
    }
    fields.switch("multi_latent_attention", true);
    fields.maybe("q_lora_rank", rows.queries);
    fields.say("kv_lora_rank", rows.keys_values);
    fields.say("qk_head_dim", head_dim - rows.shared_key);
    fields.say("qk_pos_emb_head_dim", rows.shared_key);
    fields.say("v_head_dim", value_dim);
    let (rule, factor) = match scaling {
        RotaryScaling::None => ("rope", 1.0),
        RotaryScaling::Yarn { factor, low: 1.0, high: 32.0, positions: 4096 } => ("yarn", factor),
        _ => {
            let rule = format!("latent attention in {framework} has YaRN between 1 and 32 waves in 4096 positions");
            return Err(refused("other".to_owned(), rule));
        }
    };
    fields.say("rope_type", rule);
    fields.say("rotary_scaling_factor", factor);
    let scale = scale_of_columns(framework, factor, score_scale)?;
    fields.say("mscale", scale);
    fields.say("mscale_all_dim", scale);
    Ok(())
}

/// `m`, where scores are multiplied with `(0.1 m ln factor + 1)^2`.
fn scale_of_columns(framework: &str, factor: f64, score_scale: f64) -> Result<f64, SpecError> {
    let scale = if factor > 1.0 {
        // Of what rounding leaves of it.
        ((score_scale.sqrt() - 1.0) / (0.1 * factor.ln()) * 1e9).round() / 1e9
    } else {
        0.0
    };
    let given = (0.1 * scale * factor.ln() + 1.0).powi(2);
    if scale >= 0.0 && (given / score_scale - 1.0).abs() < 1e-9 {
        return Ok(scale);
    }
    let rule =
        format!("scores of latent attention in {framework} grow with YaRN's factor, {factor}, and not otherwise");
    Err(SpecError::invalid("score_scale", score_scale, rule, "use 1, or the released one"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_of_scores_are_those_of_their_columns() {
        let grown = |m: f64, factor: f64| (0.1 * m * factor.ln() + 1.0_f64).powi(2);
        assert_eq!(scale_of_columns("M", 40.0, grown(1.0, 40.0)), Ok(1.0));
        assert_eq!(scale_of_columns("M", 32.0, grown(0.707, 32.0)), Ok(0.707));
        assert_eq!(scale_of_columns("M", 1.0, 1.0), Ok(0.0));
        for (factor, scale) in [(1.0, 1.1), (40.0, 0.9)] {
            let message = scale_of_columns("M", factor, scale).unwrap_err().to_string();
            assert!(message.starts_with(&format!("score_scale = {scale}: ")), "{message}");
        }
    }
}
