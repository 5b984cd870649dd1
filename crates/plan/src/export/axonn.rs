//! AxoNN: calls of its Python interface.
//!
//! Names and the numbering of ranks were checked against axonn-ai/axonn, 2024: `docs/user_guide.rst` (commit
//! 1f9e54be15b6), `axonn/communication.py`, `axonn/intra_layer/fully_connected.py` (commit 0b6328ca6018) and
//! `overlap_communication.py` (commit 4973c51b26a4). Its inner group, `G_intra_c`, holds neighbouring ranks; a layer
//! contracts over it, a transposed one over the outer group `G_intra_r`; `G_intra_d` is the depth, our z.

use quadrille_spec::{Activations, Axis, Classic, Field, KeepWeights, Layout, Linear, SpecError, Zero, counted};

use super::gaps::{Gaps, zero_capability};
use super::numbers::Types;
use super::{Export, Framework, Precision, Sizes, Target, comments, nodes};
use crate::frameworks::Capability;

pub(super) fn export(model: &Classic, layout: &Layout, target: &Target) -> Result<Export, SpecError> {
    let (nodes, per_node) = nodes(layout, target)?;
    let types = Types::new(Framework::Axonn, layout, target, false)?;
    let sizes = Sizes::of(layout);
    if sizes.context > 1 {
        let rule = "AxoNN has no axis that cuts sequences, so its grid has fewer ranks";
        return Err(SpecError::invalid("context", sizes.context, rule, "use context=1, e.g. with a larger z or y"));
    }
    let mut gaps = Gaps::new(Framework::Axonn, layout);
    let y_inner = y_inner(layout, sizes);
    gaps.check_order(&order(layout));
    gaps.unpadded(model.vocab);
    layout_gaps(layout, sizes, &mut gaps);
    gaps.lines.extend(types.gaps);
    if target.precision == Precision::F16 {
        gaps.add("dtype = f16", "the loss is scaled in the model's code (torch.amp.GradScaler)");
    }
    let checked = "axonn-ai/axonn, documentation of 2024 (commit 1f9e54be15b6)";
    let each = if nodes == 1 { "one node".to_owned() } else { format!("each of {nodes} nodes") };
    let left = format!("mpirun -n {} with {} on {each}; the model is yours", sizes.ranks(), counted(per_node, "rank"));
    let text = comments(model, layout, checked, &left, &gaps.lines) + &code(layout, sizes, y_inner, per_node, target);
    Ok(Export { text, cannot_express: gaps.lines })
}

/// AxoNN's order, whose inner group may be x or y.
pub(super) fn order(layout: &Layout) -> [Axis; 5] {
    let y_inner = y_inner(layout, Sizes::of(layout));
    let [inner, outer] = if y_inner { [Axis::Y, Axis::X] } else { [Axis::X, Axis::Y] };
    [inner, outer, Axis::Z, Axis::Pipe, Axis::Data]
}

/// Whether y is AxoNN's inner group, over which layers contract that are not transposed; else x is.
fn y_inner(layout: &Layout, sizes: Sizes) -> bool {
    let first = layout.grid.order().axes().into_iter().find(|axis| [Axis::X, Axis::Y].contains(axis));
    sizes.x == 1 || sizes.y == 1 || first == Some(Axis::Y)
}

fn layout_gaps(layout: &Layout, sizes: Sizes, gaps: &mut Gaps) {
    let Sizes { x, y, z, data, .. } = sizes;
    gaps.check_schedule();
    gaps.check_stages();
    if layout.activations == Activations::Scattered && layout.linear == Linear::Pmm && x * y > 1 {
        gaps.state(Capability::ScatteredActivations, Field::Activations);
    }
    if layout.zero != Zero::Off && data > 1 {
        gaps.state(zero_capability(layout.zero), Field::Zero);
    }
    gaps.check_recompute();
    if layout.keep_weights == KeepWeights::Step && z > 1 && layout.microbatches() > 1 {
        gaps.state(Capability::StepWeights, Field::KeepWeights);
    }
}

fn code(layout: &Layout, sizes: Sizes, y_inner: bool, per_node: usize, target: &Target) -> String {
    let Sizes { x, y, z, data, pipe, .. } = sizes;
    let (rows, columns) = if y_inner { (x, y) } else { (y, x) };
    // A layer that is not transposed contracts over the inner group.
    let (normal, transposed) = if y_inner { ("False", "True") } else { ("True", "False") };
    let python = |flag: bool| if flag { "True" } else { "False" };
    let cache = python(layout.keep_weights == KeepWeights::Step && z > 1);
    let overlap = layout.overlap;
    format!(
        "import torch\n\
         import torch.distributed as dist\n\
         from axonn import axonn as ax\n\
         from axonn.intra_layer import Linear, optimize_communication\n\
         \n\
         dist.init_process_group(backend=\"nccl\")\n\
         ax.init(\n    G_inter={pipe},\n    G_data={data},\n    G_intra_r={rows},\n    G_intra_c={columns},\n    \
         G_intra_d={z},\n    gpus_per_node={per_node},\n)\n\
         # qkv and up (gate and up): Linear(inputs, outputs, transpose={normal}, expert_mode=True)\n\
         # projection and down:      Linear(inputs, outputs, transpose={transposed}, expert_mode=True)\n\
         # layer(values, cache_weights_in_all_gather={cache})\n\
         global_batch_size = {}\n\
         micro_batch_size = {}  # sequences of a data group in a pass, split over G_intra_d\n\
         sequence_length = {}\n\
         autocast = torch.autocast(\"cuda\", dtype=torch.{}, enabled={})\n\
         # Around every forward and backward pass:\n\
         # with autocast, optimize_communication(\n\
         #     overlap_all_reduce={},\n\
         #     overlap_reduce_scatter={},\n\
         #     overlap_all_gather={},\n\
         #     model_object_for_overlapping_allgathers=model,\n\
         # ):\n",
        layout.global_batch,
        layout.microbatch,
        layout.seq_len,
        if target.precision == Precision::F16 { "float16" } else { "bfloat16" },
        python(target.precision != Precision::F32),
        python(overlap.all_reduce),
        python(overlap.reduce_scatter),
        python(overlap.all_gather && z > 1),
    )
}
