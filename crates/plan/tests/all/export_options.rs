//! Options of frameworks that were once said to have none: offloaded states, recomputed activations of experts, DeepSeek-V3.

use quadrille_cost::native;
use quadrille_plan::export::{Export, Framework, Target, export};
use quadrille_spec::{Layout, LayoutRequest, Model, Offload, Recompute, SpecError, Zero};

use crate::export::TARGET;

fn exported(framework: Framework, name: &str, request: &LayoutRequest) -> Result<Export, SpecError> {
    let model = Model::preset(name).unwrap();
    export(framework, &model, &Layout::new(&model, request).unwrap(), &TARGET)
}

fn request(grid: &str) -> LayoutRequest {
    LayoutRequest { microbatch: Some(2), ..LayoutRequest::new(grid.parse().unwrap(), 8) }
}

/// States lie in the host's memory where the framework can put them, and the gap says what it does instead of buckets.
#[test]
fn offloaded_states_are_exported() {
    use Framework::{Axonn, DeepSpeed, Megatron, Nemo, Torchtitan};
    for (framework, grid, zero, parts) in [
        (
            Megatron,
            "data=2",
            Zero::Optimizer,
            &["--optimizer-cpu-offload", "--use-precision-aware-optimizer", "--use-distributed-optimizer"][..],
        ),
        (Megatron, "x=2", Zero::Off, &["--optimizer-cpu-offload", "--use-distributed-optimizer"]),
        (
            Nemo,
            "data=2",
            Zero::Optimizer,
            &["optimizer:\n  use_precision_aware_optimizer: true\n  optimizer_cpu_offload: true\n"],
        ),
        (DeepSpeed, "data=2", Zero::Optimizer, &["\"offload_optimizer\": { \"device\": \"cpu\" }"]),
        (Torchtitan, "z=2", Zero::Off, &["enable_cpu_offload = true\n"]),
    ] {
        let layout = LayoutRequest { zero, offload: Offload::Host, ..request(grid) };
        let Export { text, cannot_express } = exported(framework, "llama3-8b", &layout).unwrap();
        for part in parts {
            assert_eq!(text.matches(part).count(), 1, "{framework}: {part} in {text}");
        }
        let said = cannot_express.iter().find(|gap| gap.starts_with("offload = host: ")).unwrap();
        assert!(said.contains("processors") && said.contains("bucket = 16000000"), "{framework}: {said}");
        let on_device = exported(framework, "llama3-8b", &LayoutRequest { zero, ..request(grid) }).unwrap().text;
        assert!(!on_device.contains("offload"), "{framework}: {on_device}");
    }
    // Replicated states stay on the device, where a framework offloads any.
    let layout = LayoutRequest { offload: Offload::Host, ..request("data=2") };
    for framework in [Megatron, Nemo, DeepSpeed, Torchtitan] {
        let message = exported(framework, "llama3-8b", &layout).unwrap_err().to_string();
        assert!(
            message.contains("offload = host: ") && message.contains("or offload = none"),
            "{framework}: {message}"
        );
    }
    let Export { text, cannot_express } = exported(Axonn, "llama3-8b", &layout).unwrap();
    let code = text.lines().filter(|line| !line.starts_with('#')).collect::<String>();
    let said = cannot_express.iter().any(|gap| gap.starts_with("offload = host: "));
    assert!(said && !code.contains("offload"), "{cannot_express:?}");
}

/// Megatron's modules are norms and the activation functions of experts; scores, where they are stored.
#[test]
fn recomputed_modules_are_those_of_the_model() {
    let layout = LayoutRequest { recompute: Recompute::Selective, ..request("data=2") };
    let has_gap = |export: &Export| export.cannot_express.iter().any(|gap| gap.starts_with("recompute = selective: "));
    let of = |framework, name| exported(framework, name, &layout).unwrap();
    let mixtral = of(Framework::Megatron, "mixtral-8x7b");
    assert!(mixtral.text.contains("--recompute-modules layernorm moe_act \\\n") && !has_gap(&mixtral));
    assert!(of(Framework::Nemo, "mixtral-8x7b").text.contains("recompute_modules: [layernorm, moe_act]\n"));
    let llama = of(Framework::Megatron, "llama3-8b");
    assert!(llama.text.contains("--recompute-modules layernorm \\\n") && has_gap(&llama));
    let model = Model::preset("llama3-8b").unwrap();
    let stored = Target { planned: Some(native::Framework::MEGATRON_STORED), ..TARGET };
    let text = export(Framework::Megatron, &model, &Layout::new(&model, &layout).unwrap(), &stored).unwrap().text;
    assert!(text.contains("--recompute-modules core_attn layernorm \\\n"), "{text}");
}

/// The released DeepSeek-V3 is a flavor of torchtitan; other latent attention is refused.
#[test]
fn deepseek_v3_is_a_flavor_of_torchtitan() {
    let Export { text, cannot_express } = exported(Framework::Torchtitan, "deepseek-v3", &request("expert=2")).unwrap();
    assert!(text.contains("name = \"deepseek_v3\"\nflavor = \"671B\"\n"), "{text}");
    assert!(cannot_express.iter().any(|gap| gap.starts_with("norm_epsilon = 0.000001: ")), "{cannot_express:?}");
    assert!(
        !cannot_express.iter().any(|gap| gap.starts_with("model ") || gap.starts_with("rotary")),
        "{cannot_express:?}"
    );
    let message = exported(Framework::Torchtitan, "deepseek-v3", &request("context=2")).unwrap_err().to_string();
    assert!(message.starts_with("context = 2: torchtitan's flavors of deepseek_v3 have flex attention"), "{message}");
    let set = [("layers".to_owned(), "60".to_owned())];
    let other = Model::from_toml(Model::preset_text("deepseek-v3").unwrap(), &set).unwrap();
    let layout = Layout::new(&other, &request("expert=2")).unwrap();
    let message = export(Framework::Torchtitan, &other, &layout, &TARGET).unwrap_err().to_string();
    assert!(message.contains("torchtitan"), "{message}");
}
