//! torchtitan: its TOML configuration.
//!
//! Held against releases 0.2.1 (December 2025) and 0.2.2 (February 2026), the last that take TOML files: 0.3.0 takes Python
//! functions. Both have the names of `torchtitan/config/job_config.py` that are written here; how the shares of a cut
//! sequence are balanced (head and tail, as in a layout) is a field of 0.2.2 only, whose value is what 0.2.1 always does, so
//! it is left at its default. Models: `torchtitan/models/llama3`. `scripts/check-exports` gives exports to torchtitan's own
//! reader.

use quadrille_spec::{
    Activation, Activations, Axis, Classic, Field, KeepWeights, Layout, Norm, Positions, Recompute, Schedule,
    SpecError, Zero,
};

use super::gaps::Gaps;
use super::{Export, Precision, Sizes, Target, check_language_model, comments, nodes};

/// Llama 3 as torchtitan knows it: flavour, layers, hidden, heads, heads of keys and values, perceptron.
const FLAVOURS: [(&str, [usize; 5]); 3] =
    [("8B", [32, 4096, 32, 8, 14336]), ("70B", [80, 8192, 64, 8, 28672]), ("405B", [126, 16384, 128, 8, 53248])];

pub(super) fn export(model: &Classic, layout: &Layout, target: &Target) -> Result<Export, SpecError> {
    check_language_model(model, "torchtitan")?;
    let (nodes, per_node) = nodes(layout, target)?;
    let sizes = Sizes::of(layout);
    let mut gaps = Gaps::new("torchtitan", layout);
    let tensor = gaps.tensor_parallel(model)?;
    let (name, flavour) = flavour(model, &mut gaps);
    weights_gaps(layout, sizes, tensor, &mut gaps);
    gaps.check_order(&[Axis::X, Axis::Y, Axis::Context, Axis::Z, Axis::Data, Axis::Pipe]);
    let schedule = schedule(layout, sizes, &mut gaps);
    if layout.activations == Activations::Replicated && tensor > 1 {
        gaps.lacks(Field::Activations, "tensor parallelism cuts the residual stream's rows, too (scattered)");
    }
    if !(layout.overlap.reduce_scatter && layout.overlap.all_gather) && sizes.z > 1 {
        gaps.add("overlap", "FSDP always gathers ahead and reduces behind");
    }
    let checkpoint = activation_checkpoint(layout.recompute, &mut gaps);
    let checked =
        "A TOML configuration of torchtitan, held against releases 0.2.1 and 0.2.2 (0.3.0 takes Python functions)";
    let left = format!(
        "torchrun --nnodes {nodes} --nproc_per_node {per_node} -m torchtitan.train --job.config_file THIS_FILE; to be \
         added: data, tokenizer, the optimizer's constants"
    );
    let mut text = comments(model, layout, checked, &left, &gaps.lines);
    text += &format!("\n[model]\nname = {name:?}\nflavor = {flavour:?}\n");
    text += &training(layout, sizes, target.precision);
    text += &parallelism(layout, sizes, tensor, schedule);
    text += &checkpoint;
    Ok(Export { text, cannot_express: gaps.lines })
}

/// The name and flavour under which torchtitan has, or is to be given, the model.
fn flavour(model: &Classic, gaps: &mut Gaps) -> (String, String) {
    let sizes = [model.layers, model.hidden, model.heads, model.kv_heads, model.ffn];
    let known = FLAVOURS.iter().find(|(_, known)| *known == sizes);
    let is_llama = model.norm == Norm::Rms
        && model.positions == Positions::Rotary
        && model.activation == Activation::Swiglu
        && model.rotary_base == 500_000.0
        && model.norm_epsilon == 1e-5
        && model.vocab == 128_256
        && model.dropout == 0.0
        && !(model.biases || model.tied_head);
    match known {
        Some((flavour, _)) if is_llama => {
            gaps.add("rotary positions", "torchtitan's Llama 3 scales low frequencies by 8, as Llama 3.1 does");
            ("llama3".to_owned(), (*flavour).to_owned())
        }
        _ => {
            let part = format!("model {}", model.name);
            gaps.add(part, "torchtitan has no flavour of these sizes and kinds; register one under this name");
            (model.name.clone(), model.name.clone())
        }
    }
}

/// What FSDP shards that the layout does not, or the other way round.
fn weights_gaps(layout: &Layout, sizes: Sizes, tensor: usize, gaps: &mut Gaps) {
    let Sizes { z, context, data, pipe, .. } = sizes;
    if context > 1 {
        gaps.add(
            format!("context={context}"),
            "FSDP shards weights over context, too, where the layout replicates them",
        );
    }
    if z == 1 && context == 1 && data > 1 && tensor * pipe > 1 {
        let part = format!("data={data} without z");
        gaps.add(part, "weights are replicated by DDP, which torchtitan may refuse beside other axes");
    }
    if layout.zero != Zero::Off && data * context > 1 {
        gaps.lacks(Field::Zero, "what FSDP does not shard over z is replicated over data");
    }
    if layout.keep_weights == KeepWeights::Step && z > 1 && layout.microbatches() > 1 {
        gaps.lacks(Field::KeepWeights, "weights are kept from a forward pass to its backward pass, not for the step");
    }
    if !layout.overlap.all_reduce && tensor > 1 {
        gaps.add("overlap without oar", "torchtitan decides where reductions of input gradients run");
    }
}

/// torchtitan's name of the schedule.
fn schedule(layout: &Layout, sizes: Sizes, gaps: &mut Gaps) -> &'static str {
    gaps.check_schedule(&[Schedule::OneForwardOneBackward, Schedule::Gpipe, Schedule::Interleaved], "1F1B");
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
    let computed = match precision {
        Precision::Bf16 => "bfloat16",
        Precision::F32 => "float32",
    };
    format!(
        "\n[training]\nlocal_batch_size = {local}\nglobal_batch_size = {}\nseq_len = {}\nmixed_precision_param = \
         {computed:?}\nmixed_precision_reduce = \"float32\"\n",
        layout.global_batch, layout.seq_len
    )
}

fn parallelism(layout: &Layout, sizes: Sizes, tensor: usize, schedule: &str) -> String {
    let Sizes { z, context, data, pipe, .. } = sizes;
    let reshard = match layout.keep_weights {
        KeepWeights::Use => "always",
        KeepWeights::Step => "never",
    };
    let mut text = format!(
        "\n[parallelism]\ndata_parallel_replicate_degree = {data}\ndata_parallel_shard_degree = \
         {z}\nfsdp_reshard_after_forward = {reshard:?}\ntensor_parallel_degree = {tensor}\ncontext_parallel_degree = \
         {context}\n"
    );
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
        Recompute::Selective => {
            let instead = "the 'op' policy computes every second product again, beside norms and activation functions";
            gaps.lacks(Field::Recompute, instead);
            "mode = \"selective\"\nselective_ac_option = \"op\"\n"
        }
        Recompute::Full { every } => {
            if every > 1 {
                gaps.lacks(Field::Recompute, "the input of every block is kept");
            }
            "mode = \"full\"\n"
        }
    };
    format!("\n[activation_checkpoint]\n{lines}")
}
