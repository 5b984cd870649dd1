//! Models and layouts as documents and people see them.

use quadrille_spec::{Axis, KeepWeights, Layout, Linear, Recompute, Schedule, Zero};
use quadrille_step::StepProgram;
use serde_json::{Value, json};

use crate::output::decimal;

/// The fields of a layout as documents show them.
pub fn layout_json(layout: &Layout) -> Value {
    let mut fields = json!({
        "grid": layout.grid.to_string(),
        "order": layout.grid.order().to_string(),
        "per_node": layout.per_node,
        "activations": layout.activations,
        "linear": layout.linear,
        "schedule": layout.schedule,
        "chunks": layout.chunks,
        "microbatch_group": layout.microbatch_group,
        "stage_blocks": layout.stage_blocks,
        "recompute": layout.recompute.to_string(),
        "cac": layout.keep_communicated,
        "zero": layout.zero as usize,
        "keep_weights": layout.keep_weights,
        "overlap": layout.overlap.to_string(),
        "overlap_chunks": layout.overlap_chunks,
        "global_batch": layout.global_batch,
        "microbatch": layout.microbatch,
        "seq_len": layout.seq_len,
        "dtype": layout.dtype,
    });
    if layout.linear == Linear::Summa {
        fields["summa_panels"] = json!(layout.summa_panels);
    }
    fields
}

/// Model and layout in a few lines.
pub fn summary(program: &StepProgram) -> String {
    let (model, layout) = (&program.model, &program.layout);
    let rows = [
        (
            "model",
            Some(format!(
                "{}: {} layers, hidden {}, {} heads, ffn {}, vocab {}, {} parameters",
                model.name,
                model.layers,
                model.hidden,
                model.heads,
                model.ffn,
                model.vocab,
                decimal(model.parameters() as f64, "")
            )),
        ),
        (
            "grid",
            Some(format!(
                "{} ({} ranks, order {}, {} per node)",
                layout.grid,
                layout.grid.ranks(),
                layout.grid.order(),
                layout.per_node
            )),
        ),
        ("stages", stages(layout)),
        (
            "batch",
            Some(format!(
                "{} sequences of {} tokens a step, {} microbatch(es) of {} per data rank",
                layout.global_batch,
                layout.seq_len,
                layout.microbatches(),
                layout.microbatch
            )),
        ),
        ("layout", Some(format!("{} activations, overlap {}, {}", layout.activations, layout.overlap, layout.dtype))),
        ("also", unusual(layout)),
    ];
    let told = rows.into_iter().filter_map(|(name, text)| Some(format!("{name:<8}{}\n", text?)));
    told.collect()
}

/// The pipeline, where there is one.
fn stages(layout: &Layout) -> Option<String> {
    let stages = layout.grid.size(Axis::Pipe);
    let blocks = layout.stage_blocks.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let chunks = match layout.schedule {
        Schedule::Interleaved => {
            format!(", {} chunk(s) each, groups of {} microbatches", layout.chunks, layout.microbatch_group)
        }
        _ => String::new(),
    };
    (stages > 1).then(|| format!("{stages}, {}{chunks}, pieces of {blocks} blocks", layout.schedule))
}

/// Choices that differ from what a layout has unless asked otherwise.
fn unusual(layout: &Layout) -> Option<String> {
    let mut told = Vec::new();
    let mut tell = |differs: bool, text: String| told.extend(differs.then_some(text));
    tell(layout.linear == Linear::Summa, format!("SUMMA in {} panels", layout.summa_panels));
    tell(layout.recompute != Recompute::None, format!("recompute {}", layout.recompute));
    tell(layout.keep_communicated, "outputs of collectives kept".to_owned());
    tell(layout.zero != Zero::Off, format!("ZeRO {}", layout.zero));
    tell(layout.keep_weights == KeepWeights::Step, "gathered weights kept for the step".to_owned());
    tell(layout.overlap_chunks > 1, format!("{} overlap chunks", layout.overlap_chunks));
    (!told.is_empty()).then(|| told.join(", "))
}
