//! Gemma, Gemma 2 and Gemma 3 (its model of texts) as a Hugging Face configuration describes them: RMS norms whose gammas are
//! distances from 1, gated GELU, embedded tokens times the root of `hidden_size`. From Gemma 2 on norms stand on both sides, and
//! most or half of the blocks look back over a window only, which turn in Gemma 3 by other angles.

use serde_json::{Map, Value};

use crate::choices::QkNorm;
use crate::hf_fields::{Fields, cut, unexpressed};
use crate::hf_llama::{check_no_dropout, default_width, sized, with_heads};
use crate::hf_rotary::Turning;
use crate::hf_windows::{FULL, SLIDING};
use crate::model_file::BlockTable;
use crate::{Activation, ModelFile, Norm, NormPlace, SpecError};

/// The width of a head where nobody says it, and what scores are divided by the root of.
const WIDTH: usize = 256;

/// Gemma: norms before attention and perceptron, every block alike.
pub(crate) fn gemma(fields: &mut Fields) -> Result<ModelFile, SpecError> {
    // "gelu" is the tanh form here, too; the other name is not read.
    fields.check_function("hidden_act", TANH, &[TANH, "gelu"])?;
    fields.check_function("hidden_activation", TANH, &[TANH])?;
    let file = decoder(fields, "GemmaForCausalLM", 16)?;
    fields.rotary()?.whole(file)
}

/// Gemma 2: caps of scores and logits; windows in every second block, from the first on, where nothing else is said.
pub(crate) fn gemma2(fields: &mut Fields) -> Result<ModelFile, SpecError> {
    // Not read by the library; published ones say it beside the other.
    fields.check_function("hidden_act", TANH, &[TANH])?;
    fields.check_function("hidden_activation", TANH, &[TANH])?;
    let file = decoder(fields, "Gemma2ForCausalLM", 4)?;
    let file = ModelFile {
        attention_cap: cap(fields, "attn_logit_softcapping", Some(50.0))?,
        logit_cap: cap(fields, "final_logit_softcapping", Some(30.0))?,
        ..normed_on_both_sides(fields, file)?
    };
    let file = fields.rotary()?.whole(file)?;
    seeing_all(fields, file, 2, &ModelFile::default())
}

/// The model of texts of Gemma 3: norms of every query and key; five blocks of six have windows and a base of their own.
pub(crate) fn gemma3(fields: &mut Fields) -> Result<ModelFile, SpecError> {
    // Those of larger models, inside the configuration of a model that reads images too, say little.
    for (field, usual) in
        [("vocab_size", 262_208), ("num_attention_heads", 8), ("max_position_embeddings", 131_072_u64)]
    {
        fields.map.entry(field).or_insert_with(|| usual.into());
    }
    fields.check_function("hidden_activation", TANH, &[TANH])?;
    let file = decoder(fields, "Gemma3ForCausalLM", 4)?;
    if let Some(cap) = fields.number("attn_logit_softcapping")? {
        return Err(unexpressed("attn_logit_softcapping", cap, "the library does not cap scores of Gemma 3"));
    }
    let file = ModelFile {
        qk_norm: Some(QkNorm::Rms),
        logit_cap: cap(fields, "final_logit_softcapping", None)?,
        ..normed_on_both_sides(fields, file)?
    };
    let (all, windowed) = turnings(fields)?;
    let file = windowed.or((Some(10_000.0), None)).whole(file)?;
    if let Some(rule) = file.rotary_scaling {
        return Err(unexpressed("rope_parameters", rule, "frequencies of blocks with windows are not scaled"));
    }
    let all = all.or((Some(1_000_000.0), None)).whole(ModelFile::default())?;
    let [newer, older] =
        ["_sliding_window_pattern", "sliding_window_pattern"].map(|field| fields.size(field).transpose());
    let every = newer.or(older).transpose()?.unwrap_or(6);
    seeing_all(fields, file, every, &all)
}

/// The one function of its perceptrons.
const TANH: &str = "gelu_pytorch_tanh";

/// What all have, but for rotary positions; keys where nobody says how many.
fn decoder(fields: &mut Fields, architecture: &str, keys: usize) -> Result<ModelFile, SpecError> {
    fields.check_architecture(architecture)?;
    check_no_dropout(fields)?;
    fields.check_flag("use_bidirectional_attention", false, "attention looks back only")?;
    // How keys and values of generation are kept.
    fields.take("cache_implementation");
    let bias = Some(fields.flag("attention_bias", false)?);
    let file = ModelFile {
        tied_head: Some(fields.flag("tie_word_embeddings", true)?),
        biases: false,
        qkv_bias: bias,
        projection_bias: bias,
        norm: Norm::Rms,
        norm_offset: Some(true),
        norm_epsilon: fields.number("rms_norm_eps")?.unwrap_or(1e-6),
        activation: Activation::Geglu,
        ffn: Some(fields.needed_size("intermediate_size")?),
        ..sized(fields)?
    };
    let file = with_heads(fields, ModelFile { head_dim: default_width(fields, &file, WIDTH), ..file }, Some(keys))?;
    Ok(ModelFile { embedding_scale: Some((file.hidden as f64).sqrt()), ..file })
}

/// What Gemma 2 and 3 share: norms, and scores that are divided by the root of a number of their own.
fn normed_on_both_sides(fields: &mut Fields, file: ModelFile) -> Result<ModelFile, SpecError> {
    let divisor = fields.number("query_pre_attn_scalar")?.unwrap_or(WIDTH as f64);
    if divisor <= 0.0 {
        return Err(unexpressed("query_pre_attn_scalar", divisor, "scores are divided by its root"));
    }
    let width = file.head_dim.unwrap_or_else(|| file.hidden.checked_div(file.heads).unwrap_or(0));
    let score_scale = (width as f64 / divisor).sqrt();
    Ok(ModelFile { norm_place: Some(NormPlace::Both), score_scale: Some(score_scale), ..file })
}

/// A soft cap, `usual` where nobody says it; null is none.
fn cap(fields: &mut Fields, field: &str, usual: Option<f64>) -> Result<Option<f64>, SpecError> {
    let usual = usual.filter(|_| !fields.names(field));
    match fields.number(field)?.or(usual) {
        Some(cap) if cap <= 0.0 => Err(unexpressed(field, cap, "a soft cap is above 0")),
        cap => Ok(cap),
    }
}

/// A model whose blocks have windows but for those that `layer_types` says, or, without it, the last of every so many: these
/// see all, and turn as `all` says.
fn seeing_all(fields: &mut Fields, file: ModelFile, every: usize, all: &ModelFile) -> Result<ModelFile, SpecError> {
    let window = fields.window(Some(4096))?;
    let layers = file.layers;
    let mut instead = vec![("window", "0".to_owned())];
    instead.extend(all.rotary_base.map(|base| ("rotary_base", base.to_string())));
    instead.extend(all.rotary_scaling.map(|rule| ("rotary_scaling", rule.to_string())));
    let numbers = [
        ("rotary_factor", all.rotary_factor),
        ("rotary_low", all.rotary_low),
        ("rotary_high", all.rotary_high),
        ("rotary_positions", all.rotary_positions.map(|positions| positions as f64)),
    ];
    instead.extend(numbers.into_iter().filter_map(|(field, number)| Some((field, number?.to_string()))));
    let table = match fields.windowed_blocks(layers)? {
        Some(windowed) => {
            let others: Vec<usize> = (0..layers).filter(|block| windowed.binary_search(block).is_err()).collect();
            (!others.is_empty()).then(|| BlockTable::at(others, instead))
        }
        None if every == 0 => {
            return Err(unexpressed("sliding_window_pattern", every, "the last of every so many blocks sees all"));
        }
        None => (every <= layers).then(|| BlockTable::from(every - 1, every, instead)),
    };
    Ok(ModelFile { window, blocks: table.into_iter().collect(), ..file })
}

/// How heads turn in blocks that see all, and in those with windows: under the names of version 5 of the library, or of 4.
fn turnings(fields: &mut Fields) -> Result<(Turning, Turning), SpecError> {
    let base = fields.number("rope_local_base_freq")?;
    let by_type = |map: &Map<String, Value>| [FULL, SLIDING].iter().any(|kind| map.contains_key(*kind));
    let Some(Value::Object(said)) =
        fields.map.get("rope_parameters").cloned().filter(|said| said.as_object().is_some_and(by_type))
    else {
        return Ok((fields.rotary()?, Turning::default().or((base, None))));
    };
    fields.take("rope_parameters");
    // The form of version 4 beside it says the same.
    let older = fields.rotary()?;
    if let Some(other) = said.keys().find(|kind| *kind != FULL && *kind != SLIDING) {
        let rule = format!("it says how heads of \"{FULL}\" and \"{SLIDING}\" turn");
        return Err(unexpressed("rope_parameters", cut(other), rule));
    }
    let of = |kind: &str| {
        let own = said.get(kind).cloned().unwrap_or_default();
        fields.inner(Map::from_iter([("rope_parameters".to_owned(), own)]), kind.to_owned()).rotary()
    };
    Ok((of(FULL)?.merged(older)?, of(SLIDING)?.merged(Turning::default().or((base, None)))?))
}
