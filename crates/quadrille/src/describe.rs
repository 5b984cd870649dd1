//! Models and layouts as documents and people see them.

use quadrille_spec::{
    Activation, Axis, Classic, Field, KeepWeights, Layout, Linear, Model, Norm, Positions, Recompute, Schedule, Zero,
};
use quadrille_step::StepProgram;
use serde_json::{Value, json};

use crate::output::decimal;

/// The fields of a layout as documents show them: panels where there are some.
pub fn layout_json(layout: &Layout) -> Value {
    let shown = Field::ALL.into_iter().filter(|field| *field != Field::SummaPanels || layout.linear == Linear::Summa);
    shown.map(|field| (field.key(), json!(field.of(layout)))).collect()
}

/// Model and layout in a few lines.
pub fn summary(program: &StepProgram) -> String {
    let (model, layout) = (&program.model, &program.layout);
    let rows = [
        ("model", Some(sizes(model))),
        ("layers", kinds(model)),
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
                "{} sequences of {} {} a step, {} microbatch(es) of {} per data rank",
                layout.global_batch,
                layout.seq_len,
                model.sequence_unit(),
                layout.microbatches(),
                layout.microbatch
            )),
        ),
        ("layout", Some(format!("{} activations, overlap {}, {}", layout.activations, layout.overlap, layout.dtype))),
        ("also", unusual(model, layout)),
    ];
    let told = rows.into_iter().filter_map(|(name, text)| Some(format!("{name:<8}{}\n", text?)));
    told.collect()
}

/// The model's sizes.
pub fn sizes(model: &Model) -> String {
    let Classic { name, layers, hidden, heads, kv_heads, ffn, .. } = model.classic();
    let keys = if kv_heads == heads { String::new() } else { format!(" sharing {kv_heads} keys") };
    let reads = match model.patch_values {
        None => format!("vocab {}", model.vocab),
        Some(values) => format!("patches of {values} numbers"),
    };
    let parameters = decimal(model.parameters() as f64, "");
    format!(
        "{name}: {layers} layers, hidden {hidden}, {heads} heads{keys}, ffn {ffn}, {reads}, {parameters} parameters"
    )
}

/// What the model is made of, where it is not what a GPT is made of.
fn kinds(model: &Model) -> Option<String> {
    let model = model.classic();
    let mut told = Vec::new();
    let mut tell = |differs: bool, text: &str| told.extend(differs.then(|| text.to_owned()));
    tell(model.norm == Norm::Rms, "RMS norms");
    tell(model.positions == Positions::Rotary, "rotary positions");
    tell(model.activation == Activation::Swiglu, "SwiGLU");
    tell(!model.causal, "attention without a mask");
    (!told.is_empty()).then(|| told.join(", "))
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
fn unusual(model: &Model, layout: &Layout) -> Option<String> {
    let mut told = Vec::new();
    let mut tell = |differs: bool, text: String| told.extend(differs.then_some(text));
    let copies = layout.kv_copies(&model.blocks.first().attention);
    tell(copies > 1, format!("every key on {copies} ranks of x"));
    tell(layout.linear == Linear::Summa, format!("SUMMA in {} panels", layout.summa_panels));
    tell(layout.recompute != Recompute::None, format!("recompute {}", layout.recompute));
    tell(layout.keep_communicated, "outputs of collectives kept".to_owned());
    tell(layout.zero != Zero::Off, format!("ZeRO {}", layout.zero));
    tell(layout.keep_weights == KeepWeights::Step, "gathered weights kept for the step".to_owned());
    tell(layout.overlap_chunks > 1, format!("{} overlap chunks", layout.overlap_chunks));
    (!told.is_empty()).then(|| told.join(", "))
}
