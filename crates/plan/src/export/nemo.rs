//! Megatron Bridge, which succeeds NeMo's language models: YAML overrides of a recipe.
//!
//! Names were checked against `docs/megatron-lm-to-megatron-bridge.md` (commit 167ba2ad3210) and
//! `docs/training/{activation-recomputation,megatron-fsdp}.md` of NVIDIA-NeMo/Megatron-Bridge, 2026; the fields of
//! `model` are those of Megatron Core's `TransformerConfig`.

use std::fmt::Display;

use quadrille_spec::{Activation, ElementType, Layout, Model, Norm, Recompute, SpecError};

use super::fields::{Fields, Setting};
use super::megatron::{Choices, Sharding};
use super::model::Described;
use super::numbers::{self, Types};
use super::properties::Properties;
use super::{Export, Framework, Target, comments, nodes};

/// The lines of one section.
struct Section(String);

impl Section {
    fn new(name: &str) -> Self {
        Self(format!("{name}:\n"))
    }

    fn set(&mut self, key: &str, value: impl Display) {
        self.0 += &format!("  {key}: {value}\n");
    }

    fn maybe(&mut self, key: &str, value: Option<impl Display>) {
        if let Some(value) = value {
            self.set(key, value);
        }
    }
}

/// The model as Megatron Bridge knows it: as Megatron Core does.
pub(super) fn described(model: &Model) -> Result<Described, SpecError> {
    Described::new(model, "nemo", Properties::of(model))
}

pub(super) fn export(described: &Described, layout: &Layout, target: &Target) -> Result<Export, SpecError> {
    let (nodes, per_node) = nodes(layout, target)?;
    let model = &described.sizes;
    let choices = Choices::new(Framework::Nemo, described, layout)?;
    let types = Types::new(Framework::Nemo, layout, target, false)?;
    let gaps = [choices.gaps.clone(), types.gaps.clone()].concat();
    let checked = "Overrides of a Megatron Bridge recipe, checked against its documentation, commit 167ba2ad3210";
    let left = format!(
        "torchrun --nnodes {nodes} --nproc-per-node {per_node}; to be added: data, a tokenizer of {} tokens, the \
         optimizer's constants",
        model.vocab
    );
    let mut text = comments(model, layout, checked, &left, &gaps);
    for section in [
        model_section(described, layout, &choices),
        batch_section(layout, &choices),
        ddp_section(&choices, &types),
        Section(format!("dataset:\n  seq_length: {}\n", layout.seq_len)),
    ] {
        text += &section.0;
    }
    let is_fsdp = matches!(choices.sharding, Sharding::Fsdp { .. });
    if is_fsdp || choices.pipe_before_data {
        let mut dist = Section::new("dist");
        dist.set("use_megatron_fsdp", is_fsdp);
        dist.set("use_tp_pp_dp_mapping", choices.pipe_before_data);
        text += &dist.0;
    }
    if is_fsdp {
        text += "checkpoint:\n  ckpt_format: fsdp_dtensor\n";
    }
    let of_numbers = [
        numbers::optimizer_of_bridge(types.numbers, choices.offloads),
        numbers::mixed_precision_of_bridge(target.precision, types.numbers),
    ];
    text.extend(of_numbers.into_iter().flatten());
    Ok(Export { text, cannot_express: gaps })
}

fn model_section(described: &Described, layout: &Layout, choices: &Choices) -> Section {
    let model = &described.sizes;
    let mut section = Section::new("model");
    let swiglu = model.activation == Activation::Swiglu;
    section.set("num_layers", model.layers);
    section.set("hidden_size", model.hidden);
    section.set("ffn_hidden_size", model.ffn);
    section.set("num_attention_heads", model.heads);
    section.set("num_query_groups", model.kv_heads);
    section.maybe("kv_channels", described.head_dim);
    section.maybe("qk_layernorm", described.norms_keys().then_some(true));
    section.set("seq_length", layout.seq_len);
    section.set("make_vocab_size_divisible_by", layout.vocab_multiple);
    section.set("normalization", if model.norm == Norm::Rms { "RMSNorm" } else { "LayerNorm" });
    section.set("layernorm_epsilon", model.norm_epsilon);
    section.set("position_embedding_type", if choices.rotary_base.is_some() { "rope" } else { "learned_absolute" });
    section.maybe("rotary_base", choices.rotary_base);
    section.set("gated_linear_unit", swiglu);
    let other = described.properties.activation;
    let function = match other {
        _ if swiglu => "silu",
        Some(Activation::Relu2) => "squared_relu",
        _ => "gelu",
    };
    section.set("activation_func", function);
    // The fused form of a bias and GELU is the tanh one.
    section.set("bias_activation_fusion", (model.biases && other.is_none()) || swiglu);
    section.set("add_bias_linear", model.biases);
    section.set("share_embeddings_and_output_weights", model.tied_head);
    section.set("attention_dropout", model.dropout);
    section.set("hidden_dropout", model.dropout);
    set_fields(&mut section, &choices.attention);
    if described.properties.turns_unscaled_latents() {
        section.set("apply_rope_fusion", false);
    }
    set_fields(&mut section, &choices.experts);
    section.set("tensor_model_parallel_size", choices.tensor);
    section.set("sequence_parallel", choices.sequence_parallel);
    section.set("pipeline_model_parallel_size", choices.pipe);
    section.maybe("virtual_pipeline_model_parallel_size", choices.virtual_stages);
    section.maybe("microbatch_group_size_per_vp_stage", choices.microbatch_group);
    section.maybe(
        "pipeline_model_parallel_layout",
        choices.pipeline_layout.as_ref().map(|stages| format!("\"{stages}\"")),
    );
    section.set("context_parallel_size", choices.context);
    section.maybe("cp_comm_type", (choices.context > 1).then_some("allgather"));
    if matches!(choices.sharding, Sharding::Fsdp { .. }) {
        section.set("gradient_accumulation_fusion", false);
    }
    match layout.recompute {
        Recompute::None => section.set("recompute_granularity", "null"),
        Recompute::Selective => {
            section.set("recompute_granularity", "selective");
            section.set("recompute_modules", format!("[{}]", choices.recompute_modules.replace(' ', ", ")));
        }
        Recompute::Full { every } => {
            section.set("recompute_granularity", "full");
            section.set("recompute_method", "uniform");
            section.set("recompute_num_layers", every);
        }
    }
    section
}

/// All fields: the recipe may have others.
fn set_fields(section: &mut Section, fields: &Fields) {
    for (field, setting) in &fields.0 {
        match setting {
            Setting::Switch(on) => section.set(field, on),
            Setting::Said(value) => section.set(field, value),
            Setting::Usual(value) => section.set(field, value),
            Setting::Blocks(blocks) => {
                let list: Vec<&str> = blocks.iter().map(|block| if *block { "1" } else { "0" }).collect();
                section.set(field, format!("[{}]", list.join(", ")));
            }
            Setting::Pair(pair) => section.set(field, format!("{pair:?}")),
        }
    }
}

fn batch_section(layout: &Layout, choices: &Choices) -> Section {
    let mut section = Section::new("train");
    section.set("micro_batch_size", choices.micro_batch);
    section.set("global_batch_size", layout.global_batch);
    section
}

fn ddp_section(choices: &Choices, types: &Types) -> Section {
    let mut section = Section::new("ddp");
    section.set(
        "use_distributed_optimizer",
        choices.sharding != Sharding::None || types.has_narrow_moments() || choices.offloads,
    );
    section.set("overlap_grad_reduce", choices.overlap_grad_reduce);
    section.set("overlap_param_gather", choices.overlap_param_gather);
    section.maybe("grad_reduce_in_fp32", (types.numbers.gradients == Some(ElementType::Bf16)).then_some(false));
    if let Sharding::Fsdp { strategy, replicas } = choices.sharding {
        section.set("use_megatron_fsdp", true);
        section.set("data_parallel_sharding_strategy", strategy);
        section.set("num_distributed_optimizer_instances", replicas);
        section.set("average_in_collective", false);
    }
    section
}
