//! The `config.json` of a Gemma that was not imported, or that changed since.

use quadrille_spec::{Block, Model, NormPlace, Rotary};
use serde_json::Value;

use crate::Family;
use crate::config_decoders::rotary_decoder;

/// The one that comes nearest to a model of RMS norms, rotary positions and gated GELU.
pub(crate) fn nearest(model: &Model) -> Family {
    let Block { attention, norm_place, .. } = model.blocks.first();
    match (norm_place, attention.qk_norm) {
        (NormPlace::Both, Some(_)) => Family::Gemma3Text,
        (NormPlace::Both, None) => Family::Gemma2,
        _ => Family::Gemma,
    }
}

/// The configuration of a Gemma.
pub(crate) fn gemma(model: &Model) -> Value {
    let mut config = decoder(model, "gemma", "GemmaForCausalLM");
    config["hidden_act"] = TANH.into();
    config
}

/// The configuration of a Gemma 2.
pub(crate) fn gemma2(model: &Model) -> Value {
    let mut config = decoder(model, "gemma2", "Gemma2ForCausalLM");
    config["attn_logit_softcapping"] = model.blocks.first().attention.cap.into();
    with_windows(config, model, &windowed(model))
}

/// The configuration of the model of texts of a Gemma 3.
pub(crate) fn gemma3(model: &Model) -> Value {
    let mut config = decoder(model, "gemma3_text", "Gemma3ForCausalLM");
    config["attn_logit_softcapping"] = Value::Null;
    with_windows(config, model, &windowed(model))
}

/// Rotary positions of blocks that see all, and of those with windows.
pub(crate) fn rotary_by_window(model: &Model) -> Option<(Rotary, Rotary)> {
    let windowed = windowed(model);
    let rotary = |of_windowed: bool| {
        let block = windowed.iter().position(|it| *it == of_windowed).unwrap_or(0);
        model.blocks[block].attention.rotary
    };
    Some((rotary(false)?, rotary(true)?))
}

/// The one function of its perceptrons.
const TANH: &str = "gelu_pytorch_tanh";

/// What all three have.
fn decoder(model: &Model, model_type: &str, architecture: &str) -> Value {
    let mut config = rotary_decoder(model, model_type, architecture);
    if let Some(fields) = config.as_object_mut() {
        fields.remove("hidden_act");
    }
    config["attention_bias"] = model.blocks.first().attention.qkv_bias.into();
    // The usual one could lie outside the vocabulary, and a table has no gradient there.
    config["pad_token_id"] = Value::Null;
    config
}

/// What Gemma 2 and 3 have besides. A window that no sequence reaches is as good as none, which the library does not take.
fn with_windows(mut config: Value, model: &Model, windowed: &[bool]) -> Value {
    let attention = &model.blocks.first().attention;
    let window = model.blocks.iter().find_map(|block| block.attention.window);
    let kind = |windowed: &bool| if *windowed { "sliding_attention" } else { "full_attention" };
    config["hidden_activation"] = TANH.into();
    config["sliding_window"] = window.unwrap_or(model.seq_len).into();
    config["layer_types"] = windowed.iter().map(kind).collect();
    config["final_logit_softcapping"] = model.logit_cap.into();
    // A whole number in the library, of which it takes the root.
    let divisor = attention.head_dim as f64 / (attention.score_scale * attention.score_scale);
    config["query_pre_attn_scalar"] = (divisor.round() as u64).into();
    config
}

/// By block, whether it looks back over a window. Where nobody does, sequences may be too short for windows: in Gemma 3 blocks
/// that would have some turn by a smaller base.
fn windowed(model: &Model) -> Vec<bool> {
    let base = |block: &Block| block.attention.rotary.map_or(0.0, |rotary| rotary.base);
    let largest = model.blocks.iter().map(base).fold(0.0, f64::max);
    let has_windows = model.blocks.iter().any(|block| block.attention.window.is_some());
    let is_windowed =
        |block: &Block| if has_windows { block.attention.window.is_some() } else { base(block) < largest };
    model.blocks.iter().map(is_windowed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::StoredType;
    use crate::config::{fresh, with_fields};
    use crate::training::computed;

    /// A model's file with these lines; one replaces the usual one of its field.
    fn model(lines: &str) -> Model {
        let scale = 24_f64.sqrt();
        let usual = format!(
            "name = \"m\"\nlayers = 4\nhidden = 24\nheads = 2\nkv_heads = 1\nvocab = 11\nseq_len = 7\nhead_dim = 16\n\
             biases = false\nnorm = \"rms\"\nnorm_offset = true\npositions = \"rotary\"\nactivation = \"geglu\"\n\
             ffn = 10\nembedding_scale = {scale}\n"
        );
        let named = |line: &str| line.split(' ').next().unwrap_or_default().to_owned();
        let kept = usual.lines().filter(|line| !lines.lines().any(|other| named(other) == named(line)));
        let text: Vec<&str> = kept.chain(lines.lines()).collect();
        Model::from_toml(&text.join("\n"), &[]).unwrap()
    }

    const BOTH: &str = "norm_place = \"both\"\n";
    const NORMED: &str = "norm_place = \"both\"\nqk_norm = \"rms\"\n";
    const ALL: &str = "[[blocks]]\nfrom = 1\nevery = 2\nwindow = 0\nrotary_base = 500.0\nrotary_scaling = \"linear\"\n\
                       rotary_factor = 8.0";

    #[test]
    fn a_configuration_says_the_model_again() {
        for (lines, family) in [
            (String::new(), "gemma"),
            ("tied_head = false\nqkv_bias = true\nprojection_bias = true\nrotary_base = 77.0".to_owned(), "gemma"),
            (BOTH.to_owned(), "gemma2"),
            (format!("{BOTH}score_scale = {}\nlogit_cap = 30.0", (16.0_f64 / 12.0).sqrt()), "gemma2"),
            (format!("{BOTH}attention_cap = 50.0\nwindow = 3\n[[blocks]]\nat = [1, 3]\nwindow = 0"), "gemma2"),
            (NORMED.to_owned(), "gemma3_text"),
            (format!("{NORMED}window = 3\nlogit_cap = 30.0"), "gemma3_text"),
            (format!("{NORMED}window = 3\nrotary_base = 100.0\n{ALL}"), "gemma3_text"),
            // Sequences as short as windows.
            (format!("{NORMED}rotary_base = 100.0\n{ALL}"), "gemma3_text"),
        ] {
            let model = model(&lines);
            let (found, config) = fresh(&model, StoredType::F32).unwrap();
            assert_eq!(found.model_type(), family, "{lines}");
            let read = Model::from_hugging_face(&config.to_string(), &[]).unwrap();
            assert_eq!(computed(&read), computed(&model), "{lines}");
        }
    }

    #[test]
    fn what_no_gemma_computes_is_refused_by_its_field() {
        for (lines, starts) in [
            ("embedding_scale = 1.0".to_owned(), "embedding_scale = none: "),
            ("norm_offset = false".to_owned(), "norm_offset = none: "),
            ("logit_cap = 30.0".to_owned(), "logit_cap = 30.0: "),
            ("window = 3".to_owned(), "window = 3: "),
            ("norm_place = \"after\"".to_owned(), "norm_place = after: "),
            ("qk_norm = \"rms\"".to_owned(), "qk_norm = rms: "),
            (format!("{BOTH}score_scale = 0.9"), "score_scale = 0.9: "),
            (format!("{BOTH}rotary_base = 100.0\n{ALL}"), "blocks = 2 kinds: "),
            (format!("{NORMED}attention_cap = 50.0"), "attention_cap = 50.0: "),
            (format!("{NORMED}qk_norm = \"layer\"").replacen("qk_norm = \"rms\"\n", "", 1), "qk_norm = layer: "),
            (
                format!("{NORMED}window = 3\nrotary_scaling = \"linear\"\nrotary_factor = 2.0"),
                "rotary_scaling = linear: ",
            ),
        ] {
            let message = fresh(&model(&lines), StoredType::F32).expect_err(starts).to_string();
            assert!(message.starts_with(starts), "{lines}: {message}");
        }
    }

    /// Under the names of either version of the library.
    #[test]
    fn bases_are_replaced_where_they_stand() {
        let before = model(&format!("{NORMED}window = 3\nrotary_base = 100.0\n{ALL}"));
        let after = model(&format!("{NORMED}window = 3\nrotary_base = 99.0\n{ALL}").replace("500.0", "501.0"));
        let (_, mut older) = fresh(&before, StoredType::F32).unwrap();
        older.as_object_mut().unwrap().remove("rope_parameters").unwrap();
        let mut newer = older.clone();
        let fields = newer.as_object_mut().unwrap();
        ["rope_theta", "rope_local_base_freq", "rope_scaling"].into_iter().for_each(|field| drop(fields.remove(field)));
        newer["rope_parameters"] = serde_json::json!({
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 500.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
        });
        for config in [older, newer] {
            let read = |config: &Value| computed(&Model::from_hugging_face(&config.to_string(), &[]).unwrap());
            assert_eq!(read(&config), computed(&before));
            assert_eq!(read(&with_fields(&config, &after, false).unwrap()), computed(&after));
        }
    }
}
