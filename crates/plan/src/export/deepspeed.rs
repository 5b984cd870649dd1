//! DeepSpeed: its JSON configuration.
//!
//! Held against release 0.19.8: `runtime/config.py`, `initialize` and its groups. AutoTP goes with every ZeRO stage,
//! Ulysses is switched on by sizes of data and sequence parallelism; MiCS, which sharded over a part of the ranks, has been
//! removed. `scripts/check-exports` gives exports to DeepSpeed's own reader.
//!
//! The batch: DeepSpeed holds `train_batch_size` against the other two sizes times the ranks of data parallelism. It knows
//! those from the configuration alone only where nothing but data and sequences is cut; AutoTP's ranks it counts as if each
//! had sequences of its own, and of a pipeline's it learns from the model's code. There the two other sizes say the
//! batch, and `train_batch_size` is left out, as DeepSpeed allows.

use quadrille_spec::{Activations, Classic, Field, KeepWeights, Layout, Offload, SpecError};

use super::gaps::Gaps;
use super::numbers::{self, Types};
use super::{Export, Framework, ORDER, Precision, Sizes, Target, nodes};
use crate::frameworks::Capability;

pub(super) fn export(model: &Classic, layout: &Layout, target: &Target) -> Result<Export, SpecError> {
    nodes(layout, target)?;
    let sizes = Sizes::of(layout);
    let Sizes { z, context, data, pipe, .. } = sizes;
    let mut gaps = Gaps::new(Framework::DeepSpeed, layout);
    let tensor = gaps.tensor_parallel(model)?;
    // All ranks but those of sequences have sequences of their own.
    let configured = tensor * pipe == 1;
    if context > 1 {
        if let Some(instead) = gaps.instead(Capability::Context) {
            gaps.add(format!("context={context}"), instead);
        }
        if !configured {
            let instead =
                "the configuration's groups are of data and sequences only; others are made by the model's code";
            gaps.add(format!("context={context} beside x*y={tensor}, pipe={pipe}"), instead);
        }
    }
    if tensor > 1 {
        let counted = layout.global_batch * tensor;
        let instead = format!(
            "said by the other two sizes; DeepSpeed counts every rank of x*y={tensor} apart and reports at least {counted}"
        );
        gaps.add(format!("train_batch_size = {}", layout.global_batch), instead);
    }
    gaps.unpadded(model.vocab);
    let stage = stage(layout, sizes, &mut gaps);
    let types = Types::new(Framework::DeepSpeed, layout, target, stage > 0)?;
    pipeline_gaps(sizes, stage, &mut gaps);
    gaps.check_order(&ORDER);
    if layout.activations == Activations::Scattered && tensor > 1 {
        gaps.state(Capability::ScatteredActivations, Field::Activations);
    }
    gaps.check_recompute();
    if !layout.overlap.all_reduce && tensor > 1 {
        gaps.add("overlap without oar", "AutoTP decides where reductions of input gradients run");
    }
    if stage == 0 && layout.overlap.reduce_scatter && z * data * context > 1 {
        gaps.add("overlap ors", "without ZeRO gradients are all-reduced after the backward pass");
    }
    if [1, 2].contains(&stage) && layout.overlap.all_gather && z * data * context > 1 {
        gaps.add("overlap oag", "updated weights are gathered at the end of the step, before the next one begins");
    }
    gaps.lines.extend(types.gaps);
    let mut lines = Vec::new();
    if configured {
        lines.push(format!("\"train_batch_size\": {}", layout.global_batch));
    }
    lines.extend([
        format!("\"train_micro_batch_size_per_gpu\": {}", layout.microbatch / z),
        format!("\"gradient_accumulation_steps\": {}", layout.microbatches()),
        zero(layout, stage),
    ]);
    if tensor > 1 {
        lines.push(format!("\"tensor_parallel\": {{ \"autotp_size\": {tensor} }}"));
    }
    if context > 1 && configured {
        // The two make groups over all ranks, which is wrong beside other axes.
        lines.push(format!("\"data_parallel_size\": {}", z * data));
    }
    if context > 1 {
        lines.push(format!("\"sequence_parallel_size\": {context}"));
    }
    lines.push(format!("\"bf16\": {{ \"enabled\": {} }}", target.precision == Precision::Bf16));
    if target.precision == Precision::F16 {
        // A loss scale of 0 is DeepSpeed's dynamic one.
        lines.push("\"fp16\": { \"enabled\": true, \"loss_scale\": 0 }".to_owned());
    }
    lines.extend(numbers::of_deepspeed(types.numbers));
    Ok(Export { text: format!("{{\n  {}\n}}\n", lines.join(",\n  ")), cannot_express: gaps.lines })
}

/// The ZeRO stage that shards what z and `zero` shard.
fn stage(layout: &Layout, sizes: Sizes, gaps: &mut Gaps) -> usize {
    let Sizes { z, data, .. } = sizes;
    if z == 1 {
        return layout.zero as usize;
    }
    if data > 1 {
        let instead = format!("ZeRO shards over all {} ranks of z and data, without replicas", z * data);
        gaps.add(format!("data={data} beside z={z}"), instead);
    }
    // Weights that are kept for the step are gathered once, after the update: stage 2 over z.
    match layout.keep_weights {
        KeepWeights::Use => 3,
        KeepWeights::Step => 2,
    }
}

/// Stages are said in code, and know ZeRO's first stage only.
fn pipeline_gaps(sizes: Sizes, stage: usize, gaps: &mut Gaps) {
    let pipe = sizes.pipe;
    if pipe == 1 {
        return;
    }
    let instead =
        format!("said in the model's code, PipelineModule(layers, num_stages={pipe}), not in the configuration");
    gaps.add(format!("pipe={pipe}"), instead);
    let tensor = sizes.x * sizes.y;
    if tensor > 1 {
        let instead = "AutoTP knows no stages; the model's code cuts its layers, too (PipeModelDataParallelTopology)";
        gaps.add(format!("x*y={tensor} beside pipe={pipe}"), instead);
    }
    gaps.check_schedule();
    gaps.check_stages();
    if stage > 1 {
        gaps.add(format!("ZeRO stage {stage} with pipe={pipe}"), "DeepSpeed's pipelines take stages 0 and 1 only");
    }
}

fn zero(layout: &Layout, stage: usize) -> String {
    let mut fields = vec![format!("\"stage\": {stage}")];
    if stage > 0 {
        fields.push(format!("\"overlap_comm\": {}", layout.overlap.reduce_scatter));
        fields.push("\"reduce_scatter\": true".to_owned());
    }
    if stage == 3 && !layout.overlap.all_gather {
        fields.push("\"stage3_prefetch_bucket_size\": 0".to_owned());
    }
    if layout.offload != Offload::None && stage > 0 {
        fields.push("\"offload_optimizer\": { \"device\": \"cpu\" }".to_owned());
    }
    format!("\"zero_optimization\": {{ {} }}", fields.join(", "))
}
