//! The `config.json` of mixtures of experts that were not imported, or that changed since.

use quadrille_spec::{Experts, FeedForward, Model, ModelFile, NormedOver, QueryKeyNorm};
use serde_json::Value;

use crate::config_decoders::rotary_decoder;
use crate::training::computed;
use crate::{Family, HuggingFaceError};

/// What the families with experts compute, for refusals.
pub(crate) const MIXTURES: &str = "mixtral has RMS norms, rotary positions, SwiGLU, no biases, and in every block experts with softmax scores divided by \
     their sum; olmoe norms of all queries and all keys besides, and any scores; qwen3_moe norms of every query and key, and \
     perceptrons in some blocks";

/// The family that comes nearest to a model with experts.
pub(crate) fn mixture(model: &Model) -> Family {
    let is_mixtral = model.blocks.kinds().iter().all(|block| {
        let normalizes = |experts: &Experts| experts.router.normalize;
        block.attention.qk_norm.is_none() && block.feed_forward.experts().is_some_and(normalizes)
    });
    let over_all = |norm: QueryKeyNorm| norm.over == NormedOver::AllHeads;
    match model.blocks.first().attention.qk_norm {
        _ if is_mixtral => Family::Mixtral,
        Some(norm) if over_all(norm) => Family::Olmoe,
        _ => Family::Qwen3Moe,
    }
}

/// The configuration of a Mixtral.
pub(crate) fn mixtral(model: &Model) -> Value {
    let mut config = rotary_decoder(model, "mixtral", "MixtralForCausalLM");
    let Some(experts) = first_experts(model) else { return config };
    config["intermediate_size"] = experts.expert.width.into();
    config["sliding_window"] = model.blocks.first().attention.window.into();
    config["num_local_experts"] = experts.count.into();
    config["num_experts_per_tok"] = experts.per_token.into();
    config["router_aux_loss_coef"] = model.router_aux_loss_coef().into();
    config
}

/// The configuration of an OLMoE.
pub(crate) fn olmoe(model: &Model) -> Value {
    let mut config = rotary_decoder(model, "olmoe", "OlmoeForCausalLM");
    let Some(experts) = first_experts(model) else { return config };
    let attention = &model.blocks.first().attention;
    config["attention_bias"] = attention.qkv_bias.into();
    config["intermediate_size"] = experts.expert.width.into();
    config["num_experts"] = experts.count.into();
    config["num_experts_per_tok"] = experts.per_token.into();
    config["norm_topk_prob"] = experts.router.normalize.into();
    config["router_aux_loss_coef"] = model.router_aux_loss_coef().into();
    config
}

/// The configuration of a Qwen3-MoE.
pub(crate) fn qwen3_moe(model: &Model) -> Value {
    let mut config = rotary_decoder(model, "qwen3_moe", "Qwen3MoeForCausalLM");
    let Some(experts) = first_experts(model) else { return config };
    let attention = &model.blocks.first().attention;
    let dense = model.blocks.kinds().iter().find_map(|block| block.feed_forward.dense());
    let is_dense = |place: &usize| model.blocks[*place].feed_forward.dense().is_some();
    config["attention_bias"] = attention.qkv_bias.into();
    config["intermediate_size"] = dense.map_or(experts.expert.width, |perceptron| perceptron.width).into();
    config["moe_intermediate_size"] = experts.expert.width.into();
    config["num_experts"] = experts.count.into();
    config["num_experts_per_tok"] = experts.per_token.into();
    config["norm_topk_prob"] = experts.router.normalize.into();
    config["use_sliding_window"] = attention.window.is_some().into();
    config["sliding_window"] = attention.window.into();
    config["decoder_sparse_step"] = 1.into();
    config["mlp_only_layers"] = (0..model.layers()).filter(is_dense).collect();
    config["router_aux_loss_coef"] = model.router_aux_loss_coef().into();
    config
}

/// Refuses a model of which a configuration says something else, by the first field; `known` is what families compute.
pub(crate) fn check_said(config: &Value, model: &Model, known: &str) -> Result<(), HuggingFaceError> {
    let refuse = |field, value, rule: String| Err(HuggingFaceError::Inexpressible { field, value, rule });
    let factors = model.balance_losses();
    if let Some(other) = factors.iter().find(|factor| **factor != factors[0])
        && config.get("router_aux_loss_coef").is_some()
    {
        let value = format!("{} and {other}", factors[0]);
        let rule =
            "router_aux_loss_coef is one for all blocks; use one balance_loss and one balance for them".to_owned();
        return refuse("balance_loss", value, rule);
    }
    let said = match Model::from_hugging_face(&config.to_string(), &[]) {
        Ok(said) => computed(&said),
        Err(error) => return refuse("model_type", config["model_type"].to_string(), error.to_string()),
    };
    let model = computed(model);
    if said == model {
        return Ok(());
    }
    let kinds = |model: &Model| model.blocks.kinds().len();
    if kinds(&said) != kinds(&model) {
        return refuse("blocks", format!("{} kinds", kinds(&model)), known.to_owned());
    }
    let fields = |model: &Model| serde_json::to_value(ModelFile::of(model)).unwrap_or_default();
    let theirs = fields(&said);
    let ours = fields(&model);
    let differs = |field: &&str| theirs.get(*field) != ours.get(*field);
    match ModelFile::FIELDS.into_iter().find(differs) {
        Some(field) => {
            let value = match ours.get(field) {
                None | Some(Value::Null) => "none".to_owned(),
                Some(Value::String(name)) => name.clone(),
                Some(value) => value.to_string(),
            };
            refuse(field, value, known.to_owned())
        }
        None => refuse("blocks", format!("{} kinds", kinds(&model)), known.to_owned()),
    }
}

/// The experts of the first block that has some.
pub(crate) fn first_experts(model: &Model) -> Option<&Experts> {
    model.blocks.kinds().iter().map(|block| &block.feed_forward).find_map(FeedForward::experts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::StoredType;
    use crate::config::fresh;

    /// A model's file that says the first block, with these lines.
    fn model(lines: &str) -> Model {
        let usual = "name = \"m\"\nlayers = 3\nhidden = 12\nheads = 2\nkv_heads = 1\nvocab = 11\nseq_len = 7\n\
                     tied_head = false\nbiases = false\nnorm = \"rms\"\npositions = \"rotary\"\nexperts = 4\n\
                     activation = \"swiglu\"\nffn = 10\nexpert_ffn = 6\ncapacity = 2.0\nbalance_loss = 0.25\n";
        // A line replaces the usual one.
        let named = |line: &str| line.split(' ').next().unwrap_or_default().to_owned();
        let kept = usual.lines().filter(|line| !lines.lines().any(|other| named(other) == named(line)));
        let text: Vec<&str> = kept.chain(lines.lines()).collect();
        Model::from_toml(&text.join("\n"), &[]).unwrap()
    }

    #[test]
    fn a_configuration_says_the_model_again() {
        for (lines, family) in [
            ("", "mixtral"),
            ("head_dim = 4", "mixtral"),
            ("window = 3", "mixtral"),
            ("rotary_scaling = \"linear\"\nrotary_factor = 2.0", "mixtral"),
            ("experts_per_token = 3\ncapacity = 0\nrotary_base = 1e6", "mixtral"),
            ("qk_norm = \"rms-all\"\nrouter_normalize = false", "olmoe"),
            ("qk_norm = \"rms-all\"\nqkv_bias = true\nprojection_bias = true", "olmoe"),
            ("qk_norm = \"rms\"\nhead_dim = 4", "qwen3_moe"),
            ("qk_norm = \"rms\"\nexpert_every = 2", "qwen3_moe"),
            ("qk_norm = \"rms\"\nwindow = 3", "qwen3_moe"),
            ("qk_norm = \"rms\"\nexpert_first = 1\nqkv_bias = true\nprojection_bias = true", "qwen3_moe"),
            ("qk_norm = \"rms\"\nrouter_normalize = false\nexperts_per_token = 1", "qwen3_moe"),
        ] {
            let model = model(lines);
            let (found, config) = fresh(&model, StoredType::F32).unwrap();
            assert_eq!(found.model_type(), family, "{lines}");
            let read = Model::from_hugging_face(&config.to_string(), &[]).unwrap();
            assert_eq!(computed(&read), computed(&model), "{lines}");
            assert_eq!(first_experts(&read).unwrap().router.balance_loss, 0.25, "{lines}");
        }
    }

    #[test]
    fn what_no_mixture_of_the_library_computes_is_refused_by_its_field() {
        for (lines, starts) in [
            ("norm = \"layer\"", "norm = layer: mixtral has RMS norms"),
            ("positions = \"learned\"", "positions = learned: "),
            ("activation = \"gelu\"", "activation = gelu: "),
            ("biases = true", "biases = true: "),
            ("shared_ffn = 8", "shared_ffn = 8: "),
            ("router = \"sigmoid\"", "router = sigmoid: "),
            ("router_scale = 2.5", "router_scale = 2.5: "),
            ("router_groups = 4\nrouter_top_groups = 2", "router_groups = 4: "),
            ("score_scale = 2.0", "score_scale = 2.0: "),
            ("rotary_scaling = \"yarn\"\nrotary_factor = 4.0", "rotary_scaling = yarn: "),
            ("router_bias_rate = 0.001", "router_bias_rate = 0.001: "),
            ("[[blocks]]\nat = [1]\nwindow = 3", "blocks = 2 kinds: "),
            ("expert_every = 2", "qk_norm = none: "),
            ("router_normalize = false", "qk_norm = none: "),
            ("qk_norm = \"layer\"", "qk_norm = layer: "),
            ("qk_norm = \"layer-all\"", "qk_norm = layer-all: "),
            ("qk_norm = \"rms-all\"\nexpert_every = 2", "blocks = 2 kinds: "),
            ("qk_norm = \"rms-all\"\nhead_dim = 4", "model_type = \"olmoe\": head_dim = 4: "),
            ("qk_norm = \"rms\"\nqkv_bias = true", "projection_bias = false: "),
            ("[[blocks]]\nat = [1]\nexpert_ffn = 3", "blocks = 2 kinds: "),
            ("[[blocks]]\nat = [1]\nbalance_loss = 0.5", "balance_loss = 0.01 and 0.5: router_aux_loss_coef is one"),
            ("[[blocks]]\nat = [0]\nbalance = \"none\"", "balance_loss = 0 and 0.25: router_aux_loss_coef is one"),
        ] {
            let message = fresh(&model(lines), StoredType::F32).expect_err(starts).to_string();
            assert!(message.starts_with(starts), "{lines}: {message}");
        }
    }
}
