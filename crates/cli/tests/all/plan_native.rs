//! `quadrille plan`: documents, tables, constraints, explanations.

use serde_json::Value;

use crate::common::{json, run};
use crate::refusals::refused;

/// A small cluster of made-up, round numbers: prices change only if the model does.
pub const CLUSTER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/small_cluster.toml");

/// GPT-2 124M on two nodes of four of its devices.
pub fn line(more: &str) -> String {
    format!("plan --model gpt2-124m --gpus 8 --cluster {CLUSTER} --global-batch 32 {more}")
}

pub fn plans(document: &Value) -> &Vec<Value> {
    document["plans"].as_array().unwrap()
}

pub fn number(value: &Value, field: &str) -> f64 {
    value[field].as_f64().unwrap_or_else(|| panic!("{field} in {value}"))
}

pub fn assert_close(one: f64, other: f64) {
    assert!((one - other).abs() <= 1e-9 * one.abs().max(other.abs()), "{one} and {other}");
}
#[test]
fn documents_are_complete_and_add_up() {
    let document = json(&line("--top 20 --variants --memory-reserve 5% --tokens 1e9 --price-per-hour 2"));
    for (field, value) in [("gpus", 8), ("global_batch", 32), ("seq_len", 1024), ("reserved_bytes", 400_000_000)] {
        assert_eq!(document[field], value, "{field}");
    }
    assert_eq!(document["framework"], "megatron");
    assert_eq!(document["planned"], serde_json::json!({ "framework": "megatron" }));
    let counts = &document["counts"];
    let count = |field| counts[field].as_u64().unwrap();
    assert_eq!(count("legal"), count("priced") + count("too_large") + count("too_slow"));
    assert!(count("fitting") <= count("priced") && count("legal") <= count("configurations"));
    let refused: u64 = document["refusals"].as_array().unwrap().iter().map(|r| r["grids"].as_u64().unwrap()).sum();
    assert_eq!(refused, count("grids") - count("legal_grids"));
    assert_eq!((plans(&document).len(), &document["stopped"]), (20, &false.into()));
    assert!(plans(&document).is_sorted_by(|a, b| number(a, "time_s") <= number(b, "time_s") * (1.0 + 1e-6)));
    for plan in plans(&document) {
        let parts = plan["parts_s"].as_object().unwrap();
        let communication = parts["communication"].as_object().unwrap().values();
        let sum: f64 = parts.values().chain(communication).filter_map(Value::as_f64).sum();
        assert_close(sum, number(plan, "time_s"));
        let memory = plan["memory"].as_object().unwrap();
        let bytes: u64 =
            memory.iter().filter(|(class, _)| *class != "stage").map(|(_, bytes)| bytes.as_u64().unwrap()).sum();
        assert_eq!(plan["memory_bytes"], bytes);
        assert!(bytes <= document["device_memory_bytes"].as_u64().unwrap());
        // Each MFU by hand: 100 TFLOP/s in 16 bits.
        assert_close(number(plan, "mfu"), number(plan, "model_flops") / (number(plan, "time_s") * 8.0 * 100e12));
        let rate = number(plan, "model_flops") / (number(plan, "time_s") * 8.0 * 1e12);
        assert_close(number(plan, "tflops_per_device"), rate);
        assert_eq!(plan["flops_convention"], "native");
        assert_close(number(plan, "hfu"), number(plan, "executed_flops") / (number(plan, "time_s") * 8.0 * 100e12));
        let steps = 1e9 / (32.0 * 1024.0);
        assert_close(number(plan, "tokens_per_s"), 32.0 * 1024.0 / number(plan, "time_s"));
        assert_close(number(plan, "days"), steps * number(plan, "time_s") / 86_400.0);
        assert_close(number(plan, "device_hours"), 8.0 * 24.0 * number(plan, "days"));
        assert_close(number(plan, "cost"), 2.0 * number(plan, "device_hours"));
    }
}

/// Llama 3 8B on 8 ranks of TP2, 16 sequences of 4,096 tokens: FLOPs of a step by hand, by each convention.
#[test]
fn rates_are_counted_as_logs_count_them() {
    let [h, ffn, kv, vocab, s] = [4096.0, 14_336.0, 1024.0, 128_256.0, 4096.0];
    let products = 2.0 * h * h + 2.0 * h * kv + 3.0 * h * ffn;
    let tokens = 16.0 * s;
    let native = 6.0 * (32.0 * (products + 2.0 * s * h) + vocab * h);
    let megatron = 6.0 * (32.0 * (products + s * h) + vocab * h);
    // Norms: two of each block and the last.
    let torchtitan = 6.0 * (32.0 * (products + 2.0 * h) + h + vocab * h) + 12.0 * 32.0 * h * s;
    let layout = "--model llama3-8b --cluster dgx-h100 --grid x=2,data=4 --global-batch 16 --seq-len 4096 --zero 1";
    for (convention, of_token) in [("native", native), ("megatron", megatron), ("torchtitan", torchtitan)] {
        let document = json(&format!("explain --price {layout} --flops-convention {convention}"));
        let plan = &document["plan"];
        assert_eq!(
            (&document["flops_convention"], &plan["flops_convention"]),
            (&convention.into(), &convention.into())
        );
        assert_close(number(plan, "model_flops"), of_token * tokens);
        let rate = of_token * tokens / (number(plan, "time_s") * 8.0);
        assert_close(number(plan, "tflops_per_device"), rate / 1e12);
        assert_close(number(plan, "mfu"), rate / 989.4e12);
    }
    let told = |convention: &str| {
        let line = format!("explain --price {layout} --flops-convention {convention}");
        String::from_utf8(run(std::env::temp_dir().as_path(), &line).stdout).unwrap()
    };
    assert!(told("megatron").contains("TFLOP/s, MFU: FLOPs as Megatron-LM's log counts them"));
    assert!(
        told("native").contains("TFLOP/s, MFU: FLOPs of products and attention")
            && told("native").contains("  TFLOP/s ")
    );
    refused("plan --flops-convention megatrn", &["--flops-convention", "megatrn", "megatron"]);
    refused("explain --flops-convention megatron", &["--flops-convention", "--price"]);
}

#[test]
fn constraints_are_kept_and_flags_of_the_layout_fix_theirs() {
    let constraints = "--fix data=2,schedule=zb-h1 --min pipe=2 --max x=2 --zero 1 --recompute full --top 30";
    let document = json(&line(constraints));
    assert!(!plans(&document).is_empty());
    for plan in plans(&document) {
        let layout = &plan["layout"];
        let grid = layout["grid"].as_str().unwrap();
        assert!(grid.contains("data=2") && grid.contains("pipe=") && !grid.contains("x=4"), "{grid}");
        assert_eq!((&layout["schedule"], &layout["zero"]), (&"zb-h1".into(), &1.into()));
        assert_eq!(layout["recompute"], "full");
    }
    let best = number(&plans(&json(&line("")))[0], "time_s");
    assert!(number(&plans(&document)[0], "time_s") >= best, "fewer choices");
}

#[test]
fn a_reserve_leaves_room() {
    let most = |more: &str| {
        let document = json(&line(&format!("--top 50 {more}")));
        plans(&document).iter().map(|plan| plan["memory_bytes"].as_u64().unwrap()).max().unwrap()
    };
    let memory = 8_000_000_000;
    assert!(most("--memory-reserve 75%") <= memory / 4);
    assert!(most("--memory-reserve 6GB") <= memory - 6_000_000_000);
    assert_eq!(json(&line("--memory-reserve 25% --top 1"))["reserved_bytes"], memory / 4);
}

#[test]
fn fronts_hold_what_nothing_beats() {
    let document = json(&line("--gpus 2..8 --pareto --top 3").replace("--gpus 8 ", ""));
    let front = document["pareto"].as_array().unwrap();
    let point = |plan: &Value| [number(plan, "devices"), number(plan, "time_s"), number(plan, "memory_bytes")];
    for (at, plan) in front.iter().enumerate() {
        let beaten = front.iter().enumerate().find(|(other, rival)| {
            *other != at && point(rival).iter().zip(point(plan)).all(|(rival, own)| *rival <= own)
        });
        assert!(beaten.is_none(), "{plan} by {beaten:?}");
    }
    let devices: Vec<_> = front.iter().map(|plan| plan["devices"].as_u64().unwrap()).collect();
    assert!([2, 4, 8].iter().all(|wanted| devices.contains(wanted)), "{devices:?}");
    assert!(devices.is_sorted());
    // The fastest of all is in it.
    let fastest = front.iter().map(|plan| number(plan, "time_s")).fold(f64::INFINITY, f64::min);
    assert_close(fastest, number(&plans(&document)[0], "time_s"));
}

#[test]
fn one_layout_of_each_grid() {
    let document = json(&line("--top 12"));
    let grids: Vec<_> = plans(&document).iter().map(|plan| plan["layout"]["grid"].to_string()).collect();
    assert_eq!(grids.len(), 12);
    assert!((1..12).all(|at| !grids[..at].contains(&grids[at])), "{grids:?}");
    // The notation comes first, in tables too, and every layout has a number of variants, itself among them.
    for plan in plans(&document) {
        assert_eq!(plan.as_object().unwrap().keys().next().unwrap(), "notation");
        assert!(plan["variants"].as_u64().unwrap() >= 1, "{plan}");
    }
    // All legal layouts are a variant of a grid.
    let every = json(&line("--top 1000 --memory-reserve 0"));
    let variants: u64 = plans(&every).iter().map(|plan| plan["variants"].as_u64().unwrap()).sum();
    assert_eq!(plans(&every).len() as u64, every["counts"]["legal_grids"].as_u64().unwrap());
    assert_eq!(variants, every["counts"]["legal"].as_u64().unwrap());
    // On request variants are shown too: of those of a grid the best is the one that is shown without.
    let several = json(&line("--top 12 --variants"));
    let grids: Vec<_> = plans(&several).iter().map(|plan| plan["layout"]["grid"].to_string()).collect();
    assert!((1..12).any(|at| grids[..at].contains(&grids[at])), "{grids:?}");
    assert!(plans(&several).iter().all(|plan| plan["variants"].is_null()));
    assert_eq!(plans(&several)[0]["layout"], plans(&document)[0]["layout"]);
    let output = run(std::path::Path::new("."), &line("--top 2"));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.lines().filter(|line| line.starts_with("layout ")).count() == 3, "{text}");
}

#[test]
fn explanations_add_up() {
    let document = json(&line("--explain --fix x=2 --top 2"));
    let explanation = &document["explanation"];
    let plans = plans(&document);
    let best = number(&plans[0], "time_s");
    let binding = explanation["binding"].as_array().unwrap();
    assert_close(binding.iter().map(|part| number(part, "time_s")).sum(), best);
    assert!(binding.is_sorted_by(|a, b| number(a, "time_s") >= number(b, "time_s")));
    let sensitivities = explanation["sensitivities"].as_array().unwrap();
    for wanted in ["device.peak.half", "device.memory_bandwidth", "tiers.0.bandwidth", "tiers.1.latency"] {
        assert!(sensitivities.iter().any(|each| each["field"] == wanted), "{wanted}");
    }
    let gained = |field: &str| number(sensitivities.iter().find(|each| each["field"] == field).unwrap(), "gained_s");
    assert!(gained("device.peak.half") > 0.0 && gained("device.peak.half") < 0.1 * best);
    assert!(gained("device.peak.double") == 0.0 && gained("device.launch_seconds") <= 0.0);
    let changes = explanation["changes"].as_array().unwrap();
    let is_full = |change: &&Value| change["change"].as_str().unwrap().starts_with("recompute full");
    assert_eq!(changes.iter().filter(is_full).count(), 1, "intervals of recomputation are one choice: {changes:?}");
    // One choice away from the best there is nothing better, but for the axis that was fixed.
    for change in explanation["changes"].as_array().unwrap() {
        let what = change["change"].as_str().unwrap();
        assert!(number(change, "gained_s") <= 1e-6 * best || what.contains("x "), "{change}");
    }
    let slower = &explanation["runner_up"]["slower_by_s"];
    let sum: f64 = slower.as_object().unwrap().values().map(|more| more.as_f64().unwrap()).sum();
    assert!((sum - (number(&plans[1], "time_s") - best)).abs() <= 1e-9 * best);
}

fn told(line: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let output = run(folder.path(), line);
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn every_number_of_the_hardware_is_told_or_counted() {
    let line = line("--explain --fix x=2 --top 1");
    let text = told(&line);
    let (_, section) = text.split_once("10% more of a number of the hardware").unwrap();
    let lines = section.lines().skip(1).take_while(|line| line.starts_with("  "));
    let of = |line: &str| {
        if line.contains(" instead of ") {
            1
        } else {
            line.split_whitespace().next().unwrap().parse::<usize>().unwrap()
        }
    };
    let all = json(&line)["explanation"]["sensitivities"].as_array().unwrap().len();
    assert_eq!(lines.clone().map(of).sum::<usize>(), all, "{section}");
    assert!(lines.clone().any(|line| line.contains(" further number")) && all > 13, "{section}");
}

/// Nine of ten runs would fit of the fastest layout, and nearly all of the one that is advised. Where another reserve is asked
/// for the fastest is warned of; with room for nearly all there is no warning, and where no layout has it, it is called a risk.
#[test]
fn the_advised_layout_fits_in_nearly_all_runs_or_is_warned_of() {
    let plan = "plan --model gpt3-13b --gpus 16 --cluster dgx-a100 --global-batch 512 --top 1";
    let text = told(plan);
    assert!(!text.contains("of runs would fit"), "{text}");
    assert!(text.contains("advised (*)") && text.contains("of those that 95% of runs fit into"), "{text}");
    assert!(text.contains("it fits in 9") && text.contains("published runs on a100-80 by megatron that ran"), "{text}");
    let document = json(plan);
    let advised = &document["advised"]["plan"];
    assert!(number(advised, "fitting_runs") >= 0.95 && number(&plans(&document)[0], "fitting_runs") < 0.95);
    assert!(number(advised, "time_s") > number(&plans(&document)[0], "time_s"));
    let called = &document["called_too_large"];
    assert!(called["ran"].as_u64().unwrap() > 1000 && called["called_too_large"].as_u64().unwrap() < 50, "{called}");
    let text = told(&format!("{plan} --memory-reserve runs:65.1%"));
    assert!(text.contains("of runs would fit") && text.contains("`runs:97%`"), "{text}");
    let text = told(&format!("{plan} --memory-reserve runs:97%"));
    assert!(!text.contains("of runs would fit"), "{text}");
    // As few devices as hold it at all.
    let text = told("plan --model gpt3-175b --gpus 48 --cluster dgx-a100 --global-batch 480 --top 1");
    assert!(text.contains("warning: ") && text.contains("a risk, for no layout was found"), "{text}");
}

/// Megatron-LM has neither y nor z nor overlap chunks; what is asked for, or anything, is searched all the same.
#[test]
fn layouts_are_those_that_the_framework_runs() {
    let found = |more: &str| plans(&json(&line(&format!("{more} --top 40")))).clone();
    let has = |plan: &Value, axis: &str| {
        plan["layout"]["grid"].as_str().unwrap().split(',').any(|size| size.starts_with(axis) && !size.ends_with("=1"))
    };
    let runs = found("");
    assert!(!runs.is_empty() && runs.iter().all(|plan| !has(plan, "y=") && !has(plan, "z=")), "{runs:?}");
    assert!(found("--fix y=2").iter().all(|plan| has(plan, "y=")));
    assert!(found("--any-layout --min z=2").iter().all(|plan| has(plan, "z=")));
    let legal = |more: &str| json(&line(&format!("{more} --top 1")))["counts"]["legal"].as_u64().unwrap();
    assert!(legal("--any-layout") > 2 * legal(""));
    assert!(found("--framework fsdp").iter().any(|plan| has(plan, "z=")));
    let best = |plans: &[Value]| number(&plans[0], "time_s");
    assert!(best(&found("--any-layout")) <= best(&runs));
}

#[test]
fn frameworks_differ() {
    let time = |framework: &str| number(&plans(&json(&line(&format!("--framework {framework} --top 1"))))[0], "time_s");
    assert!(time("quadrille") > time("megatron"), "f32 against 16 bits");
    assert_eq!(json(&line("--framework fsdp --top 1"))["framework"], "fsdp");
}

#[test]
fn people_read_tables() {
    let folder = tempfile::tempdir().unwrap();
    let output = run(folder.path(), &line("--top 3 --explain --tokens 10e9"));
    assert!(output.status.success() && output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    // The time of the search is the only thing that differs from run to run.
    let lines = text.lines().map(|line| line.split_once(" by bounds (").map_or(line, |(counts, _)| counts));
    insta::assert_snapshot!(lines.collect::<Vec<_>>().join("\n"));
}

#[test]
fn more_overlap_chunks_than_usual_are_tried() {
    let chunks = |flags: &str| plans(&json(&line(flags)))[0]["layout"]["overlap_chunks"].clone();
    assert_eq!(chunks("--top 1 --min overlap-chunks=8"), 8);
    assert_eq!(chunks("--top 1 --fix overlap-chunks=8"), 8);
}

#[test]
fn each_number_of_devices_has_the_limit() {
    let document = json(&line("--any-layout --pareto --search-limit 1"));
    assert_eq!(document["stopped"], true);
    assert_eq!(document["stopped_gpus"], serde_json::json!([1, 2, 4, 8]));
    assert!(!plans(&document).is_empty() && !document["pareto"].as_array().unwrap().is_empty());
    let output = run(std::path::Path::new("."), &line("--any-layout --search-limit 1"));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.starts_with("SEARCH CUT by --search-limit before everything was looked at")
            && text.contains("\nso far ")
            && text.contains("are not counted here\n"),
        "{text}"
    );
    assert!(text.contains("advised: the fastest so far; ") || text.contains("advised (*)"), "{text}");
    let document = json(&line("--pareto --search-limit 1000000000000"));
    assert_eq!((&document["stopped"], &document["stopped_gpus"]), (&Value::Bool(false), &serde_json::json!([])));
}

/// What stays free so that a part of runs fits; how far runs like the plan were from their predictions.
#[test]
fn plans_say_how_far_to_trust_them() {
    let plan = |more: &str| {
        json(&format!("plan --model gpt3-13b --gpus 64 --cluster selene --global-batch 128 --top 2 {more}"))
    };
    let usual = plan("");
    let reserved = |document: &Value| document["reserved_bytes"].as_u64().unwrap();
    // 0.385 deviations of 6 GB have 65 of 100 runs below them, 1.881 have 97 of 100.
    assert_eq!(reserved(&usual) / 1_000_000, 2_311);
    assert_eq!(reserved(&plan("--memory-reserve runs:97%")) / 1_000_000, 11_284);
    assert!(plans(&usual).iter().all(|plan| (0.65..=1.0).contains(&number(plan, "fitting_runs"))), "{usual}");
    // Nearly all that decides about A100s was fitted or promised, and what decides about L40S is assumed.
    let assumed = |document: &Value| number(&document["assumed"], "gained_share");
    assert!(assumed(&usual) < 0.02, "{}", usual["assumed"]);
    let l40s = json("plan --model gpt2-124m --gpus 8 --cluster pcie-8x-l40s --global-batch 64 --top 1");
    assert!(
        assumed(&l40s) > 0.05
            && l40s["assumed"]["fields"].as_array().unwrap().contains(&"device.products.ceiling".into())
    );
    assert_eq!(
        (&l40s["origins"]["device.peak.half"], &usual["origins"]["tiers.0.latency"]),
        (&"data_sheet".into(), &"fitted".into())
    );
    for (cluster, warns) in [("selene", false), ("pcie-8x-l40s", true)] {
        let line = format!("plan --model gpt2-124m --gpus 8 --cluster {cluster} --global-batch 64 --top 1");
        let output = run(std::env::temp_dir().as_path(), &line);
        assert_eq!(
            String::from_utf8_lossy(&output.stdout).contains("nobody measured, fitted or promised"),
            warns,
            "{cluster}"
        );
    }
    let band = &usual["error_band"];
    assert!(number(band, "low") < number(band, "middle") && number(band, "middle") < number(band, "high"), "{band}");
    assert_eq!(band["runs"], 40);
    assert!(band["sources"].as_array().unwrap().len() > 2, "{band}");
    let own = plan("--framework quadrille --dtype bf16");
    assert_eq!((&own["error_band"], number(&own["plans"][0], "fitting_runs")), (&Value::Null, 1.0));
    assert_eq!(own["error_band_reason"], "no published runs of this kind: none by quadrille");
    let none = "no published runs of this kind: none on l40s or a device of its generation";
    assert_eq!((&l40s["error_band"], &l40s["error_band_reason"]), (&Value::Null, &none.into()));
    assert_eq!((&usual["plans"][0]["error_band"], &usual["error_band_reason"]), (band, &Value::Null));
    refused("plan --memory-reserve runs:40%", &["--memory-reserve", "runs:40%", "50%"]);
    refused("plan --framework quadrille --memory-reserve runs:97%", &["--memory-reserve", "quadrille", "5%"]);
}
