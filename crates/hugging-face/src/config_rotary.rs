//! Rotary positions in a `config.json`, in the words of both versions of the library: version 5 reads `rope_parameters`, version 4
//! knows the other fields alone.

use quadrille_spec::{Model, Rotary, RotaryScaling};
use serde_json::{Map, Value, json};

use crate::Family;
use crate::config_decoders::{rotary_part, scaling};
use crate::config_gemma::rotary_by_window;

/// Fields of the rotary positions of a model, in both forms; none of a model without them.
pub(crate) fn rotary_fields(model: &Model, family: Family) -> Map<String, Value> {
    let attention = &model.blocks.first().attention;
    let (Some(rotary), false) = (attention.rotary, family == Family::Gpt2) else { return Map::new() };
    let part = rotary_part(attention);
    let fields = match family {
        Family::GptNeox => json!({
            "rotary_emb_base": rotary.base,
            "rotary_pct": part,
            "rope_scaling": scaling(&rotary),
            "rope_parameters": in_part(parameters(&rotary), part),
        }),
        Family::Phi3 => json!({
            "rope_theta": rotary.base,
            "partial_rotary_factor": part,
            "rope_parameters": in_part(parameters(&rotary), part),
        }),
        Family::Gemma3Text => {
            let (all, windowed) = rotary_by_window(model).unwrap_or((rotary, rotary));
            // The library does not scale those.
            let windowed = Rotary { scaling: RotaryScaling::None, ..windowed };
            json!({
                "rope_theta": all.base,
                "rope_local_base_freq": windowed.base,
                "rope_scaling": scaling(&all),
                "rope_parameters": { "full_attention": parameters(&all), "sliding_attention": parameters(&windowed) },
            })
        }
        _ => json!({
            "rope_theta": rotary.base,
            "rope_scaling": scaling(&rotary),
            "rope_parameters": parameters(&rotary),
        }),
    };
    let Value::Object(mut fields) = fields else { return Map::new() };
    fields.retain(|_, value| !value.is_null());
    fields
}

/// Writes those of the fields that a configuration of the model does not have: it has one form at least.
pub(crate) fn complete(config: &mut Value, model: &Model, family: Family) {
    for (field, value) in rotary_fields(model, family) {
        if config.get(&field).is_none_or(Value::is_null) {
            config[&field] = value;
        }
    }
}

/// Base and scaling as version 5 has them.
fn parameters(rotary: &Rotary) -> Value {
    let mut parameters = scaling(rotary).unwrap_or_else(|| json!({ "rope_type": "default" }));
    parameters["rope_theta"] = rotary.base.into();
    parameters
}

fn in_part(mut parameters: Value, part: f64) -> Value {
    parameters["partial_rotary_factor"] = part.into();
    parameters
}
