//! Megatron-LM: `torchrun` and the flags of `pretrain_gpt.py`.
//!
//! Held against the releases of megatron-core 0.17.1, 0.18.2, 0.19.0 and 0.19.2 (2026), the first of which has the argument
//! parser in its package: `megatron/training/arguments.py`, and for pipeline layouts
//! `megatron/core/transformer/pipeline_parallel_layer_layout.py`. Sharded weights follow the Megatron-FSDP user guide.
//! `scripts/check-exports` gives exports to that parser.

use quadrille_spec::{
    Activation, Activations, Axis, Classic, Field, KeepWeights, Layout, Model, Norm, Offload, Positions, Recompute,
    Schedule, SpecError, Zero,
};

use super::experts::{self, Degrees};
use super::fields::{Fields, Setting, list_expression};
use super::gaps::{Gaps, even_pieces};
use super::model::Described;
use super::numbers::{self, Types};
use super::properties::Properties;
use super::{Export, Framework, ORDER, Precision, Sizes, Target, attention, check_language_model, comments, nodes};
use crate::frameworks::Capability;

/// How data parallelism shards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sharding {
    /// Nothing.
    None,
    /// The optimizer's states.
    DistributedOptimizer,
    /// Megatron-FSDP with a strategy, replicated so often.
    Fsdp { strategy: &'static str, replicas: usize },
}

/// A layout in the words of Megatron Core, which Megatron-LM and Megatron Bridge share.
pub(super) struct Choices {
    pub tensor: usize,
    pub context: usize,
    pub pipe: usize,
    pub virtual_stages: Option<usize>,
    pub microbatch_group: Option<usize>,
    /// Stages separated by `|`; `E` embedding, `t` block, `L` loss.
    pub pipeline_layout: Option<String>,
    pub pipe_before_data: bool,
    pub sequence_parallel: bool,
    pub micro_batch: usize,
    pub sharding: Sharding,
    /// True if the optimizer's states lie in the host's memory, which is a part of the distributed optimizer.
    pub offloads: bool,
    /// Modules of selective recomputation.
    pub recompute_modules: &'static str,
    pub overlap_grad_reduce: bool,
    pub overlap_param_gather: bool,
    /// The base of rotary positions, where they are used.
    pub rotary_base: Option<u64>,
    /// What is said of attention, norms and functions.
    pub attention: Fields,
    /// What is said of experts.
    pub experts: Fields,
    pub gaps: Vec<String>,
}

impl Choices {
    pub fn new(framework: Framework, described: &Described, layout: &Layout) -> Result<Self, SpecError> {
        let model = &described.sizes;
        let title = framework.title();
        check_language_model(model, title)?;
        let sizes = Sizes::of(layout);
        let mut gaps = Gaps::new(framework, layout);
        let tensor = gaps.tensor_parallel(model)?;
        let sharding = sharding(layout, sizes, &mut gaps);
        let mixture = described.mixture.as_ref();
        let pipe_before_data = check_order(&mut gaps, mixture.is_some(), layout);
        let experts = mixture.map(|mixture| experts::fields(title, model, mixture, layout, tensor, &mut gaps));
        gaps.check_schedule();
        let interleaved = layout.schedule == Schedule::Interleaved && layout.chunks > 1;
        let pipeline_layout = (sizes.pipe > 1 && !even_pieces(layout)).then(|| pipeline_layout(&layout.stage_blocks));
        if !model.kv_heads.is_multiple_of(tensor) {
            let part = format!("kv_heads = {}", model.kv_heads);
            gaps.add(part, format!("{title} cuts keys and values by whole heads over x={tensor}, or repeats them"));
        }
        let all_experts =
            mixture.is_some_and(|mixture| !mixture.at.contains(&false) && mixture.experts.shared.is_none());
        if layout.recompute == Recompute::Selective && !all_experts {
            gaps.state(Capability::SelectiveRecompute, Field::Recompute);
        }
        if model.activation == Activation::Gelu && !model.biases && described.properties.activation.is_none() {
            gaps.add("activation = gelu", "without biases GELU is the exact one, not its tanh form");
        }
        let overlap = layout.overlap;
        if !overlap.all_reduce && tensor > 1 {
            gaps.add("overlap without oar", "reductions of input gradients run under weight gradients");
        }
        let gathers = sharding != Sharding::None;
        if overlap.all_gather && !overlap.reduce_scatter && gathers {
            gaps.add("overlap oag without ors", "gathers overlap only where reductions do; neither does");
        }
        let replicates = sizes.z * sizes.data * sizes.context > 1;
        Ok(Self {
            tensor,
            context: sizes.context,
            pipe: sizes.pipe,
            virtual_stages: (interleaved && pipeline_layout.is_none()).then_some(layout.chunks),
            microbatch_group: (interleaved && layout.microbatch_group != sizes.pipe).then_some(layout.microbatch_group),
            pipeline_layout,
            pipe_before_data,
            sequence_parallel: (layout.activations == Activations::Scattered || mixture.is_some()) && tensor > 1,
            micro_batch: layout.microbatch / sizes.z,
            sharding,
            offloads: layout.offload != Offload::None && framework.offloads(layout),
            recompute_modules: if mixture.is_some() { "layernorm moe_act" } else { "layernorm" },
            overlap_grad_reduce: overlap.reduce_scatter && replicates,
            overlap_param_gather: overlap.reduce_scatter && overlap.all_gather && gathers,
            rotary_base: rotary_base(model)?,
            attention: attention::fields(title, described)?,
            experts: experts.transpose()?.unwrap_or_default(),
            gaps: gaps.lines,
        })
    }
}

/// What z and ZeRO say about the states of data parallelism.
fn sharding(layout: &Layout, sizes: Sizes, gaps: &mut Gaps) -> Sharding {
    let Sizes { z, context, data, .. } = sizes;
    if z == 1 {
        return match layout.zero {
            _ if data * context == 1 => Sharding::None,
            Zero::Off => Sharding::None,
            Zero::Optimizer => Sharding::DistributedOptimizer,
            Zero::Gradients => Sharding::Fsdp { strategy: "optim_grads", replicas: 1 },
        };
    }
    for (axis, size) in [("context", context), ("expert", sizes.spread_data)] {
        if size > 1 {
            let instead = format!("weights are sharded over {axis}, too, where the layout replicates them");
            gaps.add(format!("{axis}={size} beside z={z}"), instead);
        }
    }
    let replicas = data / sizes.spread_data;
    if layout.zero != Zero::Off && replicas > 1 {
        let part = format!("zero = {} beside z={z}", layout.zero);
        gaps.add(part, format!("states are sharded over z and replicated over data={replicas}"));
    }
    // Weights that are kept for the step are gathered once after the update: what ZeRO's second stage does.
    let strategy = match layout.keep_weights {
        KeepWeights::Use => "optim_grads_params",
        KeepWeights::Step => "optim_grads",
    };
    Sharding::Fsdp { strategy, replicas }
}

/// Beside experts Megatron puts the pipeline inside data only where each replica of them is one of the other weights.
fn may_put_pipe_before_data(sizes: Sizes, tensor: usize, degrees: Option<Degrees>) -> bool {
    degrees.is_none_or(|degrees| sizes.pipe == 1 || degrees.parallel * degrees.tensor == tensor * sizes.context)
}

/// True if ranks are numbered with the pipeline inside data, which is not the usual order; any third order is named.
fn check_order(gaps: &mut Gaps, has_experts: bool, layout: &Layout) -> bool {
    gaps.check_experts_over(&ORDER[..5]);
    if !gaps.is_order(&ORDER) && has_pipe_before_data(gaps, has_experts, layout) {
        return true;
    }
    gaps.check_order(&ORDER);
    false
}

/// True if Megatron can number ranks with the pipeline inside data, as the layout does; Megatron-FSDP has the usual order only.
pub(super) fn has_pipe_before_data(gaps: &Gaps, has_experts: bool, layout: &Layout) -> bool {
    use Axis::{Context, Data, Pipe, X, Y, Z};
    let sizes = Sizes::of(layout);
    let tensor = sizes.x * sizes.y;
    let degrees = has_experts.then(|| Degrees::of(layout, tensor));
    let may = may_put_pipe_before_data(sizes, tensor, degrees) && !is_fsdp(layout, sizes);
    may && gaps.is_order(&[X, Y, Context, Pipe, Z, Data])
}

/// True if Megatron-FSDP shards: weights over z, or gradients over data.
fn is_fsdp(layout: &Layout, Sizes { z, context, data, .. }: Sizes) -> bool {
    z > 1 || layout.zero == Zero::Gradients && data * context > 1
}

/// `Et*3|t*4|t*3L`.
fn pipeline_layout(stage_blocks: &[usize]) -> String {
    let blocks = |count: &usize| match count {
        0 => String::new(),
        1 => "t".to_owned(),
        _ => format!("t*{count}"),
    };
    format!("E{}L", stage_blocks.iter().map(blocks).collect::<Vec<_>>().join("|"))
}

/// Megatron's base is a whole number.
fn rotary_base(model: &Classic) -> Result<Option<u64>, SpecError> {
    if model.positions != Positions::Rotary {
        return Ok(None);
    }
    if model.rotary_base.fract() != 0.0 {
        let rule = "Megatron's --rotary-base is a whole number";
        return Err(SpecError::invalid("rotary_base", model.rotary_base, rule, "use e.g. 10000 or 500000"));
    }
    Ok(Some(model.rotary_base as u64))
}

/// Flags, one per line.
#[derive(Default)]
struct Flags(Vec<String>);

impl Flags {
    fn set(&mut self, name: &str, value: impl std::fmt::Display) {
        self.0.push(format!("{name} {value}"));
    }

    fn on(&mut self, name: &str, wanted: bool) {
        if wanted {
            self.0.push(name.to_owned());
        }
    }

    fn maybe(&mut self, name: &str, value: Option<impl std::fmt::Display>) {
        if let Some(value) = value {
            self.set(name, value);
        }
    }
}

/// The model as Megatron-LM knows it: as Megatron Core does, but that no flag scales scores, which latent attention does itself.
pub(super) fn described(model: &Model) -> Result<Described, SpecError> {
    let of_core = Properties::of(model);
    let score_scale = if of_core.latent.is_some() { of_core.score_scale } else { 1.0 };
    Described::new(model, "megatron", Properties { score_scale, ..of_core })
}

pub(super) fn export(described: &Described, layout: &Layout, target: &Target) -> Result<Export, SpecError> {
    let (nodes, per_node) = nodes(layout, target)?;
    let model = &described.sizes;
    let choices = Choices::new(Framework::Megatron, described, layout)?;
    let types = Types::new(Framework::Megatron, layout, target, false)?;
    let gaps = [choices.gaps.clone(), types.gaps.clone()].concat();
    let checked = "Flags of pretrain_gpt.py, held against megatron-core 0.17.1, 0.18.2, 0.19.0 and 0.19.2";
    let left = format!("To be added: data, a tokenizer of {} tokens, the optimizer's constants", model.vocab);
    let mut text = comments(model, layout, checked, &left, &gaps);
    text += match choices.sharding {
        // Megatron-FSDP refuses the one queue that overlapped tensor parallelism needs before Blackwell.
        Sharding::Fsdp { .. } => "unset CUDA_DEVICE_MAX_CONNECTIONS\n",
        _ => "export CUDA_DEVICE_MAX_CONNECTIONS=1\n",
    };
    let mut flags = Flags::default();
    model_flags(&mut flags, described, layout, &choices);
    field_flags(&mut flags, &choices.attention);
    field_flags(&mut flags, &choices.experts);
    layout_flags(&mut flags, layout, &choices, types.stores_scores);
    flags.on("--bf16", target.precision == Precision::Bf16);
    flags.on("--fp16", target.precision == Precision::F16);
    let precise = types.has_narrow_moments() || choices.offloads;
    flags.on("--use-distributed-optimizer", choices.sharding == Sharding::None && precise);
    flags.on("--optimizer-cpu-offload", choices.offloads);
    flags.on("--use-precision-aware-optimizer", choices.offloads && !types.has_narrow_moments());
    field_flags(&mut flags, &numbers::of_megatron(types.numbers));
    flags.maybe("--attention-backend", types.stores_scores.then_some("unfused"));
    text += &format!("torchrun --nnodes {nodes} --nproc-per-node {per_node} pretrain_gpt.py");
    for flag in &flags.0 {
        text += &format!(" \\\n  {flag}");
    }
    Ok(Export { text: text + "\n", cannot_express: gaps })
}

fn model_flags(flags: &mut Flags, described: &Described, layout: &Layout, choices: &Choices) {
    let model = &described.sizes;
    flags.set("--num-layers", model.layers);
    flags.set("--hidden-size", model.hidden);
    flags.set("--ffn-hidden-size", model.ffn);
    flags.set("--num-attention-heads", model.heads);
    let grouped = model.kv_heads < model.heads;
    flags.on("--group-query-attention", grouped);
    flags.maybe("--num-query-groups", grouped.then_some(model.kv_heads));
    flags.maybe("--kv-channels", described.head_dim);
    flags.on("--qk-layernorm", described.norms_keys());
    flags.set("--seq-length", layout.seq_len);
    flags.set("--max-position-embeddings", model.seq_len);
    flags.set("--make-vocab-size-divisible-by", layout.vocab_multiple);
    flags.set("--normalization", if model.norm == Norm::Rms { "RMSNorm" } else { "LayerNorm" });
    flags.set("--norm-epsilon", model.norm_epsilon);
    let rotary = choices.rotary_base.is_some();
    flags.set("--position-embedding-type", if rotary { "rope" } else { "learned_absolute" });
    flags.maybe("--rotary-base", choices.rotary_base);
    flags.on("--swiglu", model.activation == Activation::Swiglu);
    flags.on("--squared-relu", described.properties.activation == Some(Activation::Relu2));
    // Fused with a bias GELU has its tanh form, and no other function is known.
    flags.on("--no-bias-gelu-fusion", model.biases && described.properties.activation.is_some());
    flags.on("--no-rope-fusion", described.properties.turns_unscaled_latents());
    flags.on("--disable-bias-linear", !model.biases);
    flags.on("--untie-embeddings-and-output-weights", !model.tied_head);
    flags.set("--attention-dropout", model.dropout);
    flags.set("--hidden-dropout", model.dropout);
}

/// Flags are called as the fields from which Megatron-LM makes them, but for some.
fn field_flags(flags: &mut Flags, fields: &Fields) {
    for (field, setting) in &fields.0 {
        let name = match *field {
            "num_moe_experts" => "--num-experts".to_owned(),
            "rope_scaling" => "--use-rope-scaling".to_owned(),
            "seq_len_interpolation_factor" => "--rotary-seq-len-interpolation-factor".to_owned(),
            "layernorm_zero_centered_gamma" => "--apply-layernorm-1p".to_owned(),
            field => format!("--{}", field.replace('_', "-")),
        };
        match setting {
            Setting::Switch(wanted) => flags.on(&name, *wanted),
            Setting::Said(value) => flags.set(&name, value),
            Setting::Usual(_) => {}
            Setting::Blocks(blocks) => flags.set(&name, format!("'{}'", list_expression(blocks))),
            Setting::Pair([first, second]) => flags.set(&name, format!("{first},{second}")),
        }
    }
}

fn layout_flags(flags: &mut Flags, layout: &Layout, choices: &Choices, stores_scores: bool) {
    flags.set("--tensor-model-parallel-size", choices.tensor);
    flags.on("--sequence-parallel", choices.sequence_parallel);
    flags.set("--pipeline-model-parallel-size", choices.pipe);
    flags.maybe("--num-virtual-stages-per-pipeline-rank", choices.virtual_stages);
    flags.maybe("--microbatch-group-size-per-virtual-pipeline-stage", choices.microbatch_group);
    flags.maybe("--pipeline-model-parallel-layout", choices.pipeline_layout.as_ref().map(|text| format!("'{text}'")));
    flags.on("--use-tp-pp-dp-mapping", choices.pipe_before_data);
    flags.set("--context-parallel-size", choices.context);
    flags.maybe("--cp-comm-type", (choices.context > 1).then_some("allgather"));
    flags.set("--micro-batch-size", choices.micro_batch);
    flags.set("--global-batch-size", layout.global_batch);
    match choices.sharding {
        Sharding::None => {}
        Sharding::DistributedOptimizer => flags.on("--use-distributed-optimizer", true),
        Sharding::Fsdp { strategy, replicas } => {
            flags.on("--use-megatron-fsdp", true);
            flags.on("--use-distributed-optimizer", true);
            flags.set("--data-parallel-sharding-strategy", strategy);
            flags.maybe("--num-distributed-optimizer-instances", (replicas > 1).then_some(replicas));
            flags.on("--no-gradient-accumulation-fusion", true);
            flags.set("--ckpt-format", "fsdp_dtensor");
        }
    }
    flags.on("--overlap-grad-reduce", choices.overlap_grad_reduce);
    flags.on("--overlap-param-gather", choices.overlap_param_gather);
    match layout.recompute {
        Recompute::None => {}
        Recompute::Selective => {
            flags.set("--recompute-granularity", "selective");
            let scores = if stores_scores { "core_attn " } else { "" };
            flags.set("--recompute-modules", format!("{scores}{}", choices.recompute_modules));
        }
        Recompute::Full { every } => {
            flags.set("--recompute-granularity", "full");
            flags.set("--recompute-method", "uniform");
            flags.set("--recompute-num-layers", every);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_are_spelled_as_megatron_parses_them() {
        assert_eq!(pipeline_layout(&[3, 4, 1]), "Et*3|t*4|tL");
        assert_eq!(pipeline_layout(&[0, 2, 0]), "E|t*2|L");
    }
}
