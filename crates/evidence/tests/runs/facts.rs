//! What is known of sources beyond their columns: shardings, kernels, what was computed again.

use quadrille_cost::native::AttentionKernel;
use quadrille_evidence::{Run, Unmapped};
use quadrille_spec::{Axis, Recompute};

use crate::{reason, row, run};

#[test]
fn zero_3_of_ptd_p_lies_on_z_and_uses_one_adapter() {
    let run = run(&[
        ("source", "Narayanan et al. 2021 (PTD-P)"),
        ("table", "Table 2"),
        ("tp", "1"),
        ("pp", "1"),
        ("dp", "64"),
        ("vpp", "1"),
        ("zero_stage", "3"),
        ("recompute", "full"),
        ("sequence_parallel", "0"),
    ]);
    assert_eq!((run.candidate.size(Axis::Z), run.candidate.microbatch), (64, 64));
    assert_eq!((run.cluster.tiers[1].links, run.candidate.overlap.reduce_scatter), (1, false));
    assert!(run.candidate.overlap.all_gather);
}

#[test]
fn kernels_and_layouts_that_rows_do_not_say_are_refused() {
    let test = |table, notes| {
        let cells = [("metric", "memory_gb"), ("table", table), ("notes", notes), ("vpp", "1"), ("recompute", "none")];
        let source = ("source", "NVIDIA/Megatron-LM tests/functional_tests");
        Run::of(&row(&[&cells[..], &[source]].concat())).map(|run| run.framework.attention)
    };
    let te = "deterministic mode (slower). transformer-impl=transformer_engine";
    assert_eq!(test("gpt/te_tp1_resume_torch/golden", te), Err(Unmapped::Kernels));
    assert_eq!(test("gpt/te_tp1/golden", te), Ok(AttentionKernel::Stored));
    assert_eq!(test("gpt/te_tp1/golden", "transformer-impl=transformer_engine"), Ok(AttentionKernel::Flash));
    assert_eq!(
        test("gpt/tp1_resume/golden", "deterministic mode. transformer-impl=local"),
        Ok(AttentionKernel::Stored)
    );
    assert_eq!(test("gpt/te_uneven_pipeline/golden", te), Err(Unmapped::Architecture("stages of other sizes")));
    // Their steps take what the same bits cost.
    let steps = [
        ("source", "NVIDIA/Megatron-LM tests/functional_tests"),
        ("table", "gpt/te_tp1/golden"),
        ("vpp", "1"),
        ("recompute", "none"),
        ("notes", te),
    ];
    assert_eq!(reason(&steps), Unmapped::Deterministic);
    // torchtitan shards parameters over context, too.
    let titan = [
        ("source", "pytorch/torchtitan"),
        ("model_name", "Llama-3.1-8B"),
        ("metric", "memory_gb"),
        ("recompute", "full"),
        ("tp", "1"),
        ("pp", "1"),
        ("vpp", "1"),
        ("zero_stage", "3"),
        ("dp", "32"),
        ("cp", "2"),
    ];
    assert_eq!(reason(&titan), Unmapped::Layout);
}

#[test]
fn kernels_of_the_llama_sweeps_are_in_their_notes() {
    let framework = |kernel| {
        let notes = format!("trial 1; kernel {kernel}; more");
        let cells = [("source", "Hagemann et al. 2023"), ("model_name", "Llama 13B"), ("notes", notes.as_str())];
        let network = ("interconnect", "NVSwitch + IB (DGX A100)");
        run(&[&cells[..], &[network]].concat()).framework
    };
    let best = framework("flash_attention2 + RMS kernel");
    assert!(best.fused_norms && !best.eager.norms && !best.eager.scores && best.attention_rate == 1.0);
    let first = framework("flash_attentionv1.0.8");
    assert!(first.eager.norms && first.attention_rate == 0.5 && first.attention == AttentionKernel::Flash);
    let torch = framework("torch");
    assert!(torch.eager.scores && torch.attention == AttentionKernel::Stored);
    assert!(!framework("fused").eager.scores);
    assert!([best, first, torch].iter().all(|framework| framework.gates_apart));
}

/// What is said to be computed again on one node cannot be; its head has the columns that its simulator gives it.
#[test]
fn steps_of_vtrain_on_one_node_recompute_nothing_and_pad_nothing() {
    let on = |table, tp| {
        let source = if table == "single-node" { "single" } else { "multi" };
        let source = format!("VIA-Research/vTrain data/ground_truth_{source}.csv");
        let cells = [
            ("source", source.as_str()),
            ("table", table),
            ("interconnect", "NVSwitch + 800 Gb/s per node"),
            ("vocab", "50257"),
            ("vpp", "1"),
            ("recompute", "full"),
            ("tp", tp),
            ("dp", "1"),
            ("pp", if tp == "8" { "8" } else { "32" }),
            ("heads", "96"),
            ("layers", "96"),
        ];
        let run = run(&cells);
        (run.candidate.recompute, run.model.vocab, run.framework.vocab_multiple)
    };
    assert_eq!(on("single-node", "8"), (Recompute::None, 50_256, 1));
    assert_eq!(on("single-node", "2"), (Recompute::None, 50_256, 1));
    assert_eq!(on("multi-node", "8"), (Recompute::Full { every: 1 }, 51_200, 128));
}
