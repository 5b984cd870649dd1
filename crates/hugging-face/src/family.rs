//! The families of models, and what their tensors are called.

use std::fmt;

use crate::columns::Columns;

/// A family of models of the transformers library that can be expressed here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// `GemmaForCausalLM`.
    Gemma,
    /// `Gemma2ForCausalLM`.
    Gemma2,
    /// `Gemma3ForCausalLM`, the model of texts.
    Gemma3Text,
    /// `GPT2LMHeadModel`.
    Gpt2,
    /// `GPTNeoXForCausalLM`.
    GptNeox,
    /// `LlamaForCausalLM`.
    Llama,
    /// `MistralForCausalLM`.
    Mistral,
    /// `MixtralForCausalLM`.
    Mixtral,
    /// `Olmo2ForCausalLM`.
    Olmo2,
    /// `OlmoeForCausalLM`.
    Olmoe,
    /// `Phi3ForCausalLM`.
    Phi3,
    /// `Qwen2ForCausalLM`, of Qwen2.5, too.
    Qwen2,
    /// `Qwen3ForCausalLM`.
    Qwen3,
    /// `Qwen3MoeForCausalLM`.
    Qwen3Moe,
    /// `Starcoder2ForCausalLM`.
    Starcoder2,
}

/// Names of a family's tensors, without `.weight` and `.bias`. Those of several tensors say which columns each has of
/// the one tensor here. An empty name is of a layer that the family has not.
pub(crate) struct Names {
    /// What stands before all names but the head's.
    pub prefix: &'static str,
    pub table: &'static str,
    pub positions: &'static str,
    /// What stands before a block's number.
    pub blocks: &'static str,
    pub norm1: &'static str,
    pub qkv: &'static [(&'static str, Columns)],
    /// Those of queries and of keys.
    pub qk_norms: [&'static str; 2],
    pub projection: &'static str,
    pub norm1_after: &'static str,
    pub norm2: &'static str,
    pub up: &'static [(&'static str, Columns)],
    pub down: &'static str,
    pub norm2_after: &'static str,
    /// Where blocks have experts.
    pub experts: Option<ExpertNames>,
    pub final_norm: &'static str,
    pub head: &'static str,
    /// Whether weights of linear layers are `[outputs, inputs]`.
    pub transposed: bool,
    /// Ends of the names of buffers that older versions stored: masks and frequencies, which follow from the sizes.
    pub buffers: &'static [&'static str],
}

/// Names of a mixture's tensors.
#[derive(Clone, Copy)]
pub(crate) struct ExpertNames {
    pub router: &'static str,
    /// What stands before an expert's number.
    pub expert: &'static str,
    pub up: &'static [(&'static str, Columns)],
    pub down: &'static str,
}

impl ExpertNames {
    /// The router's name where all experts are in one tensor.
    pub const FUSED_ROUTER: &str = "mlp.gate";
    /// The name of all first layers in one tensor `[experts, up_width, hidden]`: by expert all gates, then all that they
    /// are multiplied with.
    pub const FUSED_UP: &str = "mlp.experts.gate_up_proj";
    /// The name of all second layers in one tensor `[experts, hidden, width]`.
    pub const FUSED_DOWN: &str = "mlp.experts.down_proj";
}

const GPT2: Names = Names {
    prefix: "transformer.",
    table: "wte",
    positions: "wpe",
    blocks: "h.",
    norm1: "ln_1",
    qkv: &[("attn.c_attn", Columns::QueriesKeysValues)],
    qk_norms: ["", ""],
    projection: "attn.c_proj",
    norm1_after: "",
    norm2: "ln_2",
    up: &[("mlp.c_fc", Columns::All)],
    down: "mlp.c_proj",
    norm2_after: "",
    experts: None,
    final_norm: "ln_f",
    head: "lm_head",
    transposed: false,
    buffers: &[".attn.bias", ".attn.masked_bias"],
};

const LLAMA: Names = Names {
    prefix: "model.",
    table: "embed_tokens",
    positions: "",
    blocks: "layers.",
    norm1: "input_layernorm",
    qkv: &[
        ("self_attn.q_proj", Columns::Queries),
        ("self_attn.k_proj", Columns::Keys),
        ("self_attn.v_proj", Columns::Values),
    ],
    qk_norms: ["", ""],
    projection: "self_attn.o_proj",
    norm1_after: "",
    norm2: "post_attention_layernorm",
    up: &[("mlp.gate_proj", Columns::Gates), ("mlp.up_proj", Columns::Ups)],
    down: "mlp.down_proj",
    norm2_after: "",
    experts: None,
    final_norm: "norm",
    head: "lm_head",
    transposed: true,
    buffers: &["rotary_emb.inv_freq"],
};

const GEMMA2: Names = Names {
    norm1_after: "post_attention_layernorm",
    norm2: "pre_feedforward_layernorm",
    norm2_after: "post_feedforward_layernorm",
    ..LLAMA
};

const GEMMA3: Names = Names { qk_norms: ["self_attn.q_norm", "self_attn.k_norm"], ..GEMMA2 };

const MIXTRAL: Names = Names {
    up: &[],
    down: "",
    experts: Some(ExpertNames {
        router: "block_sparse_moe.gate",
        expert: "block_sparse_moe.experts.",
        up: &[("w1", Columns::Gates), ("w3", Columns::Ups)],
        down: "w2",
    }),
    ..LLAMA
};

const OLMO2: Names = Names {
    norm1: "",
    qk_norms: ["self_attn.q_norm", "self_attn.k_norm"],
    norm1_after: "post_attention_layernorm",
    norm2: "",
    norm2_after: "post_feedforward_layernorm",
    ..LLAMA
};

const PHI3: Names = Names {
    qkv: &[("self_attn.qkv_proj", Columns::QueriesKeysValues)],
    up: &[("mlp.gate_up_proj", Columns::GatesUps)],
    ..LLAMA
};

const STARCODER2: Names = Names { up: &[("mlp.c_fc", Columns::All)], down: "mlp.c_proj", ..LLAMA };

const QWEN3: Names = Names { qk_norms: ["self_attn.q_norm", "self_attn.k_norm"], ..LLAMA };

/// OLMoE's, too.
const QWEN3_MOE: Names = Names {
    experts: Some(ExpertNames {
        router: "mlp.gate",
        expert: "mlp.experts.",
        up: &[("gate_proj", Columns::Gates), ("up_proj", Columns::Ups)],
        down: "down_proj",
    }),
    ..QWEN3
};

const GPT_NEOX: Names = Names {
    prefix: "gpt_neox.",
    table: "embed_in",
    positions: "",
    blocks: "layers.",
    norm1: "input_layernorm",
    // By head its query, key and value: the groups of one head here.
    qkv: &[("attention.query_key_value", Columns::All)],
    qk_norms: ["", ""],
    projection: "attention.dense",
    norm1_after: "",
    norm2: "post_attention_layernorm",
    up: &[("mlp.dense_h_to_4h", Columns::All)],
    down: "mlp.dense_4h_to_h",
    norm2_after: "",
    experts: None,
    final_norm: "final_layer_norm",
    head: "embed_out",
    transposed: true,
    buffers: &[".attention.bias", ".attention.masked_bias", "rotary_emb.inv_freq"],
};

impl Family {
    /// Every family with its `model_type`.
    pub const ALL: [(Self, &'static str); 15] = [
        (Self::Gemma, "gemma"),
        (Self::Gemma2, "gemma2"),
        (Self::Gemma3Text, "gemma3_text"),
        (Self::Gpt2, "gpt2"),
        (Self::GptNeox, "gpt_neox"),
        (Self::Llama, "llama"),
        (Self::Mistral, "mistral"),
        (Self::Mixtral, "mixtral"),
        (Self::Olmo2, "olmo2"),
        (Self::Olmoe, "olmoe"),
        (Self::Phi3, "phi3"),
        (Self::Qwen2, "qwen2"),
        (Self::Qwen3, "qwen3"),
        (Self::Qwen3Moe, "qwen3_moe"),
        (Self::Starcoder2, "starcoder2"),
    ];

    /// The family with this `model_type` in its configuration.
    pub fn of(model_type: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, name)| *name == model_type).map(|(family, _)| *family)
    }

    /// What a configuration calls it in `model_type`.
    pub fn model_type(self) -> &'static str {
        Self::ALL[self as usize].1
    }

    pub(crate) fn names(self) -> &'static Names {
        match self {
            Self::Gpt2 => &GPT2,
            Self::GptNeox => &GPT_NEOX,
            Self::Gemma2 => &GEMMA2,
            Self::Gemma3Text => &GEMMA3,
            Self::Gemma | Self::Llama | Self::Mistral | Self::Qwen2 => &LLAMA,
            Self::Mixtral => &MIXTRAL,
            Self::Olmo2 => &OLMO2,
            Self::Olmoe | Self::Qwen3Moe => &QWEN3_MOE,
            Self::Phi3 => &PHI3,
            Self::Qwen3 => &QWEN3,
            Self::Starcoder2 => &STARCODER2,
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.model_type())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_are_found_by_their_type() {
        for (family, name) in Family::ALL {
            assert_eq!((Family::of(name), family.model_type()), (Some(family), name));
        }
        assert_eq!(Family::of("gpt"), None);
    }
}
