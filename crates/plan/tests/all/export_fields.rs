//! No field of a layout file is dropped: another value changes the exported text, or a part that it names.

use proptest::prelude::*;
use proptest::sample::{Index, select};
use quadrille_plan::export::{Framework, export};
use quadrille_spec::{
    Activations, Axis, Field, FieldValue, Grid, Layout, LayoutFile, LayoutRequest, Model, Overlap, Schedule, Zero,
};

use crate::export::TARGET;

/// Values of a field that a file may have instead.
fn others(field: Field) -> Vec<FieldValue> {
    let names: &[&str] = match field {
        Field::Activations => &["scattered", "replicated"],
        Field::Linear => &["pmm", "summa"],
        Field::Schedule => &["gpipe", "1f1b", "interleaved", "zb-h1", "message-driven"],
        Field::Recompute => &["none", "selective", "full", "full:2"],
        Field::Cac => &["false", "true"],
        Field::Zero => &["0", "1", "2"],
        Field::KeepWeights => &["use", "step"],
        Field::Overlap => &["all", "none", "oar,ors,oag", "ors,oag,oaa", "oar,oag,oaa", "oar,ors,oaa"],
        Field::Offload => &["none", "host"],
        Field::ExpertsOver => &["expert", "x,expert", "none"],
        Field::Dispatch => &["dropped", "duplicated"],
        Field::Chunks | Field::OverlapChunks => &["1", "2"],
        Field::MicrobatchGroup => &["2", "4"],
        Field::Microbatch => &["1", "2", "4"],
        Field::GlobalBatch => &["32", "64"],
        Field::SeqLen => &["32", "64"],
        Field::VocabMultiple => &["1", "128"],
        Field::ExpertRows => &["0", "3"],
        Field::StageBlocks => &["3,5", "2,2,2,2", "1,2,2,3"],
        Field::Order => &["x,y,z,data", "data,x,y,z", "x,y,context,pipe,z,data", "z,x,y,data"],
        Field::Gradients => &["f32", "bf16"],
        Field::Dtype => &["f32", "f16", "f64"],
        // Sizes are other ranks; nodes are those of the target; panels and buckets go with what is named.
        Field::Grid | Field::PerNode | Field::SummaPanels | Field::Bucket | Field::OptimizerOverlap => &[],
    };
    names.iter().filter_map(|name| field.parse(name).ok()).collect()
}

/// True if the layout has something that the field decides.
fn is_used(layout: &Layout, field: Field) -> bool {
    let size = |axis| layout.grid.size(axis);
    let cut = size(Axis::X) * size(Axis::Y) > 1;
    match field {
        Field::Activations | Field::Linear => cut,
        Field::ExpertsOver => cut || size(Axis::Expert) > 1,
        Field::Dispatch => {
            let replicated = layout.activations == Activations::Replicated;
            cut && replicated && layout.grid.size_of(layout.experts_over) > 1
        }
        Field::Chunks | Field::StageBlocks => size(Axis::Pipe) > 1,
        // One chunk in groups is 1F1B.
        Field::Schedule => size(Axis::Pipe) > 1 && layout.schedule != Schedule::Interleaved,
        Field::MicrobatchGroup => layout.chunks > 1,
        // Beside z all shards of the states are named with the axes over which they lie.
        Field::Zero => size(Axis::Z) == 1 && size(Axis::Data) * size(Axis::Context) > 1,
        Field::KeepWeights => size(Axis::Z) > 1 && layout.microbatches() > 1,
        _ => true,
    }
}

/// True if another value of the field makes another program or other ranks.
fn differ(framework: Framework, layout: &Layout, other: &Layout, field: Field, vocab: usize) -> bool {
    let used = is_used(layout, field) && is_used(other, field);
    let changed = field.of(layout) != field.of(other);
    used && changed
        && match field {
            Field::Overlap => overlaps_differ(framework, layout, other),
            Field::Order => axes_in_use(layout) != axes_in_use(other),
            Field::VocabMultiple => padded(layout, vocab) != padded(other, vocab),
            _ => true,
        }
}

/// True if an overlap pass that has collectives to hide is on in one layout alone.
fn overlaps_differ(framework: Framework, layout: &Layout, other: &Layout) -> bool {
    let size = |axis| layout.grid.size(axis);
    let replicas = layout.grid.batch_shares() * size(Axis::Context);
    let on = |layout: &Layout| {
        let Overlap { all_reduce, reduce_scatter, all_gather, all_to_all } = layout.overlap;
        [
            all_reduce && size(Axis::X) * size(Axis::Y) > 1,
            reduce_scatter && size(Axis::Z) * replicas > 1,
            // AxoNN has no ZeRO, which is named: nothing is gathered.
            all_gather
                && (size(Axis::Z) > 1 || replicas > 1 && layout.zero != Zero::Off && framework != Framework::Axonn),
            all_to_all && layout.grid.size_of(layout.experts_over) > 1,
        ]
    };
    on(layout) != on(other)
}

fn axes_in_use(layout: &Layout) -> Vec<Axis> {
    layout.grid.order().axes().into_iter().filter(|axis| layout.grid.size(*axis) > 1).collect()
}

fn padded(layout: &Layout, vocab: usize) -> usize {
    vocab.next_multiple_of(layout.grid.size(Axis::X) * layout.grid.size(Axis::Y) * layout.vocab_multiple)
}

fn small(mixture: bool) -> Model {
    let set = |preset: &str, fields: &[(&str, &str)]| {
        let fields: Vec<_> = fields.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        Model::from_toml(Model::preset_text(preset).unwrap(), &fields).unwrap()
    };
    let sizes = [("hidden", "64"), ("heads", "8"), ("kv_heads", "8"), ("ffn", "64"), ("seq_len", "64")];
    if mixture {
        set("mixtral-8x7b", &[&[("layers", "8"), ("vocab", "500")], &sizes[..]].concat())
    } else {
        set("llama-tiny", &[("layers", "8")])
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20000))]

    #[test]
    fn no_field_is_dropped(
        ranks in select(vec![2_usize, 4, 8, 16]), pick in any::<Index>(), mixture in any::<bool>(),
        [first, second] in any::<[Index; 2]>(), values in any::<[Index; 2]>(), replicated in any::<bool>(),
    ) {
        let model = small(mixture);
        let grids = Grid::all_over(ranks, Axis::ALL.into_iter().collect());
        let grid = grids[pick.index(grids.len())];
        let activations = if replicated { Activations::Replicated } else { Activations::Scattered };
        let request = LayoutRequest { activations, microbatch: Some(4), ..LayoutRequest::new(grid, 32) };
        let Ok(layout) = Layout::new(&model, &request) else { return Ok(()) };
        let with = |file: LayoutFile, pick: Index, value: Index| {
            let field = Field::ALL[pick.index(Field::ALL.len())];
            let values = others(field);
            // Pieces and groups follow from the others, unless they are what is changed.
            let file = file.without(Field::StageBlocks).without(Field::MicrobatchGroup);
            (field, if values.is_empty() { file } else { file.with(field, values[value.index(values.len())].clone()) })
        };
        let (_, before) = with(LayoutFile::of(&layout), first, values[0]);
        let (field, after) = with(before.clone(), second, values[1]);
        let (Ok(layout), Ok(other)) = (before.validate(&model), after.validate(&model)) else { return Ok(()) };
        for (name, framework) in Framework::ALL {
            if differ(framework, &layout, &other, field, model.vocab) {
                let [one, another] = [&layout, &other].map(|layout| export(framework, &model, layout, &TARGET));
                if let (Ok(one), Ok(another)) = (one, another) {
                    prop_assert_ne!(one, another, "{} drops {} of {}", name, field.name(), layout.grid);
                }
            }
        }
    }
}
