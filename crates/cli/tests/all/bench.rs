//! The documents of `quadrille bench`: their fields, and that these fit together. No test asserts a speed.

use std::path::Path;
use std::process::Output;

use serde_json::Value;

use crate::common;

fn bench(arguments: &str) -> Output {
    common::run(Path::new("."), &format!("bench {arguments}"))
}

fn document(arguments: &str) -> Value {
    common::json(&format!("bench {arguments}"))
}

/// A field that is a number above zero.
fn number(value: &Value, field: &str) -> f64 {
    let number = value[field].as_f64().unwrap_or_else(|| panic!("no number {field} in {value}"));
    assert!(number > 0.0, "{field} = {number}");
    number
}

fn assert_close(a: f64, b: f64) {
    assert!((a - b).abs() <= 1e-9 * b.abs(), "{a} and {b}");
}

/// What holds on every layout.
fn check_step(step: &Value, tokens: f64) {
    let seconds = number(step, "step_ms") / 1e3;
    assert_close(number(step, "ratio"), number(step, "gflops") / number(step, "gemm_gflops"));
    assert_close(number(step, "gflops"), number(step, "flops_per_step") / seconds / 1e9);
    assert_close(number(step, "tokens_per_second"), tokens / seconds);
    let yardsticks = step["gemm_gflops_each"].as_array().unwrap().iter().map(|rate| rate.as_f64().unwrap());
    assert_close(number(step, "gemm_gflops"), yardsticks.fold(0.0, f64::max));
    let each: Vec<f64> = step["step_ms_each"].as_array().unwrap().iter().map(|ms| ms.as_f64().unwrap()).collect();
    assert_eq!(each.len() as u64, step["steps"].as_u64().unwrap());
    let mean = each.iter().sum::<f64>() / each.len() as f64 / 1e3;
    let shares = step["breakdown"].as_object().unwrap().values();
    let sum = |field: &str| shares.clone().map(|share| share[field].as_f64().unwrap()).sum::<f64>();
    assert!(sum("seconds") > 0.0, "{shares:?}");
    assert_close(sum("percent"), 100.0 * sum("seconds") / mean);
    if cfg!(target_os = "linux") {
        assert!(number(step, "peak_rss_bytes") > number(step, "allocated_bytes"));
    }
}

#[test]
fn step_on_one_rank() {
    let step = document("step --model gpt-tiny --global-batch 2 --steps 3 --threads 2");
    check_step(&step, 32.0);
    // 6 (12 L h^2 + V h) + 12 T h L per token, with L=2, h=48, V=67, T=16.
    assert_eq!(step["flops_per_step"], 32 * (6 * (12 * 2 * 48 * 48 + 67 * 48) + 12 * 16 * 48 * 2));
    assert!(step.get("scaling").is_none());
    for kind in ["gemm", "gemm-input-gradient", "gemm-weight-gradient", "attention", "attention-backward", "adamw"] {
        number(&step["breakdown"][kind], "seconds");
    }
}

#[test]
fn step_on_several_ranks() {
    let command = "step --model gpt-tiny --grid x=2,data=2 --steps 2 --threads 1 --dtype f64";
    let step = document(command);
    check_step(&step, 64.0);
    number(&step["breakdown"]["wait"], "seconds");
    let one_rank = number(&step, "one_rank_tokens_per_second");
    assert_close(number(&step, "scaling"), number(&step, "tokens_per_second") / one_rank);
    assert!(document(&format!("{command} --no-scaling")).get("scaling").is_none());
}

#[test]
fn gemm_lists_every_product_of_a_step() {
    let gemm = document("gemm --model gpt-tiny --set layers=1 --global-batch 2 --threads 2");
    let products = gemm["products"].as_array().unwrap();
    // Three each of qkv, projection, up, down and the head.
    assert_eq!(products.iter().map(|product| product["calls"].as_u64().unwrap()).sum::<u64>(), 15);
    for product in products.iter().chain([&gemm]) {
        assert_close(number(product, "ratio"), number(product, "gflops") / number(product, "library_gflops"));
    }
    let tokens = 32;
    let weights = 12 * 48 * 48 + 67 * 48;
    let attention = 12 * 16 * 48;
    let share = f64::from(6 * weights) / f64::from(6 * weights + attention);
    assert_close(products.iter().map(|product| number(product, "flops_share")).sum(), share);
    let up = products.iter().find(|product| product["name"] == "up").unwrap();
    assert_eq!(
        [&up["storage"], &up["m"], &up["n"], &up["k"]],
        [&Value::from("nn"), &tokens.into(), &192.into(), &48.into()]
    );
}

#[test]
fn states_in_buckets_beside_a_plain_copy() {
    let folder = tempfile::tempdir().unwrap();
    let states = folder.path().display();
    for (place, offload) in [("the host's memory", String::new()), ("files in ", format!(" --offload {states}"))] {
        let command = format!("optimizer --model gpt-tiny --grid data=2 --steps 2 --threads 1{offload}");
        let measured = document(&command);
        assert!(measured["states"].as_str().unwrap().starts_with(place), "{measured}");
        let compute = number(&measured, "compute_ms");
        let rows = measured["rows"].as_array().unwrap();
        let shape = |row: &Value| (row["buckets"].as_u64().unwrap(), row["optimizer_overlap"].as_bool().unwrap());
        let expected = [1, 2, 4, 8].into_iter().flat_map(|buckets| [(buckets, false), (buckets, true)]);
        assert!(rows.iter().map(shape).eq(expected), "{rows:?}");
        for row in rows {
            let bound = 1.15 * compute.max(number(row, "transfer_ms"));
            assert_close(number(row, "bound_ms"), bound);
            ["step_ms", "copy_ms", "moved_bytes"].iter().for_each(|field| _ = number(row, field));
        }
        // Two moments each way, or a master as well.
        assert_eq!(3 * rows[0]["moved_bytes"].as_u64().unwrap(), 2 * rows[1]["moved_bytes"].as_u64().unwrap());
        assert!(rows.iter().all(|row| row["optimizer_overlap"] == true || row["repeated"] == 0), "{rows:?}");
    }
    assert_eq!(folder.path().read_dir().unwrap().count(), 0);
}

#[test]
fn what_cannot_be_measured_is_refused() {
    for (arguments, reason) in [
        ("step --steps 0", "--steps"),
        ("step --model gpt-tiny --threads 0", "--threads 0"),
        ("step --model gpt-tiny --grid x=5", "x=5"),
        ("step --model gpt-tiny --seq-len 17", "17"),
        ("optimizer --model gpt-tiny --offload host --bucket 7", "--bucket"),
        ("gemm --threads 0", "--threads"),
        ("gemm --model gpt-none", "gpt-none"),
    ] {
        let output = bench(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments}");
        assert!(output.stdout.is_empty(), "{arguments}");
        let message = String::from_utf8(output.stderr).unwrap();
        assert!(message.contains(reason), "{arguments}: {message}");
    }
}

#[test]
fn tables_show_the_same() {
    let text = |arguments: &str| String::from_utf8(bench(arguments).stdout).unwrap();
    let step = text("step --model gpt-tiny --global-batch 2 --steps 1");
    assert!(["tokens/s", "library", "ratio", "adamw"].iter().all(|word| step.contains(word)), "{step}");
    let gemm = text("gemm --model gpt-tiny --global-batch 2");
    assert!(gemm.contains("d embedding.table") && gemm.contains("of FLOPs"), "{gemm}");
}

#[test]
fn searches_beside_published_planners() {
    let document = document("plan --runs 1");
    let yardsticks: Vec<_> = document["yardsticks"].as_array().unwrap().iter().collect();
    let searches = document["searches"].as_array().unwrap();
    assert_eq!(searches[0]["search"], "lbnl");
    assert_eq!(searches[0]["configurations"], 49_897);
    assert_eq!(searches[1]["search"], "native");
    assert!(number(&searches[1], "configurations") > 1e5);
    let bounded = &document["bounded"];
    assert!(number(bounded, "legal") > 10.0 * number(bounded, "priced") && number(bounded, "priced") > 0.0);
    for search in searches {
        let rate = number(search, "configurations_per_second");
        assert_close(rate, number(search, "configurations") / number(search, "seconds"));
        for (ratio, yardstick) in search["ratios"].as_array().unwrap().iter().zip(&yardsticks) {
            assert_close(ratio.as_f64().unwrap(), rate / number(yardstick, "configurations_per_second"));
        }
    }
}
