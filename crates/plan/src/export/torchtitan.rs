//! torchtitan: its TOML configuration.
//!
//! Held against releases 0.2.1 (December 2025) and 0.2.2 (February 2026), the last that take TOML files: 0.3.0 takes Python
//! functions. Both have the names of `torchtitan/config/job_config.py` that are written here; how the shares of a cut
//! sequence are balanced (head and tail, as in a layout) is a field of 0.2.2 only, whose value is what 0.2.1 always does, so
//! it is left at its default. Models: `torchtitan/models/llama3` and `qwen3`; experts: `torchtitan/models/moe`, and
//! `torchtitan/distributed/parallel_dims.py`, where they are spread over neighbours in the order tensor, context, shards of FSDP,
//! and cut by all of tensor parallelism or by none of it. The axis expert counts among the shards then. `scripts/check-exports` gives exports to torchtitan's own
//! reader.

use quadrille_spec::{
    Activation, Activations, BalanceScope, Classic, ExpertGroups, Experts, Field, KeepWeights, Layout, Model, Norm,
    Offload, Positions, Recompute, RotaryScaling, Router, RouterScores, Schedule, SpecError, Zero,
};

use super::deepseek;
use super::experts::{self, Degrees};
use super::fields::list_expression;
use super::gaps::{Gaps, zero_capability};
use super::model::{Described, Mixture};
use super::numbers::{self, Types};
use super::properties::Properties;
use super::{Export, Framework, ORDER, Precision, Sizes, Target, check_language_model, comments, nodes};
use crate::frameworks::Capability;

/// Llama 3 as torchtitan knows it: flavour, layers, hidden, heads, heads of keys and values, perceptron.
const FLAVOURS: [(&str, [usize; 5]); 3] =
    [("8B", [32, 4096, 32, 8, 14336]), ("70B", [80, 8192, 64, 8, 28672]), ("405B", [126, 16384, 128, 8, 53248])];

/// Qwen3: flavour, layers, hidden, heads, heads of keys and values, width of the perceptron or of an expert; whether it has
/// experts, whether its head is tied, base of the positions.
const QWEN3_FLAVOURS: [(&str, [usize; 5], bool, bool, f64); 8] = [
    ("0.6B", [28, 1024, 16, 8, 3072], false, true, 1e6),
    ("1.7B", [28, 2048, 16, 8, 6144], false, true, 1e6),
    ("4B", [36, 2560, 32, 8, 9728], false, true, 1e6),
    ("8B", [36, 4096, 32, 8, 12288], false, false, 1e6),
    ("14B", [40, 5120, 40, 8, 17408], false, false, 1e6),
    ("32B", [64, 5120, 64, 8, 25600], false, false, 1e6),
    ("30B-A3B", [48, 2048, 32, 4, 768], true, false, 1e6),
    ("235B-A22B", [94, 4096, 64, 4, 1536], true, false, 5e6),
];

/// The model as torchtitan knows it: of longer sequences its Llama 3 alone, as that scales frequencies; latent attention in
/// the flavors of its DeepSeek-V3.
pub(super) fn described(model: &Model) -> Result<Described, SpecError> {
    let of_model = Properties::of(model);
    if of_model.latent.is_some() {
        let described = Described::new(model, "torchtitan", of_model)?;
        if deepseek::flavor(&described).is_some() {
            return Ok(described);
        }
    }
    let longer = Properties { scaling: SCALED_LLAMA3, ..Properties::NONE };
    if Properties::of(model).scaling == SCALED_LLAMA3 {
        let described = Described::new(model, "torchtitan", longer)?;
        if llama3(&described).is_some() {
            return Ok(described);
        }
    }
    Described::new(model, "torchtitan", Properties::NONE)
}

pub(super) fn export(described: &Described, layout: &Layout, target: &Target) -> Result<Export, SpecError> {
    let model = &described.sizes;
    check_language_model(model, "torchtitan")?;
    let (nodes, per_node) = nodes(layout, target)?;
    let sizes = Sizes::of(layout);
    let types = Types::new(Framework::Torchtitan, layout, target, sizes.z > 1)?;
    let mut gaps = Gaps::new(Framework::Torchtitan, layout);
    if !Framework::Torchtitan.trains_in(target.precision) {
        gaps.add(format!("dtype = {}", target.precision), "torchtitan trains in bf16, and scales no loss");
    }
    let tensor = gaps.tensor_parallel(model)?;
    let (name, flavour) = flavour(described, &mut gaps);
    if let Some(mixture) = &described.mixture {
        check_groups(&mixture.experts)?;
        expert_gaps(mixture, [QWEN3, deepseek::NAME].contains(&name.as_str()), layout, tensor, &mut gaps);
        if let Some(format) = types.numbers.products {
            gaps.add(
                format!("products = {format}"),
                "those of experts, in groups, keep operands of 16 bits (quantize.grouped_mm is a prototype)",
            );
        }
    }
    if name == deepseek::NAME {
        deepseek::check(described, layout, tensor, types.numbers, &mut gaps)?;
    }
    if name == QWEN3 && sizes.pipe > 1 {
        gaps.add(
            format!("pipe={}", sizes.pipe),
            "torchtitan's Qwen3 has no function that cuts it into stages in 0.2; 0.3 has one",
        );
    }
    gaps.unpadded(model.vocab);
    weights_gaps(layout, sizes, tensor, &mut gaps);
    gaps.check_order(&ORDER);
    let schedule = schedule(layout, sizes, &mut gaps);
    if layout.activations == Activations::Replicated && tensor > 1 {
        gaps.state(Capability::ReplicatedActivations, Field::Activations);
    }
    let shards = sizes.z * sizes.context * sizes.spread_data > 1;
    let waits = !layout.overlap.reduce_scatter && (shards || sizes.data > 1);
    if waits || !layout.overlap.all_gather && (shards || sizes.data > 1 && layout.zero != Zero::Off) {
        let instead = "FSDP always gathers ahead and reduces behind, as DDP reduces";
        gaps.add("overlap", format!("{instead}, where the layout overlaps {}", layout.overlap));
    }
    let checkpoint = activation_checkpoint(layout.recompute, &mut gaps);
    gaps.lines.extend(types.gaps);
    let checked =
        "A TOML configuration of torchtitan, held against releases 0.2.1 and 0.2.2 (0.3.0 takes Python functions)";
    let left = format!(
        "torchrun --nnodes {nodes} --nproc_per_node {per_node} -m torchtitan.train --job.config_file THIS_FILE; to be \
         added: data, tokenizer, the optimizer's constants"
    );
    let (converters, converter) = numbers::of_torchtitan(types.numbers);
    let mut text = comments(model, layout, checked, &left, &gaps.lines);
    text += &format!("\n[model]\nname = {name:?}\nflavor = {flavour:?}\n{converters}");
    text += &training(layout, sizes, target.precision);
    text += &converter;
    let degrees = described.mixture.as_ref().map(|_| Degrees::of(layout, tensor));
    text += &parallelism(layout, sizes, tensor, degrees, schedule);
    text += &checkpoint;
    Ok(Export { text, cannot_express: gaps.lines })
}

/// The name of Llama 3 in torchtitan, and how its rotary frequencies are scaled (`RoPEScalingArgs`).
const LLAMA3: &str = "llama3";
const SCALED_LLAMA3: RotaryScaling = RotaryScaling::Llama3 { factor: 8.0, low: 1.0, high: 4.0, positions: 8192 };

/// The name of Qwen3 in torchtitan.
const QWEN3: &str = "qwen3";

/// The name and flavour under which torchtitan has, or is to be given, the model.
fn flavour(described: &Described, gaps: &mut Gaps) -> (String, String) {
    let model = &described.sizes;
    if let Some(flavour) = llama3(described) {
        if described.properties.scaling == RotaryScaling::None {
            gaps.add("rotary positions", "torchtitan's Llama 3 scales low frequencies by 8, as Llama 3.1 does");
        }
        return (LLAMA3.to_owned(), flavour.to_owned());
    }
    if let Some(flavour) = qwen3(described) {
        return (QWEN3.to_owned(), flavour.to_owned());
    }
    if let Some(flavor) = deepseek::flavor(described) {
        return (deepseek::NAME.to_owned(), flavor.to_owned());
    }
    let mut instead = "torchtitan has no flavour of these sizes and kinds; register one under this name".to_owned();
    if let Some(mixture) = &described.mixture {
        instead += &format!(" with moe_inter_dim={} and {}", mixture.experts.expert.width, moe_args(&mixture.experts));
    }
    gaps.add(format!("model {}", model.name), instead);
    (model.name.clone(), model.name.clone())
}

fn llama3(described: &Described) -> Option<&'static str> {
    let model = &described.sizes;
    let sizes = [model.layers, model.hidden, model.heads, model.kv_heads, model.ffn];
    let as_llama = is_modern(model, 1e-5)
        && !model.tied_head
        && model.rotary_base == 500_000.0
        && model.vocab == 128_256
        && described.mixture.is_none()
        && described.head_dim.is_none()
        && !described.qk_norm;
    FLAVOURS.iter().find(|(_, known)| as_llama && *known == sizes).map(|(flavour, _)| *flavour)
}

fn qwen3(described: &Described) -> Option<&'static str> {
    let model = &described.sizes;
    let experts = described.mixture.as_ref().map(|mixture| &mixture.experts);
    let as_qwen = is_modern(model, 1e-6)
        && model.vocab == 151_936
        && described.head_dim.unwrap_or(model.head_dim()) == 128
        && described.qk_norm
        && described.mixture.as_ref().is_none_or(has_experts_of_qwen3);
    let width = experts.map_or(model.ffn, |experts| experts.expert.width);
    let sizes = [model.layers, model.hidden, model.heads, model.kv_heads, width];
    let said = (sizes, experts.is_some(), model.tied_head, model.rotary_base);
    let mut flavours = QWEN3_FLAVOURS.iter().filter(|_| as_qwen);
    flavours.find(|(_, sizes, experts, tied, base)| (*sizes, *experts, *tied, *base) == said).map(|known| known.0)
}

/// In every block 128 experts, eight for a token, with weights that add up to 1.
fn has_experts_of_qwen3(Mixture { experts, at }: &Mixture) -> bool {
    let Router { scores, groups, normalize, scale, .. } = experts.router;
    !at.contains(&false)
        && groups.is_none()
        && (experts.count, experts.per_token, experts.shared) == (128, 8, None)
        && (scores, normalize, scale) == (RouterScores::Softmax, true, 1.0)
}

/// What Llama 3 and Qwen3 have in common.
fn is_modern(model: &Classic, epsilon: f64) -> bool {
    model.norm == Norm::Rms
        && model.norm_epsilon == epsilon
        && model.positions == Positions::Rotary
        && model.activation == Activation::Swiglu
        && model.dropout == 0.0
        && !model.biases
}

/// By how much biases of routers move in torchtitan's flavors of Qwen3 and DeepSeek-V3.
const QWEN3_BIAS_RATE: f64 = 0.001;

/// torchtitan's description of experts.
fn moe_args(experts: &Experts) -> String {
    let Experts { count, per_token, expert, shared, router, .. } = experts;
    let shared = shared.map_or(0, |shared| shared.width.div_ceil(expert.width));
    let norm = if router.normalize { "True" } else { "False" };
    let groups = router.groups.map_or_else(String::new, |ExpertGroups { count, chosen }| {
        format!("num_expert_groups={count}, num_limited_groups={chosen}, ")
    });
    // Biases move by this, less the mean of what all move by, which changes no choice.
    let bias_rate = if router.has_bias() { format!("{:?}", router.bias_rate) } else { "None".to_owned() };
    format!(
        "MoEArgs(num_experts={count}, num_shared_experts={shared}, top_k={per_token}, {groups}score_func=\"{}\", \
         route_norm={norm}, route_scale={:?}, score_before_experts=False, load_balance_coeff={bias_rate})",
        router.scores, router.scale
    )
}

/// The two largest scores of a group count for it, so that it has at least two.
fn check_groups(experts: &Experts) -> Result<(), SpecError> {
    match experts.router.groups.filter(|groups| experts.count < 2 * groups.count) {
        None => Ok(()),
        Some(groups) => {
            let rule = "torchtitan's groups have at least two experts";
            let remedy = format!("use at most {}, or none", experts.count / 2);
            Err(SpecError::invalid("router_groups", groups.count, rule, remedy))
        }
    }
}

/// What torchtitan's experts do otherwise.
fn expert_gaps(mixture: &Mixture, is_flavor: bool, layout: &Layout, tensor: usize, gaps: &mut Gaps) {
    let Experts { expert, per_token, shared, router, capacity, .. } = mixture.experts;
    gaps.check_experts_over(&ORDER[..5]);
    if is_flavor && router.bias_rate != QWEN3_BIAS_RATE {
        let instead = format!("a bias for every expert, which moves by {QWEN3_BIAS_RATE} a step, balances loads");
        gaps.add(format!("router_bias_rate = {}", router.bias_rate), instead);
    }
    if let Some(groups) = router.groups.filter(|groups| per_token / groups.chosen != 2) {
        let part = format!("router_top_groups = {} for {per_token} experts", groups.chosen);
        gaps.add(part, "the two largest scores of a group count for it");
    }
    if router.balance != BalanceScope::None && router.balance_loss > 0.0 {
        gaps.add(format!("balance = {}", router.balance), "no loss balances the loads of experts");
    }
    if router.z_loss > 0.0 {
        gaps.add(format!("router_z_loss = {}", router.z_loss), "there is no loss of large logits");
    }
    if !is_flavor && mixture.at.contains(&false) {
        let at = list_expression(&mixture.at);
        gaps.add(format!("experts in blocks {at}"), "the flavour says itself which blocks have experts");
    }
    if let Some(capacity) = capacity {
        gaps.add(format!("capacity = {}", capacity.factor), "no tokens are dropped, however unequal loads are");
    }
    if let Some(shared) = shared.filter(|shared| !shared.width.is_multiple_of(expert.width)) {
        let instead = format!("shared experts have multiples of {} columns together", expert.width);
        gaps.add(format!("shared_ffn = {}", shared.width), instead);
    }
    let degrees = Degrees::of(layout, tensor);
    let sends = degrees.parallel > 1;
    experts::layout_gaps(layout, tensor, sends && layout.overlap.all_to_all && shared.is_none(), gaps);
    if sends && degrees.tensor > 1 && layout.scatters_places() {
        let instead = format!("each of {tensor} ranks that cut an expert sends all tokens, not its part");
        gaps.add("dispatch", instead);
    }
}

/// What FSDP shards that the layout does not, or the other way round.
fn weights_gaps(layout: &Layout, sizes: Sizes, tensor: usize, gaps: &mut Gaps) {
    let Sizes { z, context, spread_data, pipe, .. } = sizes;
    let data = sizes.data / spread_data;
    for (axis, size) in [("context", context), ("expert", spread_data)] {
        if size > 1 {
            let instead = format!("FSDP shards weights over {axis}, too, where the layout replicates them");
            gaps.add(format!("{axis}={size}"), instead);
        }
    }
    if z * context * spread_data == 1 && data > 1 && tensor * pipe > 1 {
        let part = format!("data={data} without z");
        gaps.add(
            part,
            "weights are replicated by DDP, which torchtitan 0.2 refuses beside other axes (0.3 replicates by FSDP)",
        );
    }
    if layout.zero != Zero::Off && data * context > 1 {
        gaps.state(zero_capability(layout.zero), Field::Zero);
    }
    if layout.keep_weights == KeepWeights::Step && z > 1 && layout.microbatches() > 1 {
        gaps.state(Capability::StepWeights, Field::KeepWeights);
    }
    if !layout.overlap.all_reduce && tensor > 1 {
        gaps.add("overlap without oar", "torchtitan decides where reductions of input gradients run");
    }
}

/// torchtitan's name of the schedule.
fn schedule(layout: &Layout, sizes: Sizes, gaps: &mut Gaps) -> &'static str {
    gaps.check_schedule();
    match layout.schedule {
        Schedule::Gpipe => "GPipe",
        Schedule::Interleaved if layout.chunks > 1 => {
            if layout.microbatch_group != sizes.pipe {
                gaps.lacks(
                    Field::MicrobatchGroup,
                    format!("microbatches pass a chunk in groups of pipe={}", sizes.pipe),
                );
            }
            "Interleaved1F1B"
        }
        _ => "1F1B",
    }
}

/// With a pipeline, the microbatches of a step are one batch; without one, gradients are accumulated.
fn training(layout: &Layout, sizes: Sizes, precision: Precision) -> String {
    let local = match sizes.pipe {
        1 => layout.microbatch / sizes.z,
        _ => layout.global_batch / (sizes.data * sizes.z),
    };
    let offloads = layout.offload != Offload::None && Framework::Torchtitan.offloads(layout);
    let offload = if offloads { "enable_cpu_offload = true\n" } else { "" };
    let computed = match precision {
        Precision::F32 => "float32",
        Precision::Bf16 | Precision::F16 => "bfloat16",
    };
    format!(
        "\n[training]\nlocal_batch_size = {local}\nglobal_batch_size = {}\nseq_len = {}\nmixed_precision_param = \
         {computed:?}\nmixed_precision_reduce = \"float32\"\n{offload}",
        layout.global_batch, layout.seq_len
    )
}

fn parallelism(layout: &Layout, sizes: Sizes, tensor: usize, degrees: Option<Degrees>, schedule: &str) -> String {
    let Sizes { z, context, data, spread_data, pipe, .. } = sizes;
    let reshard = match layout.keep_weights {
        KeepWeights::Use => "always",
        KeepWeights::Step => "never",
    };
    let mut text = format!(
        "\n[parallelism]\ndata_parallel_replicate_degree = {}\ndata_parallel_shard_degree = \
         {}\nfsdp_reshard_after_forward = {reshard:?}\ntensor_parallel_degree = {tensor}\ncontext_parallel_degree = \
         {context}\n",
        data / spread_data,
        z * spread_data
    );
    if let Some(Degrees { parallel, tensor }) = degrees {
        // Where no experts are spread, tensor parallelism cuts them whatever the second says.
        let tensor = if parallel > 1 { tensor } else { 1 };
        text += &format!("expert_parallel_degree = {parallel}\nexpert_tensor_parallel_degree = {tensor}\n");
    }
    if context > 1 {
        text += "context_parallel_rotate_method = \"allgather\"\n";
    }
    text += &format!("pipeline_parallel_degree = {pipe}\n");
    if pipe > 1 {
        text += &format!(
            "pipeline_parallel_schedule = {schedule:?}\npipeline_parallel_microbatch_size = {}\n",
            layout.microbatch / z
        );
        text += "module_fqns_per_model_part = [\n";
        for piece in 0..layout.pieces() {
            text += &format!("  [{}],\n", modules(layout, piece).join(", "));
        }
        text += "]\n";
    }
    text
}

/// The modules of a piece of layers, quoted.
fn modules(layout: &Layout, piece: usize) -> Vec<String> {
    let blocks = layout.blocks_of(piece).map(|block| format!("\"layers.{block}\""));
    let first = (piece == 0).then(|| "\"tok_embeddings\"".to_owned());
    let last = ["\"norm\"", "\"output\""].map(str::to_owned);
    let last = last.into_iter().filter(|_| piece + 1 == layout.pieces());
    first.into_iter().chain(blocks).chain(last).collect()
}

fn activation_checkpoint(recompute: Recompute, gaps: &mut Gaps) -> String {
    let lines = match recompute {
        Recompute::None => "mode = \"none\"\n",
        Recompute::Selective => "mode = \"selective\"\nselective_ac_option = \"op\"\n",
        Recompute::Full { .. } => "mode = \"full\"\n",
    };
    gaps.check_recompute();
    format!("\n[activation_checkpoint]\n{lines}")
}
