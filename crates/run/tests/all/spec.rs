//! What decides a run is read as it was written, and only if every word of it is known.

use proptest::prelude::*;
use quadrille_data::{Documents, Goldfish, InputFormat, SpecialTokens, TokenizerChoice};
use quadrille_engine::{DivergencePolicy, Hyper, LossScale, OnDivergence, OnSaveFailure};
use quadrille_run::{
    CheckpointSpec, CollectivesSpec, DataChanges, DataComparison, DataPath, DataSpec, HeldOut, LayoutSpec,
    OptimizerSpec, OutputSpec, RunChanges, RunSpec, StartSpec, StatesSpec, TuningSpec, ValidationSpec, Warmup,
};
use quadrille_spec::{
    Algorithm, Collectives, ElementType, Field, Layout, LayoutRequest, Model, Offload, Origin, Origins, Tier,
};
use serde_json::Value;

const LAYOUTS: [&str; 4] = ["x=2", "x=2,y=2,data=2", "pipe=2,data=2", "context=2,z=2"];

fn text() -> impl Strategy<Value = String> {
    "[a-z \"\\\\/é.]{1,12}"
}

fn number() -> impl Strategy<Value = f64> {
    any::<f64>().prop_filter("JSON has finite numbers", |number| number.is_finite())
}

fn layout(grid: &str, batch: usize) -> (Model, Layout) {
    let model = Model::gpt(4, 16, 4, 256, 32);
    let layout = Layout::new(&model, &LayoutRequest::new(grid.parse().unwrap(), 8 * batch)).unwrap();
    (model, layout)
}

fn layouts() -> impl Strategy<Value = (Model, LayoutSpec)> {
    let open = prop::sample::subsequence(LayoutSpec::MAY_FOLLOW.to_vec(), 0..=6);
    (prop::sample::select(LAYOUTS.to_vec()), 1..4_usize, open, text()).prop_map(|(grid, batch, open, cluster)| {
        let (model, layout) = layout(grid, batch);
        (model, LayoutSpec { layout, open, cluster })
    })
}

fn paths() -> impl Strategy<Value = Vec<DataPath>> {
    let path = (text(), prop::option::of(number())).prop_map(|(path, weight)| DataPath { path: path.into(), weight });
    prop::collection::vec(path, 0..3)
}

fn data() -> impl Strategy<Value = DataSpec> {
    let tokenizer = prop_oneof![
        Just(TokenizerChoice::Gpt2),
        Just(TokenizerChoice::Bytes),
        text().prop_map(|path| TokenizerChoice::File(path.into()))
    ];
    let held_out =
        prop_oneof![Just(HeldOut::Nothing), number().prop_map(HeldOut::Share), paths().prop_map(HeldOut::Files)];
    let goldfish = (2..9_u64, 1..20_usize, any::<u64>()).prop_map(|(k, h, seed)| Goldfish::new(k, h, seed).unwrap());
    let documents = prop::sample::select(vec![Documents::Packed, Documents::Respected]);
    let choices = (prop::option::of(tokenizer), text(), documents, held_out, prop::option::of(goldfish), text());
    (paths(), choices).prop_map(|(paths, (tokenizer, text_field, documents, held_out, goldfish, cache))| DataSpec {
        paths,
        tokenizer,
        text_field,
        format: if goldfish.is_some() { InputFormat::JsonLines } else { InputFormat::Auto },
        binary: goldfish.is_some(),
        skip_bad_lines: goldfish.is_some(),
        special: if goldfish.is_some() { SpecialTokens::NONE } else { SpecialTokens::default() },
        documents,
        held_out,
        goldfish,
        cache: cache.into(),
    })
}

fn optimizer() -> impl Strategy<Value = OptimizerSpec> {
    let warmup = prop_oneof![any::<u64>().prop_map(Warmup::Exactly), any::<u64>().prop_map(Warmup::AtMost)];
    ([number(), number(), number(), number(), number(), number()], warmup, prop::option::of(number())).prop_map(
        |([learning_rate, final_fraction, beta1, beta2, epsilon, weight_decay], warmup_steps, clip)| OptimizerSpec {
            learning_rate,
            final_fraction,
            warmup_steps,
            decay_steps: clip.map(|clip| clip.to_bits()),
            beta1,
            beta2,
            epsilon,
            weight_decay,
            clip,
        },
    )
}

fn collectives() -> impl Strategy<Value = CollectivesSpec> {
    let algorithm = prop::option::of(prop::sample::select(Algorithm::ALL.to_vec()));
    let tier =
        (text(), prop::option::of(1..9_usize), number(), number()).prop_map(|(name, devices, bandwidth, latency)| {
            let origins = Origins::all(["latency"], Origin::Measured);
            Tier { name, devices, links: 2, bandwidth, efficiency: 0.5, latency, half_bytes: 3.0, origins }
        });
    (algorithm, prop::collection::vec(tier, 0..3)).prop_map(|(algorithm, tiers)| CollectivesSpec {
        algorithm: algorithm.map_or(Collectives::Auto, Collectives::Always),
        tiers,
    })
}

/// Policies, files and limits.
fn others() -> impl Strategy<Value = RunSpec> {
    let tuning = prop_oneof![
        Just(TuningSpec::Off),
        Just(TuningSpec::Measure),
        text().prop_map(|path| TuningSpec::File(path.into()))
    ];
    let start = prop::option::of(text());
    let files = (prop::option::of(text()), prop::option::of(text()));
    let checkpoints = (prop::option::of(any::<u64>()), any::<usize>(), any::<bool>());
    let divergence = (any::<bool>(), prop::option::of(number()));
    let scale = prop_oneof![Just(LossScale::Auto), any::<u32>().prop_map(LossScale::Fixed)];
    let policies = (divergence, prop::option::of(scale));
    (tuning, start, files, checkpoints, policies, [any::<u64>(), any::<u64>()]).prop_map(
        |(
            tuning,
            start,
            (log, trace),
            (every, keep, goes_on),
            ((skips, largest_loss), loss_scale),
            [often, batches],
        )| {
            let (model, layout) = layout(LAYOUTS[0], 1);
            RunSpec {
                tuning,
                start: start.map_or(StartSpec::Drawn, |path| StartSpec::Parameters(path.into())),
                outputs: OutputSpec { log: log.map(Into::into), trace: trace.map(Into::into) },
                checkpoints: CheckpointSpec {
                    every,
                    keep,
                    on_failure: if goes_on { OnSaveFailure::Continue } else { OnSaveFailure::Stop },
                },
                divergence: DivergencePolicy {
                    action: if skips { OnDivergence::Skip } else { OnDivergence::Stop },
                    largest_loss,
                },
                loss_scale,
                validation: ValidationSpec { every: often, batches },
                ..RunSpec::new(model, layout)
            }
        },
    )
}

fn specs() -> impl Strategy<Value = RunSpec> {
    let limits = (any::<u64>(), any::<u64>(), prop::option::of(any::<usize>()), number());
    let offloaded = prop::option::of(prop::option::of(text()));
    (others(), layouts(), offloaded, data(), optimizer(), collectives(), limits).prop_map(
        |(others, (model, mut layout), offloaded, data, optimizer, collectives, (steps, seed, threads, timeout))| {
            layout.layout.offload = if offloaded.is_some() { Offload::Host } else { Offload::None };
            let states = offloaded.flatten().map_or(StatesSpec::Memory, |folder| StatesSpec::Files(folder.into()));
            RunSpec { model, layout, data, optimizer, collectives, states, steps, seed, threads, timeout, ..others }
        },
    )
}

/// Every object in a document, as the path to it.
fn objects(value: &Value, at: &str, found: &mut Vec<String>) {
    if let Value::Object(fields) = value {
        found.push(at.to_owned());
        fields.iter().for_each(|(key, value)| objects(value, &format!("{at}/{key}"), found));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn a_specification_is_read_as_it_is_written(spec in specs()) {
        let text = serde_json::to_string_pretty(&spec).unwrap();
        prop_assert_eq!(&serde_json::from_str::<RunSpec>(&text).unwrap(), &spec);
        // Also by way of a document, as `run.json` is read.
        let document = serde_json::to_value(&spec).unwrap();
        prop_assert_eq!(&serde_json::from_value::<RunSpec>(document).unwrap(), &spec);
    }

    #[test]
    fn no_changes_change_nothing(spec in specs()) {
        prop_assert_eq!(RunChanges::default().apply(spec.clone()), spec);
    }
}

fn usual() -> RunSpec {
    let (model, layout) = layout(LAYOUTS[1], 1);
    RunSpec::new(model, layout)
}

#[test]
fn what_is_not_known_is_refused_wherever_it_stands() {
    let document = serde_json::to_value(usual()).unwrap();
    let mut found = Vec::new();
    objects(&document, "", &mut found);
    assert!(found.len() > 8, "{found:?}");
    for at in found {
        let mut other = document.clone();
        other.pointer_mut(&at).unwrap()["unknown"] = 1.into();
        assert!(serde_json::from_value::<RunSpec>(other).is_err(), "{at} takes what is not known");
    }
}

#[test]
fn another_version_is_refused_by_its_number() {
    let text = serde_json::to_string(&usual()).unwrap();
    assert!(text.starts_with("{\"version\":2,"), "{text}");
    for version in [1, 3] {
        let other = text.replacen("\"version\":2,", &format!("\"version\":{version},\"more\":3,"), 1);
        let message = serde_json::from_str::<RunSpec>(&other).unwrap_err().to_string();
        let rule = format!("version {version} of what decides a run, and this program reads version 2");
        assert!(message.contains(&rule), "{message}");
    }
}

/// A specification of values in this type.
fn stored_in(dtype: ElementType) -> RunSpec {
    let (model, layout) = layout(LAYOUTS[1], 1);
    RunSpec::new(model, Layout { dtype, ..layout })
}

#[test]
fn the_scale_follows_from_the_type_where_nobody_says_it() {
    for dtype in [ElementType::F32, ElementType::F64, ElementType::Bf16] {
        assert_eq!(stored_in(dtype).loss_scale, None);
        let now = |layout| RunChanges { layout: Some(layout), ..RunChanges::default() };
        let narrower = now(stored_in(ElementType::F16).layout).apply(stored_in(dtype));
        assert_eq!(narrower.loss_scale, Some(LossScale::Auto));
        assert_eq!(now(stored_in(dtype).layout).apply(narrower).loss_scale, None);
        let said = RunChanges { loss_scale: Some(LossScale::Fixed(8)), ..RunChanges::default() };
        let message = said.apply(stored_in(dtype)).check().unwrap_err().to_string();
        let rule =
            format!("`loss_scale` 8: gradients in {dtype} keep their range; leave it out, or use `layout.choices");
        assert!(message.starts_with(&rule), "{message}");
    }
    let odd = RunSpec { loss_scale: Some(LossScale::Fixed(3)), ..stored_in(ElementType::F16) };
    let message = odd.check().unwrap_err().to_string();
    assert!(message.starts_with("`loss_scale` 3: it is auto, or a power of two"), "{message}");
}

/// What a program assumes where nothing is said may change: so everything is said.
#[test]
fn everything_that_is_usual_is_written_too() {
    let mut document = serde_json::to_value(usual()).unwrap();
    let RunSpec { layout, .. } = usual();
    for field in Field::ALL {
        let shown = document["layout"]["choices"].get(field.key()).is_some();
        let of_others = [Field::SummaPanels, Field::MicrobatchGroup, Field::Bucket, Field::OptimizerOverlap];
        let of_experts = [Field::ExpertsOver, Field::Dispatch, Field::ExpertRows];
        let is_there = !of_others.contains(&field) && !of_experts.contains(&field);
        assert_eq!(shown, is_there, "{} of {:?}", field.key(), layout.layout.grid);
    }
    let optional = ["clip", "every", "tokenizer", "goldfish", "threads", "largest_loss", "log", "trace"];
    let fields = ["steps", "seed", "timeout", "threads", "start", "tuning", "validation", "checkpoints", "divergence"];
    for field in fields.into_iter().filter(|field| !optional.contains(field)) {
        let removed = document.as_object_mut().unwrap().remove(field);
        assert!(removed.is_some() && serde_json::from_value::<RunSpec>(document.clone()).is_err(), "{field}");
        document[field] = removed.unwrap();
    }
    serde_json::from_value::<RunSpec>(document).unwrap();
}

#[test]
fn what_is_said_replaces_what_was_and_leaves_all_else() {
    let before = RunSpec { data: DataSpec { held_out: HeldOut::Share(0.1), ..DataSpec::default() }, ..usual() };
    let files = HeldOut::Files(vec![DataPath { path: "held".into(), weight: None }]);
    let data = DataChanges { held_out: Some(files.clone()), ..DataChanges::default() };
    assert_eq!(data.comparison(&before.data), DataComparison::Nothing);
    let of = |data: DataChanges| data.comparison(&before.data);
    let usual = || DataChanges::default();
    assert_eq!(of(DataChanges { cache: Some("c".into()), ..usual() }), DataComparison::Samples);
    // The value that it has changes nothing.
    assert_eq!(
        of(DataChanges { text_field: Some(before.data.text_field.clone()), ..usual() }),
        DataComparison::Samples
    );
    assert_eq!(of(DataChanges { text_field: Some("body".to_owned()), ..usual() }), DataComparison::Files);
    assert_eq!(of(DataChanges { parse_special: Some(true), ..usual() }), DataComparison::Files);
    let changes = RunChanges { data, seed: Some(9), keep: Some(7), ..RunChanges::default() };
    let mut expected = RunSpec { seed: 9, ..before.clone() };
    expected.data.held_out = files;
    expected.checkpoints.keep = 7;
    assert_eq!(changes.apply(before), expected);
}

#[test]
fn values_that_no_run_has_are_refused_by_their_names() {
    usual().check().unwrap();
    let optimizer = OptimizerSpec { warmup_steps: Warmup::Exactly(401), ..Hyper::default().into() };
    let weighted = vec![DataPath { path: "a".into(), weight: Some(0.0) }];
    for (spec, words) in [
        (RunSpec { steps: 0, ..usual() }, "`steps` 0: train at least one step"),
        (RunSpec { timeout: 0.0, ..usual() }, "`timeout` 0: give a positive number of seconds"),
        (RunSpec { optimizer, ..usual() }, "warmup_steps = 401: it must be at most the number of steps, 400"),
        (
            RunSpec { divergence: DivergencePolicy { largest_loss: Some(1.0), ..Default::default() }, ..usual() },
            "`divergence.largest_loss` 1: it is a multiple of the usual loss, above 1",
        ),
        (
            RunSpec { checkpoints: CheckpointSpec { keep: 0, ..CheckpointSpec::default() }, ..usual() },
            "`checkpoints.keep` 0: it is a whole number of at least 1",
        ),
        (
            RunSpec { data: DataSpec { paths: weighted, ..DataSpec::default() }, ..usual() },
            "`data.paths`: the weight 0 of a is not a positive number",
        ),
    ] {
        let message = spec.check().unwrap_err().to_string();
        assert!(message.starts_with(words), "{message}");
    }
}
