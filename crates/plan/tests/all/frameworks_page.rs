//! The book's page of frameworks is the table.

use quadrille_plan::frameworks::{Capability, Support, page};

use quadrille_plan::export::Framework;

/// `UPDATE_DOCS=1` writes it.
#[test]
fn the_page_is_the_table() {
    let path = format!("{}/../../docs/src/reference/frameworks.md", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, page()).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(written == page(), "{path} is not the table: run this test with UPDATE_DOCS=1");
}

/// Options that their frameworks have, as their own documentation names them.
#[test]
fn options_are_those_of_their_frameworks() {
    for (framework, capability, option) in [
        (Framework::Megatron, Capability::Offload, "--optimizer-cpu-offload"),
        (Framework::Megatron, Capability::HiddenAllToAlls, "--overlap-moe-expert-parallel-comm"),
        (Framework::Megatron, Capability::NarrowGradients, "--grad-reduce-in-bf16"),
        (Framework::Megatron, Capability::SelectiveRecompute, "--recompute-modules"),
        (Framework::Torchtitan, Capability::Offload, "training.enable_cpu_offload"),
        (Framework::Torchtitan, Capability::LatentAttention, "deepseek_v3"),
        (Framework::Nemo, Capability::NarrowGradients, "ddp.grad_reduce_in_fp32"),
        (Framework::Nemo, Capability::Offload, "optimizer.optimizer_cpu_offload"),
        (Framework::DeepSpeed, Capability::Offload, "zero_optimization.offload_optimizer"),
    ] {
        let statement = framework.statements().iter().find(|statement| statement.capability == capability).unwrap();
        assert!(statement.option.contains(option), "{framework}: {}", statement.option);
        assert!(!matches!(statement.support, Support::Absent(_)), "{framework}: {option}");
    }
}
