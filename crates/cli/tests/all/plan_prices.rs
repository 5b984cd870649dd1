//! Prices of layouts by `quadrille explain --price` and `plan`: one for a layout, by loads, and by types and places of numbers.

use std::fs;

use serde_json::Value;

use crate::common::{json, run};
use crate::plan_native::{CLUSTER, assert_close, line, number, plans};
use crate::refusals::{folder_with, refused, refused_in};

#[test]
fn a_priced_layout_says_whether_it_fits() {
    let explain = format!("explain --model gpt2-124m --cluster {CLUSTER} --grid data=8 --global-batch 32 --price");
    let document = json(&format!("{explain} --memory-reserve 5%"));
    assert_eq!((&document["device_memory_bytes"], &document["fits"]), (&8_000_000_000_u64.into(), &Value::Bool(true)));
    assert_eq!(document["reserved_bytes"], 400_000_000);
    assert_eq!(json(&format!("{explain} --memory-reserve 99%"))["fits"], false);
    refused(&format!("{explain} --dtype f64"), &["--dtype", "--framework"]);
}

/// 256 x 1024 tokens are 64 sequences of 4 x 1024; in a sweep a step has as many tokens at each length.
#[test]
fn batches_may_be_counted_in_tokens() {
    let price = "explain --price --model gpt2-124m --cluster dgx-a100 --grid data=8";
    let layout = |batch: &str| json(&format!("{price} {batch}"))["plan"]["layout"].clone();
    for batch in [
        "--global-batch 64k --seq-len 512",
        "--global-batch=65536tokens --seq-len 0.5k",
        "--global-batch 128 --seq-len 512",
    ] {
        let layout = layout(batch);
        assert_eq!((&layout["global_batch"], &layout["seq_len"]), (&128.into(), &512.into()), "{batch}");
    }
    assert_eq!(layout("--global-batch 64k")["global_batch"], 64, "in sequences of 1,024, the model's");
    let plan = json(
        "plan --model gpt2-124m --cluster dgx-a100 --gpus 8 --global-batch 0.5M --seq-len 1k --top 1 --max pipe=1",
    );
    assert_eq!((&plan["global_batch"], &plan["seq_len"]), (&512.into(), &1024.into()));
    let folder = folder_with("layout.toml", b"grid = 'data=8'\nglobal_batch = '64k'\nseq_len = '0.5k'\n");
    let line = "explain --price --json --model gpt2-124m --cluster dgx-a100 --layout layout.toml";
    let said: Value = serde_json::from_slice(&run(folder.path(), line).stdout).unwrap();
    assert_eq!(said["plan"]["layout"]["global_batch"], 128);
    let sweep =
        "sweep --model gpt2-124m --cluster dgx-a100 --gpus 8 --global-batch 64k --vary seq-len=0.5k,1k --max pipe=1";
    let table = String::from_utf8(run(folder.path(), sweep).stdout).unwrap();
    let mut lines = csv::Reader::from_reader(table.as_bytes());
    let at = lines.headers().unwrap().iter().position(|name| name == "global_batch").unwrap();
    let batches: Vec<String> = lines.records().map(|row| row.unwrap()[at].to_owned()).collect();
    assert_eq!(batches, ["128", "64"], "{table}");
    refused(
        &format!("{price} --global-batch 4M --seq-len 1000"),
        &["global-batch", "4194304 tokens", "4194000 tokens", "4194 sequences", "--seq-len"],
    );
    refused(&format!("{price} --global-batch 4MB"), &["--global-batch", "4MB", "4M for 4 x 1024 x 1024 tokens"]);
    refused(&format!("{price} --seq-len 8kb"), &["--seq-len", "8kb", "8k for 8 x 1024"]);
    refused("paper megatron plan --gpus 512 --cluster selene --global-batch 1k", &["1024 tokens", "2048"]);
}

/// A device of a user's file that nobody has published runs of: no band in text, documents and tables, and why.
#[test]
fn a_device_without_published_runs_has_no_error_band() {
    let cluster = fs::read_to_string(CLUSTER).unwrap().replace("\"toy\"", "\"TPU v5p\"");
    let folder = folder_with("tpu.toml", cluster.as_bytes());
    let layout = "--model gpt2-124m --cluster tpu.toml --grid data=8 --global-batch 32";
    let printed = |line: &str| {
        let output = run(folder.path(), line);
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let reason = "no published runs of this kind: none on TPU v5p or a device of its generation";
    let text = printed(&format!("explain --price {layout}"));
    assert!(text.contains(&format!("its time has no error band: {reason}\n")) && !text.contains("uncertain"), "{text}");
    let document: Value = serde_json::from_str(&printed(&format!("explain --price --json {layout}"))).unwrap();
    assert_eq!(
        (&document["plan"]["error_band"], &document["plan"]["error_band_reason"]),
        (&Value::Null, &reason.into())
    );
    let table = printed("sweep --vary gpus=4,8 --model gpt2-124m --cluster tpu.toml --global-batch 32");
    assert!(table.lines().next().unwrap().contains(",error_band_low,error_band_middle,error_band_high,"), "{table}");
    assert_eq!(table.matches(reason).count(), 2, "{table}");
    // The device that it has runs of keeps its band.
    let known = printed("explain --price --model gpt2-124m --cluster dgx-h100 --grid data=8 --global-batch 32");
    assert!(known.contains("its time is uncertain by ") && known.contains("of the 40 published runs"), "{known}");
}

/// Seconds of the price are those of the timeline, bytes those of the ledger; pieces of layers need not be even.
#[test]
fn one_layout_has_one_price() {
    for layout in ["pipe=2,data=2", "x=2,z=2,pipe=2 --stage-blocks 5,7 --recompute selective", "z=4,data=2 --zero 2"] {
        let line = format!("explain --model gpt2-124m --cluster {CLUSTER} --global-batch 16 --grid {layout}");
        let both = |framework: &str| {
            let priced = json(&format!("{line} --price --framework {framework}"));
            let drawn = json(&format!("{line} --timeline --framework {framework}"));
            let [seconds, simulated] =
                [&priced["plan"]["time_s"], &drawn["simulation"]["step_s"]].map(|each| each.as_f64().unwrap());
            assert!((seconds / simulated - 1.0).abs() < 1e-9, "{framework} {layout}: {seconds} and {simulated}");
            [priced, drawn]
        };
        for framework in ["megatron", "megatron-stored", "fsdp"] {
            both(framework);
        }
        let [priced, drawn] = both("quadrille");
        let allocated = drawn["ranks"].as_array().unwrap().iter().map(|rank| rank["memory"]["allocated"].as_u64());
        assert_eq!(priced["plan"]["memory_bytes"].as_u64(), allocated.max().unwrap(), "{layout}");
        assert_eq!(priced["plan"]["layout"]["stage_blocks"], drawn["layout"]["stage_blocks"], "{layout}");
    }
}

/// Loads of a run price what the run has counted: of the ranks that share experts, the one that has most of them.
#[test]
fn unequal_loads_of_a_run_are_priced_as_they_were_counted() {
    let folder = tempfile::tempdir().unwrap();
    let text = "name = 'queues'\nlayers = 2\nhidden = 16\nheads = 4\nvocab = 256\nseq_len = 16\nexperts = 4\n";
    fs::write(folder.path().join("model.toml"), text).unwrap();
    let model = format!("--model {} --grid expert=2 --global-batch 4", folder.path().join("model.toml").display());
    let trained = run(folder.path(), &format!("train {model} --threads 1 --steps 1 --out run"));
    assert!(trained.status.success(), "{}", String::from_utf8_lossy(&trained.stderr));
    let steps = fs::read_to_string(folder.path().join("run/steps.jsonl")).unwrap();
    let counted = number(&serde_json::from_str::<Value>(steps.trim()).unwrap()["router"], "imbalance");
    assert!(counted > 1.0, "{counted}");
    let explain = format!("explain {model} --cluster {CLUSTER} --framework quadrille --price");
    let priced = |imbalance: &str| json(&format!("{explain} {imbalance}"));
    let measured = priced(&format!("--imbalance {}", folder.path().join("run").display()));
    assert_close(number(&measured["plan"], "imbalance"), counted);
    assert_close(number(&measured["imbalance"], "2"), counted);
    let said = priced(&format!("--imbalance {counted}"));
    assert_eq!(said["plan"]["time_s"], measured["plan"]["time_s"]);
    assert!(number(&said["plan"], "time_s") > number(&priced("")["plan"], "time_s"));
    assert_eq!(priced("")["imbalance"], 1.0);
}

#[test]
fn unequal_loads_that_say_nothing_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mixture = format!("plan --model mixtral-8x7b --gpus 16 --cluster {CLUSTER} --global-batch 16");
    for (line, words) in [
        (line("--imbalance 1.5"), &["--imbalance", "no experts", "leave it out"][..]),
        (line("--experts-over x"), &["--experts-over = x: the model has no experts; leave it out"]),
        (line("--fix experts-over=x"), &["--experts-over = x: the model has no experts"]),
        (line("--fix dispatch=duplicated"), &["--dispatch = duplicated: the model has no experts"]),
        (
            "plan --model vit-tiny --gpus 4 --cluster dgx-h100 --fix vocab-multiple=8".to_owned(),
            &["--vocab-multiple", "the model has no vocabulary to pad"],
        ),
        (line("--expert-rows 3"), &["--expert-rows = 3: the model has no experts"]),
        (
            "explain --model gpt-tiny --grid x=1 --expert-rows 3".to_owned(),
            &["expert-rows = 3: the model has no experts"],
        ),
        (format!("{mixture} --experts-over bogus"), &["unknown axis 'bogus'; known: x, z, context, expert, none"]),
        (format!("{mixture} --fix experts-over=pipe"), &["experts-over", "pipe", "joined by +"]),
        ("explain --model moe-tiny --grid x=1 --ledger --imbalance 2".to_owned(), &["--imbalance", "--ledger"]),
        (format!("{mixture} --imbalance 0.5"), &["--imbalance", "0.5", "e.g. 1.3"]),
        (format!("{mixture} --imbalance nowhere"), &["--imbalance nowhere", "neither a number"]),
        (format!("{mixture} --imbalance {}", folder.path().display()), &["no summary.json", "at its end"]),
        (
            format!("{mixture} --imbalance 2.5 --expert-rows 2 --fix expert=8,x=1,y=1,z=1,context=1"),
            &["--expert-rows", "as unequal as 2.5", "--expert-rows 3"],
        ),
    ] {
        refused(&line, words);
    }
}

/// Products in 8 bits, 16-bit gradients and narrow moments are the framework's; what this program stores `--dtype` says.
#[test]
fn numbers_may_have_other_types() {
    let plan = |more: &str| {
        json(&format!("plan --model gpt3-1.3b --gpus 8 --cluster dgx-h100 --global-batch 64 --top 1 {more}"))
    };
    let fixed = "--fix x=1,pipe=1,microbatch=4,recompute=none,zero=1,z=1";
    let [usual, fp8] = ["", "--products fp8"].map(|more| plan(&format!("{fixed} {more}"))["plans"][0].clone());
    assert!(number(&fp8, "time_s") < 0.85 * number(&usual, "time_s"));
    let states = plan(&format!("{fixed} --gradients bf16 --moments bf16"))["plans"][0]["memory"].clone();
    assert_close(number(&states, "gradients") * 2.0, number(&usual["memory"], "gradients"));
    assert!(number(&states, "optimizer") < 0.7 * number(&usual["memory"], "optimizer"));
    let explain =
        "explain --price --framework megatron --model gpt3-1.3b --cluster dgx-h100 --grid data=8 --global-batch 64";
    let gradients = |more: &str| number(&json(&format!("{explain} {more}"))["plan"]["memory"], "gradients");
    assert_close(2.0 * gradients("--gradients bf16"), gradients(""));
    for (line, words) in [
        ("plan --cluster dgx-a100 --gpus 8 --products fp8", &["peak.fp8", "a100-80"][..]),
        ("plan --cluster dgx-h100 --gpus 8 --products mxfp8", &["peak.fp4", "h100"]),
        ("plan --cluster dgx-h100 --gpus 8 --products nvfp4", &["peak.fp4", "h100"]),
        ("plan --products int8", &["int8", "fp8, fp8-block, mxfp8, nvfp4"]),
        ("plan --framework quadrille --products fp8", &["--products", "--dtype", "--framework megatron"]),
        ("plan --gradients f64", &["--gradients", "f64", "bf16"]),
        ("plan --dtype bf16", &["--dtype", "megatron", "--framework quadrille"]),
    ] {
        refused(line, words);
    }
}

/// Gradients and states of pruned weights take no memory and no time.
#[test]
fn pruned_models_have_plans_of_their_own() {
    let best = |more: &str| {
        let document = json(&line(&format!("--framework quadrille --dtype bf16 --top 1 {more}")));
        (
            document["sparsity"].clone(),
            number(&plans(&document)[0], "memory_bytes"),
            number(&plans(&document)[0], "time_s"),
        )
    };
    let fixed = "--fix x=1,y=1,z=1,context=1,pipe=1,zero=0,recompute=none,microbatch=1";
    let whole = best(fixed);
    let pruned = best(&format!("{fixed} --sparsity 0.9"));
    assert_eq!((whole.0, pruned.0.as_f64()), (Value::Null, Some(0.9)));
    // Of 85 million weights in blocks a gradient in f32, a master and two moments, less the places of what is kept.
    let saved = 84_934_656.0 * (16.0 - 0.1 * 20.0);
    assert!((whole.1 - pruned.1 - saved).abs() < 0.03 * saved, "{} - {} is not {saved}", whole.1, pruned.1);
    assert!(pruned.2 < whole.2);
    let output = run(std::path::Path::new("."), &line("--framework quadrille --sparsity 0.9 --top 1"));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("0.9 of its blocks' matrices pruned"), "{text}");
    refused(
        &line("--sparsity 0.9"),
        &["--sparsity = 0.9", "megatron trains no pruned models", "--framework quadrille"],
    );
    // No layout copies pruned keys: of two there are two ranks along x at most.
    let keys = format!(
        "{} --set kv_heads=2 --fix data=1,pipe=1,z=1,y=1,context=1",
        line("--framework quadrille --sparsity 0.9")
    );
    refused(&keys.replace("--gpus 8", "--gpus 4"), &["x", "4 devices"]);
    refused(
        "explain --model gpt-tiny --set kv_heads=2 --grid x=4 --sparsity 0.9",
        &["qkv.weight is pruned", "the 4 ranks along x would hold copies of its 2 heads of keys", "use x=2"],
    );
    let explain = "explain --model gpt-tiny --grid data=2 --ledger --rank 0";
    let sent = |more: &str| {
        let document = json(&format!("{explain} {more}"));
        document["ranks"][0]["axes"]["data"]["all_reduce"]["payload_bytes"].as_u64().unwrap()
    };
    assert!(sent("--sparsity 0.9") < sent("") / 3);
}

/// States in the host's memory are no longer on the device, and their way there and back takes time.
#[test]
fn states_may_lie_in_the_hosts_memory() {
    let cluster = fs::read_to_string(CLUSTER).unwrap().replace("[device]\n", "[device]\nhost_bandwidth = 2e10\n");
    let folder = folder_with("cluster.toml", &cluster);
    let best = |more: &str| {
        let line = line(&format!(
            "--framework quadrille --top 1 --fix data=8,zero=0,recompute=none,microbatch=1 {more} --json"
        ));
        let output = run(folder.path(), &line.replace(CLUSTER, "cluster.toml"));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        plans(&document)[0].clone()
    };
    let plain = best("");
    let offloaded = best("--offload host --bucket 1000000");
    assert_eq!((&offloaded["layout"]["offload"], &offloaded["layout"]["bucket"]), (&"host".into(), &1_000_000.into()));
    // Two moments of 124 million parameters, less two buckets of them.
    let states = 8.0 * 124_439_808.0;
    let left = number(&plain, "memory_bytes") - number(&offloaded, "memory_bytes");
    assert!((left - (states - 16e6)).abs() < 1e6, "{left} of {states}");
    let copied = number(&offloaded, "time_s") - number(&plain, "time_s");
    assert!(copied > 0.5 * 2.0 * states / 2e10, "{copied}");
    refused(&line("--framework quadrille --offload host"), &["host_bandwidth"]);
    // Megatron-LM offloads states, too, where they are sharded.
    refused(&line("--offload host"), &["host_bandwidth"]);
    // States that the host has no room for are no reason to search for longer.
    let small = cluster.replace("host_bandwidth = 2e10\n", "host_bandwidth = 2e10\nhost_memory = 1000000\n");
    fs::write(folder.path().join("cluster.toml"), small).unwrap();
    let line = line("--framework quadrille --offload host --fix data=8,zero=0").replace(CLUSTER, "cluster.toml");
    refused_in(folder.path(), &line, &["8 devices", "host_memory", "offload = none"]);
}

/// A grid without an order has that of the framework which runs it: experts inside the shards of weights, as Megatron-LM and
/// torchtitan place them, but in this program's engine.
#[test]
fn ranks_are_in_the_usual_order_of_their_framework() {
    let line =
        "explain --model mixtral-8x7b --cluster dgx-b200 --grid z=16,expert=8 --global-batch 128 --microbatch 16";
    let priced = |more: &str| json(&format!("{line} --price {more}"))["plan"].clone();
    for framework in ["megatron", "fsdp"] {
        let usual = priced(&format!("--framework {framework}"));
        let said = priced(&format!("--framework {framework} --order x,y,context,expert,z,data,pipe"));
        assert_eq!(usual, said, "{framework}");
        let engine = priced(&format!("--framework {framework} --order x,y,z,context,expert,data,pipe"));
        let seconds = [&usual, &engine].map(|plan| number(plan, "time_s"));
        assert!(seconds[1] > 1.1 * seconds[0], "{framework}: tokens that leave their node: {seconds:?} s");
    }
    let own = priced("--framework quadrille");
    assert_eq!(own, priced("--framework quadrille --order x,y,z,context,expert,data,pipe"));
    let explained = |more: &str| {
        let output = run(std::path::Path::new("."), &format!("{line} {more}"));
        String::from_utf8(output.stdout).unwrap()
    };
    for (more, printed) in [
        ("--framework megatron", "(128 ranks, megatron's order expert,z, 8 per node)"),
        ("--framework quadrille", "(128 ranks, quadrille's order z,expert, 8 per node)"),
        ("--framework megatron --order x,y,z,expert,data", "(128 ranks, order z,expert, 8 per node)"),
    ] {
        let text = explained(more);
        assert!(text.contains(printed), "{text}");
    }
    let text = |to: &str| {
        let line = line.replace("explain", &format!("export --to {to}"));
        String::from_utf8(run(std::path::Path::new("."), &line).stdout).unwrap()
    };
    for to in ["megatron", "torchtitan", "nemo"] {
        let text = text(to);
        assert!(!text.contains("order =") && !text.contains("spreads experts over"), "{text}");
    }
}

/// Peaks are of a device, a type and who multiplies: f32 without TF32, f16 of this program widened to f32, V100 without bf16.
#[test]
fn peaks_are_those_of_the_type_that_is_multiplied() {
    let line = |cluster: &str, more: &str| {
        format!(
            "explain --price --model gpt2-124m --grid data=6 --global-batch 48 --per-node 6 --cluster {cluster} {more}"
        )
    };
    let text = |cluster: &str, more: &str| {
        let output = run(std::path::Path::new("."), &line(cluster, more));
        assert!(output.status.success(), "{cluster} {more}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    for (cluster, more, words) in [
        ("dgx-h100", "--framework quadrille", "that x 66.9 TFLOP/s (f32 peak)"),
        ("dgx-h100", "--framework quadrille --dtype f16", "that x 66.9 TFLOP/s (f32 peak)"),
        ("dgx-h100", "--framework quadrille --dtype bf16", "that x 989 TFLOP/s (16-bit peak)"),
        ("dgx-h100", "--framework quadrille --dtype f64", "that x 66.9 TFLOP/s (f64 peak)"),
        ("dgx-a100", "--framework quadrille --dtype f16", "that x 19.5 TFLOP/s (f32 peak)"),
        ("summit", "--framework quadrille --dtype f16", "that x 15.7 TFLOP/s (f32 peak)"),
        ("summit", "--framework megatron", "that x 125 TFLOP/s (f16 peak)"),
        ("summit", "--framework fsdp", "by fsdp in f16, since v100-16 has no bf16"),
    ] {
        let text = text(cluster, more);
        assert!(text.contains(words), "{cluster} {more}: {text}");
    }
    assert!(!text("dgx-a100", "--framework megatron").contains("has no bf16"));
    let bf16 = line("summit", "--framework quadrille --dtype bf16");
    refused(&bf16, &["dtype = bf16: v100-16 has no products of bf16", "give --dtype f32 or f16"]);
    refused(&bf16.replace("explain --price", "plan").replace("--grid data=6", "--gpus 6"), &["no products of bf16"]);
}

/// Layouts for devices without bf16 are exported in f16, as they were priced.
#[test]
fn layouts_for_volta_are_exported_in_f16() {
    let folder = tempfile::tempdir().unwrap();
    let line = "plan --model gpt2-124m --cluster summit --gpus 6 --fix x=1,y=1,z=1,context=1,pipe=1 --out best.toml";
    let output = run(folder.path(), line);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let file = fs::read_to_string(folder.path().join("best.toml")).unwrap();
    assert!(file.contains("dtype = \"f16\""), "{file}");
    let export = |to: &str, more: &str| {
        let output = run(folder.path(), &format!("export --to {to} --model gpt2-124m {more}"));
        (output.status.success(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
    };
    for layout in ["--layout best.toml", "--grid data=6 --cluster summit", "--grid data=6 --dtype f16"] {
        let (_, text) = export("megatron", layout);
        assert!(text.contains(" --fp16") && !text.contains("--bf16"), "{layout}: {text}");
        let (_, text) = export("deepspeed", layout);
        assert!(text.contains("\"bf16\": { \"enabled\": false }"), "{layout}: {text}");
        assert!(text.contains("\"fp16\": { \"enabled\": true"), "{layout}: {text}");
        assert!(export("nemo", layout).1.contains("mixed_precision: fp16_mixed"), "{layout}");
        assert!(export("axonn", layout).1.contains("dtype=torch.float16, enabled=True"), "{layout}");
        let (done, text) = export("torchtitan", layout);
        let (named, said) = if layout.contains("--dtype") {
            (false, "--dtype f16: not in torchtitan; give bf16 or f32")
        } else {
            (true, "torchtitan cannot express dtype = f16: torchtitan trains in bf16")
        };
        assert!(done == named && text.contains(said), "{layout}: {text}");
    }
    let (_, text) = export("megatron", "--layout best.toml --dtype bf16");
    assert!(text.contains(" --bf16") && !text.contains("--fp16"), "{text}");
    assert!(export("megatron", "--grid data=8 --cluster dgx-a100").1.contains(" --bf16"));
}
