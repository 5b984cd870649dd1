//! Models and layouts in a few lines.

use quadrille_cost::native::Framework;
use quadrille_run::Prepared;
use quadrille_run::units::decimal;
use quadrille_spec::{
    Activation, Axis, AxisOrder, Block, Dispatch, Experts, FeedForward, Grid, KeepWeights, Layout, Linear, Model, Norm,
    NormPlace, NormedOver, Offload, Recompute, ResidualOrder, RotaryScaling, Schedule, Zero, counted,
};
use quadrille_step::{Parameter, StageProgram, StepProgram};

use crate::candidate::layout_notation;
use crate::sources;

/// What a run that is ready to begin will train, on what, and from where.
pub fn announcement(run: &Prepared) -> String {
    let source = run.source();
    let mut text = summary(&run.program);
    if let Some(device) = run.device() {
        text += &format!("{:<8}{device}\n", "device");
    }
    text += &sources::text(&source.overviews(), source.tokenizer().as_deref());
    let epochs = source.epochs(run.spec().steps * run.program.layout.global_batch as u64);
    if !epochs.is_empty() {
        let each: Vec<String> = epochs.iter().map(|epochs| format!("{epochs:.2}")).collect();
        text += &format!("{:<8}{} in {}\n", "epochs", each.join(", "), counted(run.spec().steps as usize, "step"));
    }
    if let Some((floor, about)) = source.floor() {
        text += &format!("{:<8}{floor:.4} {about}\n", "floor");
    }
    if let Some(samples) = source.validation_samples() {
        let samples = samples.map_or("endless".to_owned(), |samples| samples.to_string());
        text += &format!("{:<8}{samples} samples are kept apart for validation\n", "eval");
    }
    if let Some(checkpoint) = run.checkpoint() {
        text += &format!("{:<8}{}\n", "from", checkpoint.path().display());
    }
    text
}

/// Model and layout in a few lines, as this program's engine runs it.
pub fn summary(program: &StepProgram) -> String {
    summary_by(program, &Framework::QUADRILLE.in_types_of(&program.layout))
}

/// The same as a framework runs it.
pub fn summary_by(program: &StepProgram, framework: &Framework) -> String {
    let model = &program.model;
    let layout = &program.layout;
    let rows = [
        ("model", Some(sizes(model))),
        ("layers", kinds(model)),
        (
            "grid",
            Some(format!(
                "{} ({}{}, {} per node)",
                layout.grid.short(),
                counted(layout.grid.ranks(), "rank"),
                order(&layout.grid, framework),
                layout.per_node
            )),
        ),
        ("stages", stages(layout)),
        (
            "batch",
            Some(format!(
                "{} sequences of {} {} a step, {} of {} per data rank",
                layout.global_batch,
                layout.seq_len,
                model.sequence_unit(),
                counted(layout.microbatches(), "microbatch"),
                layout.microbatch
            )),
        ),
        (
            "layout",
            Some(format!(
                "{}, {} activations, overlap {}, {}",
                layout_notation(layout),
                layout.activations,
                layout.overlap,
                numbers(framework)
            )),
        ),
        ("also", unusual(model, layout)),
        ("pruned", pruned(program)),
    ];
    let told = rows.into_iter().filter_map(|(name, text)| Some(format!("{name:<8}{}\n", text?)));
    told.collect()
}

/// What values are stored in, and of other frameworks than this program's engine by which.
pub fn numbers(framework: &Framework) -> String {
    let products = framework.numbers.products.map_or(String::new(), |format| format!(" with products in {format}"));
    let whose = if framework.is_own() { String::new() } else { format!(", by {}", framework.name) };
    format!("{}{products}{whose}", framework.dtype)
}

/// The order of the axes of several ranks, if there are some, and whose usual order it is.
fn order(grid: &Grid, framework: &Framework) -> String {
    let several = |order: AxisOrder| -> Vec<&str> {
        order.axes().into_iter().filter(|axis| grid.size(*axis) > 1).map(Axis::name).collect()
    };
    let named = several(grid.order());
    let whose = if named == several(framework.order()) { format!("{}'s ", framework.name) } else { String::new() };
    if named.len() > 1 { format!(", {whose}order {}", named.join(",")) } else { String::new() }
}

/// How much ranks hold of pruned tensors.
fn pruned(program: &StepProgram) -> Option<String> {
    let tensors = program.parameters().filter(|(_, parameter)| parameter.compressed.is_some());
    let elements = |(stage, parameter): (&StageProgram, &Parameter)| {
        let kept = parameter.compressed.map_or(0, |kept| stage.value(kept).local_elements);
        [stage.value(parameter.value).local_elements, kept]
    };
    let [all, kept] = tensors.map(elements).fold([0, 0], |sum, more| [sum[0] + more[0], sum[1] + more[1]]);
    let part = 100.0 * kept as f64 / all as f64;
    (all > 0).then(|| format!("room for {part:.1}% of the weights that are pruned, on each rank"))
}

/// The model's sizes; where blocks differ, each of theirs.
pub fn sizes(model: &Model) -> String {
    let name = &model.name;
    let layers = model.layers();
    let hidden = model.hidden;
    let of_blocks = |size: &dyn Fn(&Block) -> usize| each(model, &|block| size(block).to_string());
    let heads = of_blocks(&|block| block.attention.heads);
    let grouped = model.blocks.kinds().iter().any(|block| block.attention.kv_heads != block.attention.heads);
    let keys = of_blocks(&|block| block.attention.kv_heads);
    let keys = if grouped { format!(" sharing {keys} keys") } else { String::new() };
    let apart = model.blocks.kinds().iter().any(|block| block.attention.queries_width() != hidden);
    let width = of_blocks(&|block| block.attention.head_dim);
    let width = if apart { format!(" of {width} numbers") } else { String::new() };
    let own = model.blocks.kinds().iter().any(|block| block.attention.value_dim != block.attention.head_dim);
    let values = of_blocks(&|block| block.attention.value_dim);
    let values = if own { format!(", values of {values}") } else { String::new() };
    let ffn = each(model, &|block| feed_forward(&block.feed_forward));
    let reads = match model.patch_values {
        None => format!("vocab {}", model.vocab),
        Some(values) => format!("patches of {values} numbers"),
    };
    let all = model.parameters();
    let active = model.active_parameters();
    let [parameters, of_token] = [all, active].map(|count| decimal(count as f64, ""));
    let of_token = if active == all { String::new() } else { format!(", {of_token} for a token") };
    format!(
        "{name}: {layers} layers, hidden {hidden}, {heads} heads{width}{keys}{values}, ffn {ffn}, {reads}, {parameters} parameters{of_token}"
    )
}

/// The width of a perceptron, or of experts with how many a token chooses.
fn feed_forward(feed_forward: &FeedForward) -> String {
    match feed_forward {
        FeedForward::Dense(perceptron) => perceptron.width.to_string(),
        FeedForward::Experts(Experts { count, per_token, expert, shared, router, .. }) => {
            let groups = router.groups.map(|groups| format!(" in {} of {} groups", groups.chosen, groups.count));
            let shared = shared.map_or(String::new(), |shared| format!(" and a shared one of {}", shared.width));
            format!("{per_token} of {count} experts of {}{}{shared}", expert.width, groups.unwrap_or_default())
        }
    }
}

/// What a property is in the blocks of a model: `8`, or `8 or 4`.
fn each(model: &Model, of: &dyn Fn(&Block) -> String) -> String {
    let mut all: Vec<String> = Vec::new();
    for block in model.blocks.kinds() {
        let one = of(block);
        if !all.contains(&one) {
            all.push(one);
        }
    }
    all.join(" or ")
}

/// What the model is made of, where it is not what a GPT is made of; with "in part" what only some blocks have.
fn kinds(model: &Model) -> Option<String> {
    let blocks = model.blocks.kinds();
    let mut told = Vec::new();
    let mut tell = |has: &dyn Fn(&Block) -> bool, text: &str| match blocks.iter().filter(|block| has(block)).count() {
        0 => {}
        count if count == blocks.len() => told.push(text.to_owned()),
        _ => told.push(format!("{text} in part")),
    };
    if model.embedding_scale != 1.0 {
        tell(&|_| true, "scaled embeddings");
    }
    if model.logit_cap.is_some() {
        tell(&|_| true, "capped logits");
    }
    tell(&|block| block.norm.kind == Norm::Rms, "RMS norms");
    tell(&|block| block.norm.offset, "gammas as distances from 1");
    tell(&|block| block.norm_place == NormPlace::After, "norms after");
    tell(&|block| block.norm_place == NormPlace::Both, "norms before and after");
    tell(&|block| block.residual.order == ResidualOrder::Parallel, "attention beside perceptron");
    tell(&|block| block.residual.scale != 1.0, "scaled residuals");
    tell(&|block| block.attention.rotary.is_some(), "rotary positions");
    tell(
        &|block| block.attention.rotary.is_some_and(|it| it.columns != block.attention.head_dim),
        "partly turned heads",
    );
    tell(&|block| block.attention.rotary.is_some_and(|it| it.scaling != RotaryScaling::None), "scaled frequencies");
    tell(&|block| block.attention.latent.is_some(), "latent attention");
    let normed = |block: &Block| block.attention.qk_norm.map(|norm| norm.over);
    tell(&|block| normed(block) == Some(NormedOver::Head), "norms of queries and keys");
    tell(&|block| normed(block) == Some(NormedOver::AllHeads), "norms of all queries and all keys");
    tell(&|block| block.attention.window.is_some(), "windows");
    tell(&|block| block.attention.score_scale != 1.0, "scaled scores");
    tell(&|block| block.attention.cap.is_some(), "capped scores");
    for (name, activation) in Activation::ALL.into_iter().filter(|(_, activation)| *activation != Activation::Gelu) {
        let text = if activation == Activation::Swiglu { "SwiGLU" } else { name };
        tell(&|block| block.feed_forward.activation() == activation, text);
    }
    tell(&|block| !block.attention.causal, "attention without a mask");
    (!told.is_empty()).then(|| told.join(", "))
}

/// The pipeline, where there is one.
fn stages(layout: &Layout) -> Option<String> {
    let stages = layout.grid.size(Axis::Pipe);
    let blocks = layout.stage_blocks.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let chunks = match layout.schedule {
        Schedule::Interleaved => {
            let [chunks, group] = [(layout.chunks, "chunk"), (layout.microbatch_group, "microbatch")]
                .map(|(number, name)| counted(number, name));
            format!(", {chunks} each, groups of {group}")
        }
        _ => String::new(),
    };
    (stages > 1).then(|| format!("{stages}, {}{chunks}, pieces of {blocks} blocks", layout.schedule))
}

/// Choices that differ from what a layout has unless asked otherwise.
fn unusual(model: &Model, layout: &Layout) -> Option<String> {
    let mut told = Vec::new();
    let mut tell = |differs: bool, text: String| told.extend(differs.then_some(text));
    let copied = model.blocks.kinds().iter().any(|block| layout.kv_copies(&block.attention) > 1);
    let copies = each(model, &|block| layout.kv_copies(&block.attention).to_string());
    tell(copied, format!("every key on {copies} ranks of x"));
    let spread = !layout.experts_over.is_empty() || model.has_experts() && layout.grid.size(Axis::Expert) > 1;
    tell(spread, format!("experts over {}", layout.experts_over));
    let mut kinds = model.blocks.kinds().iter().filter_map(|block| block.feed_forward.experts());
    let dropless = kinds.any(|experts| experts.capacity.is_none());
    tell(spread && dropless, "their loads taken to be equal".to_owned());
    tell(layout.expert_rows > 0, format!("room for {} times as many rows", layout.expert_rows));
    tell(
        layout.vocab_multiple > 1 && layout.padded_vocab(model) > model.vocab,
        format!("the vocabulary padded to {}", layout.padded_vocab(model)),
    );
    tell(layout.dispatch == Dispatch::Duplicated, "tokens duplicated".to_owned());
    tell(layout.linear == Linear::Summa, format!("SUMMA in {} panels", layout.summa_panels));
    tell(layout.recompute != Recompute::None, format!("recompute {}", layout.recompute));
    tell(layout.keep_communicated, "outputs of collectives kept".to_owned());
    tell(layout.zero != Zero::Off, format!("ZeRO {}", layout.zero));
    tell(layout.keep_weights == KeepWeights::Step, "gathered weights kept for the step".to_owned());
    tell(
        layout.offload != Offload::None,
        format!("optimizer states outside the device, buckets of {} elements", layout.bucket),
    );
    tell(layout.optimizer_overlap, "buckets updated while gradients are reduced".to_owned());
    tell(layout.overlap_chunks > 1, format!("{} overlap chunks", layout.overlap_chunks));
    (!told.is_empty()).then(|| told.join(", "))
}
