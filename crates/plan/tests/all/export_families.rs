//! Published models of every family in other frameworks' words: what is said, and what is refused by name.

use quadrille_cost::native::{Moments, NarrowFormat, Numbers};
use quadrille_plan::export::{Export, Framework, Precision, Target, export};
use quadrille_spec::{ElementType, Layout, LayoutRequest, Model, SpecError, Zero};

use crate::export::TARGET;

/// The configuration of that name among those of the tests of crate spec, with these fields replaced.
fn read(name: &str, set: &[(&str, &str)]) -> Model {
    let file = format!("{}/../spec/tests/data/hugging_face/{name}.json", env!("CARGO_MANIFEST_DIR"));
    let set: Vec<_> = set.iter().map(|(field, value)| ((*field).to_owned(), (*value).to_owned())).collect();
    Model::from_hugging_face(&std::fs::read_to_string(file).unwrap(), &set).unwrap()
}

fn exported(framework: Framework, model: &Model, target: &Target) -> Result<Export, SpecError> {
    let request = LayoutRequest { zero: Zero::Optimizer, ..LayoutRequest::new("data=2".parse().unwrap(), 4) };
    export(framework, model, &Layout::new(model, &request).unwrap(), target)
}

fn text(framework: Framework, model: &Model) -> String {
    exported(framework, model, &TARGET).unwrap_or_else(|error| panic!("{framework}, {}: {error}", model.name)).text
}

/// Flags of Megatron-LM and overrides of Megatron Bridge for what each family has beside GPT and Llama.
#[test]
fn megatron_is_told_what_families_have() {
    let families: [(&str, &[&str], &[&str]); 9] = [
        (
            "llama-3.1-8b",
            &["--use-rope-scaling", "--rope-scaling-factor 8"],
            &["rope_scaling: true", "rope_scaling_factor: 8"],
        ),
        ("llama-3.2-1b", &["--use-rope-scaling", "--rope-scaling-factor 32"], &["rope_scaling_factor: 32"]),
        ("qwen2.5-7b", &["--add-qkv-bias", "--disable-bias-linear"], &["add_qkv_bias: true", "add_bias_linear: false"]),
        ("qwen3-8b", &["--qk-layernorm"], &["qk_layernorm: true", "add_qkv_bias: false"]),
        ("mistral-7b-v0.1", &["--window-size 4095,0"], &["window_size: [4095, 0]", "window_attn_skip_freq: null"]),
        ("phi-3-mini-4k", &["--window-size 2046,0"], &["window_size: [2046, 0]"]),
        ("smollm2-135m", &["--num-query-groups 3"], &["num_query_groups: 3", "rope_scaling: false"]),
        (
            "starcoder2-3b",
            &["--window-size 4095,0", "--rotary-base 1000000"],
            &["window_size: [4095, 0]", "rotary_percent: 1.0"],
        ),
        (
            "deepseek-v3",
            &[
                "--multi-latent-attention",
                "--q-lora-rank 1536",
                "--kv-lora-rank 512",
                "--qk-head-dim 128",
                "--qk-pos-emb-head-dim 64",
                "--v-head-dim 128",
                "--rope-type yarn",
                "--rotary-scaling-factor 40",
                "--mscale 1",
                "--mscale-all-dim 1",
                "--qk-layernorm",
                "--moe-layer-freq '[0]*3+[1]*58'",
            ],
            &["multi_latent_attention: true", "mscale_all_dim: 1", "qk_layernorm: true", "rope_type: yarn"],
        ),
    ];
    for (name, flags, overrides) in families {
        // The base that the file says is no whole number.
        let set: &[_] = if name.starts_with("starcoder") { &[("rotary_base", "1000000")] } else { &[] };
        let model = read(name, set);
        let megatron = text(Framework::Megatron, &model);
        let lines: Vec<&str> = megatron.lines().map(|line| line.trim().trim_end_matches(" \\")).collect();
        flags.iter().for_each(|flag| assert!(lines.contains(flag), "{name}: {flag} in {megatron}"));
        let nemo = text(Framework::Nemo, &model);
        let lines: Vec<&str> = nemo.lines().map(str::trim).collect();
        overrides.iter().for_each(|line| assert!(lines.contains(line), "{name}: {line} in {nemo}"));
    }
    // What a plain Llama has none of is not said.
    let plain = text(Framework::Megatron, &read("llama-3-8b", &[]));
    for flag in
        ["rope-scaling", "qkv-bias", "qk-layernorm", "window", "softmax-scale", "rotary-percent", "latent", "1p"]
    {
        assert!(!plain.contains(flag), "{flag} in {plain}");
    }
}

/// Fields that no family above has alone.
#[test]
fn megatron_is_told_single_properties() {
    for (set, flag) in [
        (&[("rotary_dim", "64")][..], "--rotary-percent 0.5"),
        (&[("rotary_scaling", "linear"), ("rotary_factor", "4")], "--rotary-seq-len-interpolation-factor 4"),
        (&[("norm_offset", "true")], "--apply-layernorm-1p"),
        (&[("activation", "relu2")], "--squared-relu"),
        (&[("biases", "true"), ("activation", "gelu-erf")], "--no-bias-gelu-fusion"),
        (&[("head_dim", "64"), ("rotary_dim", "16")], "--rotary-percent 0.25"),
    ] {
        let text = text(Framework::Megatron, &read("llama-3-8b", set));
        assert!(text.lines().any(|line| line.trim().trim_end_matches(" \\") == flag), "{flag} in {text}");
    }
    // Of scores no flag says it.
    let scaled = read("llama-3-8b", &[("score_scale", "2")]);
    assert!(text(Framework::Nemo, &scaled).contains("softmax_scale: 0.17677669529663687\n"));
    let message = exported(Framework::Megatron, &scaled, &TARGET).unwrap_err().to_string();
    assert!(message.starts_with("score_scale = 2: megatron"), "{message}");
    let windows = text(Framework::Megatron, &alternating());
    assert!(
        windows.contains("--window-size 511,0") && windows.contains("--window-attn-skip-freq '([1]+[0])*2'"),
        "{windows}"
    );
    // Positions that all heads share turn with frequencies as they are, by a kernel that is not fused.
    let latent = text(Framework::Megatron, &Model::preset("kimi-k2").unwrap());
    for flag in ["--rope-type rope", "--rotary-scaling-factor 1", "--no-rope-fusion", "--mscale 0"] {
        assert!(latent.contains(flag), "{flag} in {latent}");
    }
}

/// Llama's blocks, every second without its window.
fn alternating() -> Model {
    let file = "name = \"w\"\nlayers = 4\nhidden = 64\nheads = 4\nvocab = 128\nseq_len = 1024\nnorm = \"rms\"\npositions = \
                \"rotary\"\nactivation = \"swiglu\"\nbiases = false\ntied_head = false\nwindow = 512\n[[blocks]]\nevery = 2\n\
                from = 1\nwindow = 0\n";
    Model::from_toml(file, &[]).unwrap()
}

/// What is not the same function is refused, by the key of the model's file.
#[test]
fn what_others_compute_otherwise_is_refused() {
    let refusal = |framework, model: &Model| exported(framework, model, &TARGET).unwrap_err().to_string();
    let llama = |set: &[(&str, &str)]| read("llama-3-8b", set);
    let deepseek = |set: &[(&str, &str)]| read("deepseek-v3", set);
    for (model, field) in [
        (read("gemma-2b", &[]), "embedding_scale"),
        (read("gemma-2-2b", &[]), "embedding_scale"),
        (read("gemma-3-1b", &[]), "embedding_scale"),
        (read("pythia-1b", &[]), "residual"),
        (read("gpt-neox-20b", &[]), "residual"),
        (llama(&[("qk_norm", "rms-all")]), "qk_norm"),
        (llama(&[("norm_place", "after")]), "norm_place"),
        (llama(&[("attention_cap", "50")]), "attention_cap"),
        (llama(&[("rotary_scaling", "yarn"), ("rotary_factor", "4")]), "rotary_scaling"),
        (llama(&[("rotary_scaling", "linear"), ("rotary_factor", "2.5")]), "rotary_scaling"),
        (llama(&[("rotary_scaling", "llama3"), ("rotary_factor", "8"), ("rotary_low", "2")]), "rotary_scaling"),
        (
            llama(&[("rotary_scaling", "llama3"), ("rotary_factor", "8"), ("rotary_positions", "4096")]),
            "rotary_scaling",
        ),
        (read("kimi-k2", &[]), "rotary_scaling"),
        (deepseek(&[("score_scale", "0.5")]), "score_scale"),
        (deepseek(&[("rotary_positions", "8192")]), "rotary_scaling"),
    ] {
        for framework in [Framework::Megatron, Framework::Nemo] {
            let message = refusal(framework, &model);
            assert!(message.starts_with(field), "{framework}, {field}: {message}");
        }
    }
    for (name, field) in [
        ("llama-3.2-1b", "rotary_scaling"),
        ("qwen2.5-7b", "qkv_bias"),
        ("mistral-7b-v0.1", "window"),
        ("kimi-k2", "key_value_latent"),
    ] {
        let message = refusal(Framework::Torchtitan, &read(name, &[]));
        assert!(message.starts_with(field) && message.contains("torchtitan"), "{name}: {message}");
    }
    // Its Llama 3 is Llama 3.1, so that nothing is missing.
    let llama = exported(Framework::Torchtitan, &read("llama-3.1-8b", &[]), &TARGET).unwrap();
    assert!(llama.text.contains("flavor = \"8B\"") && !llama.cannot_express.iter().any(|gap| gap.contains("rotary")));
    // Those who are told of layouts alone take them all.
    for name in ["gemma-2-2b", "pythia-1b", "qwen2.5-7b", "mistral-7b-v0.1"] {
        for framework in [Framework::DeepSpeed, Framework::Axonn] {
            assert!(exported(framework, &read(name, &[]), &TARGET).is_ok(), "{framework}, {name}");
        }
    }
}

fn with(numbers: Numbers) -> Target {
    Target { numbers, ..TARGET }
}

fn of_products(format: NarrowFormat) -> Target {
    with(Numbers { products: Some(format), ..Numbers::default() })
}

/// Operands of products, gradients and moments.
#[test]
fn types_of_numbers_are_said() {
    let llama = read("llama-3-8b", &[]);
    let text = |framework, target| exported(framework, &llama, &target).unwrap().text;
    for (format, flags, recipe) in [
        (NarrowFormat::Fp8, "--fp8-format hybrid \\\n  --fp8-recipe tensorwise", "bf16_with_fp8_current_scaling_mixed"),
        (
            NarrowFormat::Fp8Block,
            "--fp8-format e4m3 \\\n  --fp8-recipe blockwise",
            "bf16_with_fp8_subchannel_scaling_mixed",
        ),
        (NarrowFormat::Mxfp8, "--fp8-format e4m3 \\\n  --fp8-recipe mxfp8", "bf16_with_mxfp8_mixed"),
        (NarrowFormat::Nvfp4, "--fp4-format e2m1 \\\n  --fp4-recipe nvfp4", "bf16_with_nvfp4_mixed"),
    ] {
        let megatron = text(Framework::Megatron, of_products(format));
        assert!(megatron.contains(flags), "{megatron}");
        let nemo = text(Framework::Nemo, of_products(format));
        assert!(nemo.contains(&format!("mixed_precision: {recipe}\n")), "{nemo}");
    }
    let states = with(Numbers { gradients: Some(ElementType::Bf16), moments: Some(Moments::Bf16), products: None });
    let megatron = text(Framework::Megatron, states);
    for flag in
        ["--grad-reduce-in-bf16", "--use-precision-aware-optimizer", "--exp-avg-dtype bf16", "--exp-avg-sq-dtype bf16"]
    {
        assert!(megatron.contains(flag), "{flag} in {megatron}");
    }
    let nemo = text(Framework::Nemo, states);
    for part in [
        "ddp:\n  use_distributed_optimizer: true",
        "  grad_reduce_in_fp32: false\n",
        "optimizer:\n  use_precision_aware_optimizer: true\n  exp_avg_dtype: torch.bfloat16\n",
    ] {
        assert!(nemo.contains(part), "{part} in {nemo}");
    }
    let gradients = with(Numbers { gradients: Some(ElementType::Bf16), ..Numbers::default() });
    assert!(text(Framework::DeepSpeed, gradients).contains("\"data_types\": { \"grad_accum_dtype\": \"bf16\" }"));
    for (format, parts) in [
        (
            NarrowFormat::Fp8,
            [
                "converters = [\"quantize.linear.float8\"]",
                "[quantize.linear.float8]\nrecipe_name = \"tensorwise\"\nfilter_fqns = [\"output\"]",
            ],
        ),
        (
            NarrowFormat::Mxfp8,
            ["converters = [\"quantize.linear.mx\"]", "[quantize.linear.mx]\nrecipe_name = \"mxfp8_cublas\""],
        ),
    ] {
        let titan = text(Framework::Torchtitan, of_products(format));
        parts.iter().for_each(|part| assert!(titan.contains(part), "{part} in {titan}"));
    }
}

#[test]
fn types_that_a_framework_lacks_are_refused() {
    let llama = read("llama-3-8b", &[]);
    let refusal = |framework, target: Target| exported(framework, &llama, &target).unwrap_err().to_string();
    let [gradients, moments] = [
        with(Numbers { gradients: Some(ElementType::Bf16), ..Numbers::default() }),
        with(Numbers { moments: Some(Moments::Fp8), ..Numbers::default() }),
    ];
    for (framework, target, field) in [
        (Framework::Torchtitan, of_products(NarrowFormat::Nvfp4), "products = nvfp4"),
        (Framework::Torchtitan, of_products(NarrowFormat::Fp8Block), "products = fp8-block"),
        (Framework::Torchtitan, gradients, "gradients = bf16"),
        (Framework::Torchtitan, moments, "moments = fp8"),
        (Framework::DeepSpeed, of_products(NarrowFormat::Fp8), "products = fp8"),
        (Framework::DeepSpeed, moments, "moments = fp8"),
        (Framework::Axonn, gradients, "gradients = bf16"),
        (Framework::Axonn, of_products(NarrowFormat::Mxfp8), "products = mxfp8"),
        (Framework::Megatron, Target { precision: Precision::F32, ..of_products(NarrowFormat::Fp8) }, "products = fp8"),
        (Framework::Megatron, Target { precision: Precision::F32, ..gradients }, "gradients = bf16"),
    ] {
        let message = refusal(framework, target);
        assert!(message.starts_with(field), "{framework}: {message}");
    }
    // Megatron's narrow moments are the distributed optimizer's.
    let request = LayoutRequest { zero: Zero::Off, ..LayoutRequest::new("data=2".parse().unwrap(), 4) };
    let layout = Layout::new(&llama, &request).unwrap();
    let message = export(Framework::Megatron, &llama, &layout, &moments).unwrap_err().to_string();
    assert!(message.starts_with("moments = fp8: ") && message.contains("zero = 1"), "{message}");
}

/// What a framework casts otherwise than is priced is no secret.
#[test]
fn casts_that_differ_are_said() {
    let gaps =
        |framework, model: &Model, format| exported(framework, model, &of_products(format)).unwrap().cannot_express;
    let has =
        |gaps: &[String], words: &str| gaps.iter().any(|gap| gap.starts_with("products = ") && gap.contains(words));
    let llama = read("llama-3-8b", &[]);
    let mixtral = read("mixtral-8x7b", &[]);
    assert!(has(&gaps(Framework::Nemo, &llama, NarrowFormat::Fp8), "first and the last block"));
    assert!(has(&gaps(Framework::Nemo, &llama, NarrowFormat::Mxfp8), "gathered in 8 bits"));
    assert!(!has(&gaps(Framework::Nemo, &llama, NarrowFormat::Fp8Block), ""));
    assert!(has(&gaps(Framework::Torchtitan, &mixtral, NarrowFormat::Fp8), "experts"));
    assert!(!has(&gaps(Framework::Torchtitan, &llama, NarrowFormat::Fp8), ""));
}

/// Gammas of queries and keys that are no distances from 1 where all others are: one switch decides of all.
#[test]
fn norms_that_differ_are_refused() {
    let mixed = |offset: bool| {
        let model = read("qwen3-8b", &[("norm_offset", "true")]);
        let blocks = model.blocks.each(|block| {
            block.attention.qk_norm.iter_mut().for_each(|norm| norm.rule.offset = offset);
        });
        Model { blocks, ..model }
    };
    assert!(text(Framework::Megatron, &mixed(true)).contains("--apply-layernorm-1p"));
    let message = exported(Framework::Megatron, &mixed(false), &TARGET).unwrap_err().to_string();
    assert!(message.starts_with("norm_offset = true"), "{message}");
}
