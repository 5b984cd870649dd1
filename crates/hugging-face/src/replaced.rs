//! Fields of a model that were replaced at an import, and ask for weights that the folder's family does not have.

use quadrille_spec::{Attention, Model, ModelParameter, QkNorm, SpecError};

use crate::Family;
use crate::mapping::has;

/// Refuses a model with parameters that the family has not.
pub(crate) fn check_replaced(model: &Model, family: Family) -> Result<(), SpecError> {
    let unknown = |parameter: &ModelParameter| !has(family, parameter);
    let Some(parameter) = model.all_parameters().find(unknown) else { return Ok(()) };
    let block = &model.blocks[parameter.block.unwrap_or(0)];
    let experts = block.feed_forward.experts();
    let (field, value, rule) = match parameter.layer {
        "router" if !parameter.is_trained => {
            let rate = experts.map_or(0.0, |experts| experts.router.bias_rate);
            ("router_bias_rate", rate.to_string(), format!("routers of a {family} have no biases"))
        }
        "router" | "experts.up" | "experts.down" => {
            let count = experts.map_or(0, |experts| experts.count);
            ("experts", count.to_string(), "the folder's weights are of perceptrons".to_owned())
        }
        "up" | "down" => ("experts", "0".to_owned(), "the folder's weights are of experts".to_owned()),
        "shared.up" | "shared.down" => {
            let shared = experts.and_then(|experts| experts.shared);
            let width = shared.map_or(0, |shared| shared.width);
            ("shared_ffn", width.to_string(), format!("a {family} has no perceptron beside its experts"))
        }
        "query_norm" | "key_norm" => {
            let norm = QkNorm::of(block.attention.qk_norm);
            ("qk_norm", norm.to_string(), format!("a {family} has no norms of queries and keys"))
        }
        "norm1" | "norm2" => {
            let rule = format!("a {family} has norms after attention and perceptron");
            ("norm_place", block.norm_place.to_string(), rule)
        }
        "norm1_after" | "norm2_after" => {
            let rule = format!("a {family} has norms before attention and perceptron");
            ("norm_place", block.norm_place.to_string(), rule)
        }
        "embedding" => ("positions", "learned".to_owned(), format!("a {family} has no table of positions")),
        other => match block.attention.latent.filter(|_| makes_inputs(&block.attention, other)) {
            Some(latent) => {
                ("key_value_latent", latent.keys_values.to_string(), format!("a {family} has no latent attention"))
            }
            None => {
                let rule = format!("a {family} has no weights of it");
                return Err(SpecError::invalid("layer", other, rule, "leave out what of `model` asks for it"));
            }
        },
    };
    let remedy = format!("leave `model.{field}` out");
    Err(SpecError::invalid(field, value, rule, remedy))
}

/// Whether a layer of this name, or the norm of one, is on the way to queries, keys and values.
fn makes_inputs(attention: &Attention, name: &str) -> bool {
    // Names do not depend on the width of the stream.
    attention.input_layers(1).any(|layer| layer.kind.name() == name || layer.kind.norm() == Some(name))
}
