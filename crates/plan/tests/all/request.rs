//! Plan requests as files and bodies have them.

use proptest::option::of;
use proptest::prelude::*;
use proptest::sample::select;
use quadrille_plan::native::{Assignments, ClusterSource, ModelSource, PlanRequest, Reserve};
use quadrille_spec::{Cluster, ElementType, Imbalance, MeasuredLoads, Model};

fn model() -> impl Strategy<Value = ModelSource> {
    let configuration = serde_json::from_str(include_str!("../../../spec/tests/data/hugging_face/gemma-2-2b.json"));
    select(vec![
        ModelSource::from("llama2-7b"),
        ModelSource::from(&Model::preset("mixtral-8x7b").unwrap()),
        ModelSource::HuggingFace(configuration.unwrap()),
    ])
}

fn cluster() -> impl Strategy<Value = ClusterSource> {
    let described = Cluster::preset("gb200-nvl72").unwrap();
    select(vec![ClusterSource::from("dgx-h100"), ClusterSource::from(&described)])
}

fn assignments(keys: &'static [&'static str]) -> impl Strategy<Value = Assignments> {
    let pair = (select(keys.to_vec()), 1_usize..100);
    proptest::collection::btree_map(pair.0, pair.1, 0..3).prop_map(|pairs| {
        let mut assignments = Assignments::default();
        pairs.into_iter().for_each(|(key, value)| assignments.push(key, value.to_string()));
        assignments
    })
}

fn imbalance() -> impl Strategy<Value = Imbalance> {
    let measured = Imbalance::Measured(MeasuredLoads::new(&[&[3, 1, 0, 4], &[1, 1, 1, 2]]).unwrap());
    prop_oneof![(1.0..4.0).prop_map(Imbalance::Times), Just(measured)]
}

/// Reserves of hundredths of a per cent, or of bytes.
fn reserve() -> impl Strategy<Value = Reserve> {
    let part = |hundredths: u32| f64::from(hundredths) / 100.0 / 100.0;
    prop_oneof![
        (0_u32..10_000).prop_map(move |hundredths| Reserve::Fraction(part(hundredths))),
        (5_000_u32..10_000).prop_map(move |hundredths| Reserve::Runs(part(hundredths))),
        any::<u32>().prop_map(|bytes| Reserve::Bytes(bytes.into())),
    ]
}

prop_compose! {
    fn choices()(
        batch in of(select(vec!["512", "4M", "4194304 tokens"])), seq_len in of(select(vec!["4096", "8k"])),
        schedule in of(select(vec!["1f1b", "interleaved"])), cac in of(select(vec!["true", "false"])),
        zero in of(select(vec!["0", "1"])), overlap in of(select(vec!["all", "oar,ors"])), per_node in of(select(vec!["4", "8"])),
    ) -> Vec<(&'static str, &'static str)> {
        let named = [("global_batch", batch), ("seq_len", seq_len), ("schedule", schedule), ("cac", cac), ("zero", zero),
            ("overlap", overlap), ("per_node", per_node)];
        named.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }
}

prop_compose! {
    fn budget()(
        tokens in of(1e9..1e13), price_per_hour in of(0.1..10.0), currency in of(select(vec!["USD", "EUR"])),
        days in of(1.0..100.0), goodput in any::<bool>(), mtbf in of(1e3..1e6), checkpoint_bandwidth in of(1e6..1e10),
        checkpoint_seconds in of(1.0..100.0), restart_seconds in of(1.0..1e4),
    ) -> PlanRequest {
        let currency = currency.map(|currency| currency.parse().unwrap());
        PlanRequest {
            tokens, price_per_hour, currency, days, goodput, mtbf, checkpoint_bandwidth, checkpoint_seconds, restart_seconds,
            ..PlanRequest::default()
        }
    }
}

prop_compose! {
    fn requests()(
        budget in budget(), choices in choices(), model in of(model()), cluster in of(cluster()),
        set in assignments(&["layers", "hidden"]), fix in assignments(&["x", "data", "microbatch"]),
        max in assignments(&["x", "pipe"]), min in assignments(&["y"]), imbalance in of(imbalance()),
        gpus in select(vec![vec![], vec![8], vec![8, 16, 64]]), nvs in of(1_usize..64),
        framework in of(select(vec!["megatron", "fsdp"])), dtype in of(select(vec![ElementType::F32, ElementType::Bf16])),
        sparsity in of(select(vec!["0.9", "0.05"])), products in of(select(vec!["fp8", "nvfp4"])), moments in of(select(vec!["bf16"])),
        reserve in of(reserve()),
        flags in any::<[bool; 5]>(), top in of(1_usize..100), tolerance in of(0.0..10.0), search_limit in of(any::<u64>()),
        convention in of(select(vec!["native", "megatron"])),
    ) -> PlanRequest {
        let [any_layout, variants, pareto, exotic, explain] = flags;
        let request = PlanRequest {
            model, set, cluster, gpus, nvs, imbalance, fix, max, min, search_limit, top, tolerance, dtype,
            framework: framework.map(str::to_owned), sparsity: sparsity.map(|text| text.parse().unwrap()),
            products: products.map(|text| text.parse().unwrap()), moments: moments.map(|text| text.parse().unwrap()),
            memory_reserve: reserve, flops_convention: convention.map(|text| text.parse().unwrap()),
            any_layout, variants, pareto, exotic, explain, ..budget
        };
        choices.into_iter().fold(request, |request, (option, value)| request.with(option, value).unwrap())
    }
}

proptest! {
    #[test]
    fn requests_are_read_as_they_are_written(request in requests(), other in requests()) {
        let json = request.to_json().unwrap();
        prop_assert_eq!(&PlanRequest::from_json(&json).unwrap(), &request, "{}", json);
        // A patch replaces the fields that it has.
        prop_assert_eq!(&request.over(&PlanRequest::default()).unwrap(), &request);
        prop_assert_eq!(&PlanRequest::default().over(&request).unwrap(), &request);
        let merged = other.over(&request).unwrap();
        prop_assert_eq!(merged.tokens, other.tokens.or(request.tokens));
        prop_assert_eq!(merged.explain, other.explain || request.explain);
    }
}

#[test]
fn files_have_the_names_of_options_and_numbers_as_text() {
    let toml = "model = 'llama3-8b'\ncluster = 'dgx-h100'\nnodes = '2..8'\nglobal_batch = '4M'\nseq_len = '8k'\ntokens = '15T'\n\
                schedule = 'interleaved'\ncac = true\nmemory_reserve = '5%'\ntolerance = '5%'\nproducts = 'fp8'\n\
                fix = { x = 8, overlap = 'oar+ors' }\nmax = ['pipe=4']\n[layout]\nmicrobatch = 2\n";
    let request = PlanRequest::from_toml(toml).unwrap();
    assert_eq!(
        (request.nodes.as_slice(), request.tokens, request.tolerance),
        (&[2, 4, 8][..], Some(15e12), Some(0.05))
    );
    let json = r#"{"version": 1, "model": "llama3-8b", "cluster": "dgx-h100", "nodes": [2, "4", 8], "global_batch": "4194304 tokens",
        "seq_len": 8192, "tokens": 15e12, "schedule": "interleaved", "cac": "true", "memory_reserve": "5%", "tolerance": 0.05,
        "products": "fp8", "fix": {"overlap": "oar+ors", "x": "8"}, "max": {"pipe": 4}, "layout": {"microbatch": 2}}"#;
    assert_eq!(PlanRequest::from_json(json).unwrap(), request);
    let question = request.question().unwrap();
    assert_eq!((question.devices, question.global_batch, question.seq_len), (64, 512, 8192));
}

#[test]
fn fields_that_are_none_are_named() {
    for (json, parts) in [
        (r#"{"gpu": 8}"#, &["unknown field `gpu`"][..]),
        (r#"{"gpus": "many"}"#, &["gpus", "many"]),
        (r#"{"gpus": [8, -1]}"#, &["gpus", "-1"]),
        (r#"{"top": "ten"}"#, &["top", "ten"]),
        (r#"{"tokens": "15TB"}"#, &["tokens", "300B or 15T"]),
        (r#"{"products": "int8"}"#, &["products", "fp8"]),
        (r#"{"memory_reserve": "5"}"#, &["memory_reserve", "512MiB"]),
        (r#"{"global_batch": "7x"}"#, &["global_batch", "7x"]),
        (r#"{"cac": "maybe"}"#, &["cac", "maybe"]),
        (r#"{"fix": {"x": [1]}}"#, &["fix"]),
        (r#"{"model": {"hugging_face": {}, "layers": 2}}"#, &["hugging_face", "other fields"]),
        (r#"{"model": {"hugging_face": null}}"#, &["hugging_face is null", "object of a config.json"]),
        (r#"{"model": {"layers": 2}}"#, &["missing field"]),
        (r#"{"cluster": {"name": "own"}}"#, &["cluster", "missing field"]),
        (r#"{"version": 1} {}"#, &["trailing"]),
        ("gpus = 8", &["expected"]),
    ] {
        let message = PlanRequest::from_json(json).unwrap_err().to_string();
        assert!(parts.iter().all(|part| message.contains(part)), "{json}: {message}");
    }
}

#[test]
fn rules_of_requests_are_named_by_field() {
    let of = |json: &str| PlanRequest::from_json(json).unwrap().question().unwrap_err().to_string();
    for (json, parts) in [
        (r#"{"version": 2}"#, ["version = 2", "version 1"]),
        (r#"{"model": "gpt5"}"#, ["unknown model 'gpt5'", "known"]),
        (r#"{"set": {"colour": 3}}"#, ["colour", "known"]),
        (r#"{"gpus": 8, "nodes": 1}"#, ["`search.devices` = 8", "leave one of them out"]),
        (r#"{"gpus": 0}"#, ["`search.devices` = 0", "at least one"]),
        (r#"{"gpus": [0, 8], "pareto": true}"#, ["`search.devices` = 0", "at least one"]),
        (r#"{"nodes": [0, 1], "pareto": true}"#, ["`search.nodes` = 0", "at least one"]),
        (r#"{"top": 0}"#, ["top = 0", "positive"]),
        (r#"{"search_limit": 0}"#, ["`search.limit` = 0", "positive"]),
        (r#"{"exotic": true, "tolerance": 0.1}"#, ["tolerance = 0.1", "leave one of them out"]),
        (r#"{"days": 3}"#, ["`search.days` = 3", "`search.tokens`"]),
        (r#"{"price_per_hour": 3}"#, ["`search.price_per_hour` = 3", "`search.tokens`"]),
        (r#"{"currency": "EUR"}"#, ["`search.currency` = EUR", "`search.price_per_hour`"]),
        (r#"{"restart_seconds": 3}"#, ["`search.restart_seconds` = 3", "`search.goodput`"]),
        (
            r#"{"goodput": true, "checkpoint_seconds": 3, "checkpoint_bandwidth": 3}"#,
            ["`search.checkpoint_seconds`", "leave one"],
        ),
        (r#"{"grid": "x=2"}"#, ["`layout.grid` = x=2", "`space.fix` x=2,pipe=4"]),
        (r#"{"order": "x,y,z,data,pipe"}"#, ["`layout.order`", "every order"]),
        (r#"{"recompute": "full:auto"}"#, ["full:auto", "full:K"]),
        (r#"{"layout": {"stage_blocks": [1, 5]}}"#, ["stage_blocks", "as equal as possible"]),
        (r#"{"dtype": "f64"}"#, ["`layout.dtype` = f64", "`search.framework` quadrille"]),
        (r#"{"sparsity": 0.9}"#, ["`search.sparsity` = 0.9", "`search.framework` quadrille"]),
        (r#"{"framework": "quadrille", "products": "fp8"}"#, ["`search.products` = fp8", "megatron"]),
    ] {
        let message = of(json);
        assert!(parts.iter().all(|part| message.contains(part)), "{json}: {message}");
    }
}

#[test]
fn patches_replace_what_excludes_them() {
    let read = |text: &str| PlanRequest::from_toml(text).unwrap();
    for (file, patch, merged) in [
        ("gpus = 64", "nodes = 4", "nodes = 4"),
        ("checkpoint_bandwidth = 1e9", "checkpoint_seconds = 3", "checkpoint_seconds = 3"),
        ("exotic = true\ntop = 3", "tolerance = 0.1", "tolerance = 0.1\ntop = 3"),
        ("[layout]\nzero = 1\nchunks = 2", "[layout]\nzero = 2", "[layout]\nzero = 2"),
        ("fix = ['x=2', 'y=2']", "fix = ['x=4', 'x=8']", "fix = ['y=2', 'x=4', 'x=8']"),
    ] {
        assert_eq!(read(patch).over(&read(file)).unwrap(), read(merged), "{patch} over {file}");
    }
}
