//! `quadrille export`: where the text and the warnings go, exit codes, and layouts from files.

use crate::common::{json, run};

fn output(line: &str) -> (Option<i32>, String, String) {
    let folder = tempfile::tempdir().unwrap();
    let output = run(folder.path(), line);
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn flags_go_to_standard_output_and_what_is_left_out_to_standard_error() {
    let (code, text, warnings) = output("export --to megatron --model llama3-8b --grid x=4,data=2 --gpus-per-node 4");
    assert_eq!((code, warnings.as_str()), (Some(0), ""));
    assert!(text.contains("torchrun --nnodes 2 --nproc-per-node 4 pretrain_gpt.py"));
    assert!(text.contains("--tensor-model-parallel-size 4") && text.contains("--bf16"));
    let line = "export --to megatron --model gpt-20b --grid x=2,y=2,pipe=2 --schedule message-driven --dtype f32";
    let (code, text, warnings) = output(line);
    assert_eq!(code, Some(0));
    assert!(!text.contains("--bf16"));
    for part in ["y=2", "schedule = message-driven"] {
        assert!(warnings.contains(&format!("warning: megatron cannot express {part}: ")), "{warnings}");
        assert!(text.contains(&format!("# Not expressed: {part}: ")), "{text}");
    }
    let (code, text, error) = output(&format!("{line} --strict"));
    assert_eq!((code, text.as_str()), (Some(1), ""));
    assert!(error.contains("--strict: megatron cannot express") && error.contains("y=2"), "{error}");
    assert_eq!(output("export --to megatron --model gpt-20b --grid x=2 --strict").0, Some(0));
}

/// No machine has as many devices as a large layout has ranks: nodes of a usual size are taken, and that is said.
#[test]
fn nodes_of_which_nothing_is_said_are_of_a_usual_size() {
    let assumed = "devices of a node are assumed; --gpus-per-node or --cluster says how many there are";
    for (layout, nodes, devices) in [("--grid x=8,data=4", 4, 8), ("--grid x=4,data=3", 2, 6)] {
        let (code, text, notes) =
            output(&format!("export --to megatron --model llama3-8b {layout} --global-batch 12 --strict"));
        assert_eq!((code, notes), (Some(0), format!("note: {devices} {assumed}\n")));
        assert!(text.contains(&format!("torchrun --nnodes {nodes} --nproc-per-node {devices} ")), "{text}");
    }
    for (said, devices) in [("--gpus-per-node 16", 16), ("--per-node 4", 4), ("--cluster perlmutter", 4)] {
        let (code, text, notes) = output(&format!("export --to megatron --model llama3-8b --grid x=4,data=4 {said}"));
        assert_eq!((code, notes.as_str()), (Some(0), ""), "{said}");
        assert!(text.contains(&format!("--nproc-per-node {devices} ")), "{text}");
    }
}

#[test]
fn documents_hold_text_and_warnings() {
    let document = json("export --to deepspeed --model gpt-20b --grid z=2,data=2");
    assert_eq!(document["framework"], "deepspeed");
    assert!(document["cannot_express"][0].as_str().unwrap().starts_with("data=2 beside z=2: "));
    let text: serde_json::Value = serde_json::from_str(document["text"].as_str().unwrap()).unwrap();
    assert_eq!(text["zero_optimization"]["stage"], 3);
}

/// A file says all that flags can, as `train --layout` takes it; the grid may also be chosen for a cluster, whose nodes
/// count.
#[test]
fn layouts_come_from_files_and_searches() {
    let folder = tempfile::tempdir().unwrap();
    let file = "grid = \"x=2,pipe=2\"\nschedule = \"interleaved\"\nchunks = 2\nper_node = 2\nrecompute = \"full\"\n";
    std::fs::write(folder.path().join("layout.toml"), file).unwrap();
    let output = run(folder.path(), "export --to nemo --model llama-tiny --set layers=4 --layout layout.toml");
    let text = String::from_utf8(output.stdout).unwrap();
    for part in
        ["nnodes 2 --nproc-per-node 2", "virtual_pipeline_model_parallel_size: 2", "recompute_granularity: full"]
    {
        assert!(text.contains(part), "{part} in {text}");
    }
    let line = "export --to axonn --model gpt-10b --ranks 16 --cluster frontier --activations replicated";
    let document = json(line);
    assert!(document["text"].as_str().unwrap().contains("gpus_per_node=8"), "{document}");
}

/// Megatron-LM pads vocabularies: a plan prices its padding, and what is exported asks for it, planned or typed, unless another is
/// said. torchtitan takes them as they are.
#[test]
fn vocabularies_are_padded_as_they_were_priced() {
    let folder = tempfile::tempdir().unwrap();
    let (code, text, gaps) = output("export --to megatron --model gpt2-124m --grid x=2 --gpus-per-node 2");
    assert_eq!((code, gaps.as_str()), (Some(0), ""));
    assert!(text.contains("--make-vocab-size-divisible-by 128 "), "{text}");
    let (_, text, _) = output("export --to megatron --model gpt2-124m --grid x=2 --gpus-per-node 2 --vocab-multiple 1");
    assert!(text.contains("--make-vocab-size-divisible-by 1 "), "{text}");
    let (_, _, gaps) = output("export --to torchtitan --model llama3-8b --grid x=2 --gpus-per-node 2");
    assert!(!gaps.contains("vocab-multiple"), "{gaps}");
    let planned = |framework: &str, to: &str| {
        let line =
            format!("plan --model gpt2-124m --gpus 2 --cluster dgx-a100 --framework {framework} --out best.toml");
        assert!(run(folder.path(), &line).status.success());
        let line = format!("export --to {to} --model gpt2-124m --layout best.toml --gpus-per-node 2");
        String::from_utf8(run(folder.path(), &line).stdout).unwrap()
    };
    assert!(planned("megatron", "megatron").contains("--make-vocab-size-divisible-by 128 "));
    assert!(planned("quadrille", "nemo").contains("make_vocab_size_divisible_by: 1\n"));
    // 50,257 columns are priced as 50,304: the head and its gradient are products of so many.
    let line = "explain --price --model gpt2-124m --cluster dgx-a100 --grid data=2 --framework megatron";
    let [usual, same, bare] =
        ["", "--vocab-multiple 128", "--vocab-multiple 1"].map(|more| json(&format!("{line} {more}")));
    assert_eq!(usual["plan"], same["plan"]);
    assert!(bare["plan"]["time_s"].as_f64() > usual["plan"]["time_s"].as_f64(), "rows that begin anywhere are slow");
}

/// A plan in 8 bits with narrow gradients and moments is exported as it was planned, by the way that the front page shows.
#[test]
fn types_of_a_plan_go_through_its_layout_file() {
    let folder = tempfile::tempdir().unwrap();
    let said = |line: &str| {
        let output = run(folder.path(), line);
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let plan = "plan --model gpt2-124m --gpus 4 --cluster dgx-h100 --products fp8 --gradients bf16 --moments bf16 \
                --fix data=4,zero=1 --out layout.toml";
    assert_eq!(said(plan).0, Some(0));
    let export =
        |to: &str, more: &str| said(&format!("export --to {to} --model gpt2-124m --layout layout.toml {more}"));
    let (code, text, notes) = export("megatron", "--strict");
    assert_eq!((code, notes.as_str()), (Some(0), ""));
    for flag in ["--fp8-recipe tensorwise", "--grad-reduce-in-bf16", "--exp-avg-dtype bf16", "--exp-avg-sq-dtype bf16"]
    {
        assert!(text.contains(flag), "{flag} in {text}");
    }
    let (_, text, _) = export("nemo", "");
    for part in ["  fp8_recipe: tensorwise", "  grad_reduce_in_fp32: false", "  exp_avg_dtype: torch.bfloat16"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let (code, text, notes) = export("deepspeed", "");
    assert!(code == Some(0) && text.contains("\"grad_accum_dtype\": \"bf16\""), "{text}");
    for part in ["products = fp8: ", "moments = bf16: "] {
        assert!(notes.contains(&format!("warning: deepspeed cannot express {part}")), "{notes}");
    }
    assert!(notes.contains("note: the layout was planned for megatron"), "{notes}");
    assert_eq!(export("deepspeed", "--strict").0, Some(1));
    // What is typed wins, and is an error where a framework lacks it.
    assert!(export("megatron", "--products mxfp8").1.contains("--fp8-recipe mxfp8"));
    let (code, _, error) = export("deepspeed", "--products fp8");
    assert!(code == Some(2) && error.contains("products = fp8: not in DeepSpeed: "), "{error}");
}

/// This program's engine has types of its own: those of a layout file are exported, or named.
#[test]
fn types_of_layouts_of_this_engine_are_exported_or_named() {
    let folder = tempfile::tempdir().unwrap();
    let exported = |file: &str, to: &str, more: &str| {
        std::fs::write(folder.path().join("layout.toml"), format!("grid = \"data=2\"\n{file}")).unwrap();
        let output = run(folder.path(), &format!("export --to {to} --model llama-tiny --layout layout.toml {more}"));
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (text(output.stdout), text(output.stderr))
    };
    let planned = "[planned]\nframework = \"quadrille\"\n";
    assert!(!exported(planned, "megatron", "").0.contains("--bf16"), "planned in f32");
    assert!(exported(planned, "megatron", "--dtype bf16").0.contains("--bf16"));
    assert!(exported("", "megatron", "").0.contains("--bf16"));
    assert!(!exported("dtype = \"f32\"\n", "megatron", "").0.contains("--bf16"));
    let (text, notes) = exported("dtype = \"bf16\"\ngradients = \"bf16\"\n", "megatron", "");
    assert!(text.contains("--bf16") && text.contains("--grad-reduce-in-bf16") && notes.is_empty(), "{notes}");
    for dtype in ["f16", "f64"] {
        let (_, notes) = exported(&format!("dtype = \"{dtype}\"\n"), "torchtitan", "");
        assert!(notes.contains(&format!("warning: torchtitan cannot express dtype = {dtype}: ")), "{notes}");
    }
}

/// A layout that a framework does not start is refused by the same rule wherever it is asked for.
#[test]
fn plans_prices_and_exports_give_the_same_answer() {
    for (layout, fixed, words) in [
        (
            "--model qwen3-30b-a3b --grid x=8 --global-batch 8",
            "--model qwen3-30b-a3b --gpus 8 --fix x=8 --global-batch 8",
            "x = 8: torchtitan gives each of these ranks as many heads of keys and values, of which there are 4; try x=4",
        ),
        (
            "--model llama3-8b --grid z=2,pipe=4 --global-batch 4 --microbatch 4",
            "--model llama3-8b --gpus 8 --fix z=2,pipe=4,microbatch=4,schedule=1f1b --global-batch 4",
            "microbatch = 4: torch's 1f1b has at least pipe=4 microbatches, and here are 1",
        ),
    ] {
        let on = "--cluster dgx-h100 --framework fsdp";
        for line in [
            format!("export --to torchtitan {layout}"),
            format!("explain --price {layout} {on}"),
            format!("plan {fixed} {on}"),
        ] {
            let (code, text, error) = output(&line);
            assert!(code != Some(0) && text.is_empty() && error.contains(words), "{line}: {code:?} {error}");
        }
        for line in [
            format!("export --to megatron {layout}"),
            format!("explain --price {layout} {on} --any-layout"),
            format!("explain --price {layout} --cluster dgx-h100 --framework megatron"),
        ] {
            let (code, _, error) = output(&line);
            assert_eq!(code, Some(0), "{line}: {error}");
        }
    }
}

#[test]
fn what_cannot_be_exported_is_refused() {
    for (line, words) in [
        ("export --grid x=2", "--to"),
        ("export --to jax --grid x=2", "known: megatron, torchtitan, deepspeed, nemo, axonn"),
        ("export --to megatron --model vit-tiny --grid x=2", "reads patches"),
        ("export --to axonn --grid context=2", "no axis that cuts sequences"),
        ("export --to megatron --grid x=2 --gpus-per-node 0", "gpus-per-node = 0"),
        (
            "export --to megatron --grid x=8 --gpus-per-node 3",
            "gpus-per-node=3 does not divide the number of ranks = 8",
        ),
        ("export --to megatron --grid x=3", "x=3 does not divide heads"),
    ] {
        let (code, text, error) = output(line);
        assert_eq!((code, text.as_str()), (Some(2), ""), "{line}: {error}");
        assert!(error.contains(words), "{line}: {error}");
    }
}
