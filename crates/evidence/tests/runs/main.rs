//! Rows of published runs: how each convention becomes seconds, how columns become a layout, why rows are left out,
//! what sources say beyond their columns, and how well the built-in rows are met.

use quadrille_cost::native::Framework;
use quadrille_evidence::{BUILT_IN, Convention, Measured, Metric, Row, Run, Unmapped, evaluate, read};
use quadrille_spec::{Activation, Activations, Axis, AxisSet, KeepWeights, Norm, Overlap, Recompute, Schedule, Zero};

mod facts;
mod reached;

/// A row of Korthikanti's table 5 with some cells replaced.
fn row(cells: &[(&str, &str)]) -> Row {
    let base = [
        ("source", "Korthikanti et al. 2022 (test)"),
        ("table", "Table 5"),
        ("model_name", "gpt3-175B"),
        ("layers", "96"),
        ("hidden", "12288"),
        ("heads", "96"),
        ("kv_heads", "96"),
        ("ffn_hidden", "49152"),
        ("seq_len", "2048"),
        ("vocab", "51200"),
        ("gpu", "A100-80GB SXM"),
        ("n_gpus", "64"),
        ("gpus_per_node", "8"),
        ("interconnect", "NVSwitch + HDR IB (Selene)"),
        ("tp", "8"),
        ("pp", "8"),
        ("dp", "1"),
        ("cp", "1"),
        ("ep", ""),
        ("vpp", "3"),
        ("microbatch", "1"),
        ("global_batch", "64"),
        ("recompute", "selective"),
        ("sequence_parallel", "1"),
        ("zero_stage", "0"),
        ("dtype", "fp16 mixed"),
        ("metric", "iter_time_s"),
        ("value", "13.75"),
        ("flop_convention", ""),
        ("notes", ""),
        ("measured", "1"),
        ("derived_iter_s", ""),
    ];
    let columns: Vec<&str> = base.iter().map(|(column, _)| *column).collect();
    for (column, _) in cells {
        assert!(columns.contains(column), "{column}");
    }
    let values = base.iter().map(|(column, value)| {
        let replaced = cells.iter().find(|(other, _)| other == column).map_or(*value, |(_, value)| value);
        format!("\"{replaced}\"")
    });
    let text = format!("{}\n{}\n", columns.join(","), values.collect::<Vec<_>>().join(","));
    read(&text).unwrap().remove(0)
}

fn run(cells: &[(&str, &str)]) -> Run {
    Run::of(&row(cells)).unwrap()
}

fn reason(cells: &[(&str, &str)]) -> Unmapped {
    Run::of(&row(cells)).unwrap_err()
}

/// Within a millionth.
fn assert_seconds(measured: Measured, expected: f64) {
    let Measured::Seconds(seconds) = measured else { panic!("{measured:?}") };
    assert!((seconds / expected - 1.0).abs() < 1e-6, "{seconds} instead of {expected}");
}

#[test]
fn every_convention_becomes_seconds() {
    assert_seconds(run(&[]).measured, 13.75);
    // 64 * 2048 tokens over 64 devices at 100 tokens a second.
    assert_seconds(run(&[("metric", "tokens_per_s_per_gpu"), ("value", "100")]).measured, 20.48);
    // 96 * 131072 * 96 * 12288^2 * (1 + 2048/73728 + 51200/18874368) FLOP over 64 devices at 150e12.
    let equation_3 = ("flop_convention", "HW FLOPs incl. full recompute: F=96*B*s");
    let teraflops = [("metric", "tflops_per_gpu"), ("value", "150"), equation_3];
    assert_seconds(run(&teraflops).measured, 19.578_866_12);
    // 72 * 131072 * 96 * 12288^2 * (1 + 2048/73728 + 51200/14155776) FLOP over 64 devices at half of 312e12.
    let mfu = [("metric", "mfu"), ("value", "50"), ("flop_convention", "72*B*L*s*h^2*(...)")];
    assert_seconds(run(&mfu).measured, 14.131_763_93);
    // 8 * (96 * 12288 * 147469 + 53248 * 12288) parameters * 131072 tokens over 64 devices at 150e12.
    let eight = [("metric", "tflops_per_gpu"), ("value", "150"), ("flop_convention", "8*P*T/(n*t) incl.")];
    assert_seconds(run(&eight).measured, 19.072_704_22);
    // (6 * (96 * (12 * 12288^2 + 24576) + 53248 * 12288 + 12288) + 12 * 96 * 12288 * 2048) * 131072 FLOP over 64
    // devices at half of 312e12.
    let six = [("metric", "mfu"), ("value", "50"), ("flop_convention", "(6N+12*l*h*s)/token; peak")];
    assert_seconds(run(&six).measured, 14.133_933_03);
    // On an H100 half of 989e12.
    let h100 = [six[0], six[1], six[2], ("gpu", "H100-80GB SXM")];
    assert_seconds(run(&h100).measured, 14.133_933_03 * 312.0 / 989.0);
}

#[test]
fn bytes_are_read_as_the_source_does() {
    let peak = |source| {
        let cells = [("metric", "memory_gb"), ("value", "40"), ("source", source), ("dtype", "bf16"), ("tp", "8")];
        run(&cells).measured
    };
    let Measured::PeakBytes(bytes, _) = peak("BigScience tr11-176B-ml/x") else { panic!() };
    assert_eq!(bytes, 40.0 * 1024.0_f64.powi(3));
    let Measured::PeakBytes(bytes, _) = peak("NVIDIA/Megatron-LM tests/functional_tests") else { panic!() };
    assert_eq!(bytes, 40e9);
    let rest = run(&[("metric", "memory_allocated_after_step_gb"), ("value", "2")]).measured;
    assert_eq!(rest, Measured::RestBytes(2e9));
    assert_eq!(run(&[("metric", "oom"), ("value", "1")]).measured, Measured::OutOfMemory);
}

#[test]
fn columns_become_a_layout() {
    let run = run(&[]);
    let c = run.candidate;
    assert_eq!((c.sizes, c.inside), ([8, 1, 1, 1, 1, 1, 8], [8, 1, 1, 1, 1, 1, 1]));
    assert_eq!((c.schedule, c.chunks, c.microbatch), (Schedule::Interleaved, 3, 1));
    assert_eq!((c.recompute, c.activations, c.zero), (Recompute::Selective, Activations::Scattered, Zero::Off));
    assert_eq!((run.model.vocab, run.model.tied_head, run.model.classic().biases), (51_200, true, true));
    assert_eq!(run.cluster.tiers[1].bandwidth, 25e9);
}

#[test]
fn ranks_are_ordered_tensor_context_data_pipeline() {
    let cells = [("tp", "2"), ("dp", "4"), ("pp", "8"), ("recompute", "full"), ("vpp", "1"), ("zero_stage", "1")];
    let c = run(&cells).candidate;
    assert_eq!((c.sizes, c.inside), ([2, 1, 1, 1, 1, 4, 8], [2, 1, 1, 1, 1, 4, 1]));
    assert_eq!(
        (c.schedule, c.recompute, c.zero),
        (Schedule::OneForwardOneBackward, Recompute::Full { every: 1 }, Zero::Optimizer)
    );
    assert_eq!(run(&[("sequence_parallel", "0")]).candidate.activations, Activations::Replicated);
}

#[test]
fn fully_sharded_runs_lie_on_z() {
    let fsdp = [
        ("source", "mosaicml/llm-foundry"),
        ("table", "1600 Gb"),
        ("model_name", "MPT-7b"),
        ("tp", "1"),
        ("pp", "1"),
        ("dp", "64"),
        ("vpp", "1"),
        ("zero_stage", "3"),
        ("recompute", "none"),
        ("dtype", "amp_bf16 DEFAULT"),
    ];
    let run_3 = run(&fsdp);
    let c = run_3.candidate;
    assert_eq!((c.size(Axis::Z), c.size(Axis::Data), c.microbatch), (64, 1, 64));
    assert_eq!((c.keep_weights, c.zero, c.overlap), (KeepWeights::Use, Zero::Off, Overlap::ALL));
    assert_eq!((run_3.model.classic().biases, run_3.framework.states.sent_gradient), (false, 4));
    // Its libraries were the first that knew H100, not A100.
    let on_h100 = [&fsdp[..], &[("gpu", "H100-80GB SXM"), ("interconnect", "H100 80GB BF16")]].concat();
    assert!(run_3.framework.product_rate == 1.0 && run(&on_h100).framework.product_rate < 1.0);
    let mut cells = fsdp;
    cells[7].1 = "2";
    cells[9].1 = "bf16 PURE";
    let run_2 = run(&cells);
    assert_eq!((run_2.candidate.keep_weights, run_2.framework.states.sent_gradient), (KeepWeights::Step, 2));
    // Hybrid: sharded in the node, replicated over nodes.
    let mut cells = fsdp.to_vec();
    cells[0].1 = "foundation-model-stack/fms-fsdp";
    cells.extend([
        ("model_name", "Llama2-7b"),
        ("notes", "HSDP, torch.compile"),
        ("interconnect", "400 Gb/s per node"),
    ]);
    cells.remove(2);
    let hybrid = run(&cells);
    assert_eq!((hybrid.candidate.size(Axis::Z), hybrid.candidate.size(Axis::Data)), (8, 8));
    assert_eq!((hybrid.model.classic().norm, hybrid.model.classic().activation), (Norm::Rms, Activation::Swiglu));
}

#[test]
fn table_1_of_ptd_p_has_the_microbatches_and_chunks_of_its_script() {
    let cells = |layers, pp, dp, devices| {
        [
            ("source", "Narayanan et al. 2021 (PTD-P)"),
            ("table", "Table 1"),
            ("layers", layers),
            ("pp", pp),
            ("dp", dp),
            ("n_gpus", devices),
            ("global_batch", "2304"),
            ("microbatch", ""),
            ("vpp", ""),
            ("recompute", "full"),
            ("sequence_parallel", "0"),
        ]
    };
    let c = run(&cells("80", "8", "24", "1536")).candidate;
    assert_eq!((c.microbatch, c.chunks, c.schedule), (2, 2, Schedule::Interleaved));
    let c = run(&cells("24", "1", "24", "192")).candidate;
    assert_eq!((c.microbatch, c.chunks, c.overlap.reduce_scatter), (16, 1, true));
    assert_eq!(reason(&cells("70", "1", "24", "192")), Unmapped::Missing("microbatch"));
}

/// Expert ranks lie inside out, as Megatron-Core folds them: in tensor parallelism unless it cuts experts, in context, in data.
#[test]
fn experts_are_spread_as_their_source_says() {
    let grok = [
        ("source", "NVIDIA/dgxc-benchmarking tag v25.02 grok1/README_314b.md"),
        ("model_name", "Grok-1 314B (MoE 8x, top-2)"),
        ("interconnect", "NVSwitch + 400 Gb/s NDR IB per GPU"),
        ("gpu", "H100-80GB SXM"),
        ("layers", "16"),
        ("seq_len", "8192"),
        ("n_gpus", "128"),
        ("tp", "4"),
        ("pp", "2"),
        ("dp", "8"),
        ("cp", "2"),
        ("ep", "8"),
        ("vpp", "8"),
        ("recompute", "none"),
    ];
    let folded = run(&grok);
    let c = folded.candidate;
    assert_eq!((c.sizes, c.experts_over.to_string()), ([4, 1, 1, 2, 4, 2, 2], "context,expert".to_owned()));
    let block = folded.model.blocks.first();
    let experts = block.feed_forward.experts().unwrap();
    assert_eq!((experts.count, experts.per_token, experts.shared.is_none()), (8, 2, true));
    // Places are counted for the tokens of a device: a context rank's, scattered over tensor parallelism.
    assert_eq!(experts.capacity.unwrap().group, Some(1024));
    // Tensor parallelism of 4 has no room for 3 expert ranks, nor 8 data ranks for 3.
    assert_eq!(reason(&[&grok[..11], &[("ep", "3")], &grok[12..]].concat()), Unmapped::Layout);
    // Whole experts on ranks of tensor parallelism, and some more of data.
    let test = [
        ("source", "NVIDIA/Megatron-LM tests/functional_tests"),
        ("table", "moe/gpt3_te_tp2_etp1_ep4_8experts2parallel/golden"),
        ("metric", "memory_allocated_after_step_gb"),
        ("notes", "transformer-impl=transformer_engine num-experts=8 more"),
        ("n_gpus", "8"),
        ("tp", "2"),
        ("pp", "1"),
        ("dp", "4"),
        ("ep", "4"),
        ("vpp", "1"),
        ("recompute", "none"),
    ];
    let whole = run(&test).candidate;
    assert_eq!((whole.sizes, whole.experts_over.to_string()), ([2, 1, 1, 1, 2, 2, 1], "x,expert".to_owned()));
    let cut =
        run(&[&test[..1], &[("table", "moe/gpt3_te_tp2_ep4_8experts2parallel/golden")], &test[2..]].concat()).candidate;
    assert_eq!((cut.sizes, cut.experts_over.to_string()), ([2, 1, 1, 1, 4, 1, 1], "expert".to_owned()));
    // Nothing tells how wide other tests' experts are.
    let unsaid = [&test[..1], &[("table", "moe/gpt3_te_tp2_etp1_ep4_memory_speed/golden")], &test[2..]].concat();
    assert_eq!(reason(&unsaid), Unmapped::Experts);
    // How tokens come to experts decides about their activations.
    assert_eq!(reason(&[&test[..2], &[("metric", "memory_gb")], &test[3..]].concat()), Unmapped::Experts);
}

#[test]
fn racks_are_domains_and_notes_tell_tokens() {
    let qwen = [
        ("source", "NVIDIA-NeMo/Megatron-Bridge docs/performance-summary"),
        ("model_name", "Qwen3-235B-A22B"),
        ("interconnect", "NVLink5 NVL72"),
        ("gpu", "GB200-192GB"),
        ("gpus_per_node", "4"),
        ("layers", "94"),
        ("hidden", "4096"),
        ("heads", "64"),
        ("kv_heads", "4"),
        ("ffn_hidden", "1536"),
        ("vocab", "151936"),
        ("n_gpus", "256"),
        ("tp", "1"),
        ("pp", "8"),
        ("dp", "32"),
        ("ep", "32"),
        ("vpp", "3"),
        ("recompute", ""),
        ("global_batch", "8192"),
        ("dtype", "BF16"),
        ("metric", "tflops_per_gpu"),
        ("value", "728"),
        ("flop_convention", "model FLOPs (no recompute)"),
        ("notes", "Pre-Training Performance; 4916 tok/s/GPU; dropless"),
    ];
    let run = run(&qwen);
    // 8192 * 2048 tokens over 256 devices at 4916 a second.
    assert_seconds(run.measured, 13.331_163_5);
    assert_eq!((run.candidate.sizes, run.candidate.domain()), ([1, 1, 1, 1, 32, 1, 8], 64));
    let preset = quadrille_spec::Model::preset("qwen3-235b-a22b").unwrap();
    assert_eq!(run.model.parameters(), preset.parameters());
    for (name, why) in [("DeepSeek-V3", "a second token is predicted"), ("GPT-OSS-120B", "sinks of attention")] {
        let cells = [&qwen[..1], &[("model_name", name)], &qwen[2..]].concat();
        assert_eq!(reason(&cells), Unmapped::Architecture(why));
    }
    let kimi = [&qwen[..1], &[("model_name", "Kimi-K2")], &qwen[2..]].concat();
    assert_eq!(reason(&kimi), Unmapped::Optimizer);
    let ted = [("source", "S. Singh dissertation"), ("table", "Table 7.1"), ("model_name", "MoE 16 experts")];
    assert_eq!(reason(&ted), Unmapped::Missing("microbatch"));
}

#[test]
fn rows_that_cannot_be_predicted_say_why() {
    use Unmapped::*;
    let cases: [(&[(&str, &str)], Unmapped); 16] = [
        (&[("measured", "0")], NotMeasured),
        (&[("metric", "layer_fwd_ms")], Metric("layer_fwd_ms")),
        (&[("metric", "config_only")], Metric("config_only")),
        (&[("ep", "8")], Experts),
        (&[("dtype", "MXFP8")], Narrow),
        (&[("metric", "mfu"), ("flop_convention", "of peak")], Convention),
        (&[("source", "somebody")], Source),
        (&[("gpu", "TPU v4")], Device),
        (&[("interconnect", "NVSwitch + IB")], Network),
        (&[("model_name", "T5 11B")], Architecture("a family that is not described")),
        (&[("heads", "")], Missing("heads")),
        (&[("microbatch", "")], Missing("microbatch")),
        (&[("recompute", "")], Missing("recompute")),
        (&[("value", "")], Missing("value")),
        // 3 does not divide 96 heads' ranks, and the sizes are not 64 devices.
        (&[("tp", "3")], Layout),
        (&[("global_batch", "63"), ("microbatch", "2")], Layout),
    ];
    for (cells, expected) in cases {
        assert_eq!(reason(cells), expected, "{cells:?}");
    }
    let internevo = [
        ("source", "InternLM/InternEvo"),
        ("model_name", "InternLM-7B"),
        ("interconnect", "NVSwitch + 4x100 Gb/s RoCE per node"),
        ("notes", "zero1=3; micro_num 4"),
        ("dp", "8"),
        ("tp", "1"),
    ];
    assert_eq!(reason(&internevo), Layout);
}

/// Groups of neighbouring data ranks share states, of which each owns whole parameters; gradients are summed over all data ranks.
#[test]
fn states_are_shared_by_as_many_ranks_as_a_row_says() {
    let by = |zero1| {
        run(&[
            ("source", "InternLM/InternEvo"),
            ("model_name", "InternLM-7B"),
            ("interconnect", "NVSwitch + 4x100 Gb/s RoCE per node"),
            ("notes", zero1),
            ("n_gpus", "32"),
            ("dp", "32"),
            ("tp", "1"),
            ("pp", "1"),
            ("vpp", "1"),
            ("zero_stage", "1"),
            ("recompute", "none"),
        ])
    };
    let [node, all] = [by("zero1=8 (states sharded in node)"), by("zero1=-1 (all DP)")];
    assert_eq!(node.candidate.sizes, [1, 1, 1, 1, 8, 4, 1]);
    assert_eq!(all.candidate.sizes, [1, 1, 1, 1, 1, 32, 1]);
    assert_eq!((node.framework.sums_whole, node.candidate.inside[4]), (Some(Axis::Expert.only()), 8));
    assert_eq!(all.framework.sums_whole, Some(AxisSet::WORLD));
    // A fourth of the states, and weights that do not leave the node.
    assert!(all.framework.gates_apart);
    let price = |run: &Run| run.price().unwrap();
    assert_eq!(price(&node).memory.optimizer, 4 * price(&all).memory.optimizer);
    assert!(price(&node).seconds < price(&all).seconds);
    // Half as much is sent of gradients that are scattered, and weights that are gathered come sooner than one rank's after the other.
    let seconds = |framework: Framework| price(&Run { framework, ..all.clone() }).seconds;
    let scattered = seconds(Framework { sums_whole: None, ..all.framework });
    let gathered = seconds(Framework { broadcasts_updates: false, ..all.framework });
    assert!(scattered < price(&all).seconds && gathered < price(&all).seconds);
}

#[test]
fn the_same_seconds_in_another_unit_count_once() {
    let first = row(&[("derived_iter_s", "13.75")]);
    let second = row(&[
        ("metric", "mfu"),
        ("value", "51.4"),
        ("flop_convention", "72*B*L*s*h^2*(...)"),
        ("derived_iter_s", "13.75"),
    ]);
    let rows = [first, second];
    let evaluation = evaluate(&rows).unwrap();
    assert_eq!(evaluation.entries.len(), 1);
    assert_eq!(evaluation.reasons().into_iter().collect::<Vec<_>>(), [(Unmapped::Repeated, 1)]);
}

/// Interleaved passes need a microbatch for every stage.
#[test]
fn a_row_that_no_program_runs_leaves_the_others_standing() {
    let rows = [row(&[("global_batch", "4")]), row(&[])];
    let evaluation = evaluate(&rows).unwrap();
    assert_eq!(evaluation.entries.len(), 1);
    assert_eq!(evaluation.reasons().into_iter().collect::<Vec<_>>(), [(Unmapped::Layout, 1)]);
}

#[test]
fn our_seconds_are_those_that_the_rows_derive() {
    let rows = read(BUILT_IN).unwrap();
    let mut compared = 0;
    for row in &rows {
        let (Some(derived), Some(value)) = (row.derived_seconds, row.value) else { continue };
        let Ok(convention) = Convention::of(row) else { continue };
        let seconds = convention.seconds(row, value).unwrap();
        // Printed with two to four digits; MPT's rows with tokens per second, whose N is rounded.
        let tolerance = if row.metric == Metric::Utilization { 6e-3 } else { 5e-3 };
        assert!((seconds / derived - 1.0).abs() < tolerance, "line {}: {seconds} against {derived}", row.line);
        compared += 1;
    }
    assert!(compared > 1300, "{compared}");
}

#[test]
fn sizes_that_break_rules_are_refused() {
    let broken = Unmapped::Architecture("sizes that break a rule of models");
    let huge = "16777216";
    let cases: [(&[(&str, &str)], Unmapped); 9] = [
        (&[("hidden", "10"), ("heads", "300")], broken),
        (&[("kv_heads", "7")], broken),
        (&[("kv_heads", "192")], broken),
        (&[("layers", huge)], broken),
        (&[("hidden", "12289")], broken),
        (&[("ffn_hidden", "49153")], Unmapped::Layout),
        (&[("vpp", huge)], Unmapped::Layout),
        // 2048 tokens, but 2 * 3 pieces.
        (&[("cp", "3"), ("n_gpus", "192")], Unmapped::Layout),
        // The vocabulary is padded to a multiple of 128 * 2^24.
        (&[("tp", huge)], broken),
    ];
    for (cells, expected) in cases {
        assert_eq!(reason(cells), expected, "{cells:?}");
    }
    // 2^64 devices, which is 0 in 64 bits, and stops a build that checks arithmetic.
    let wrapping = [("tp", "8"), ("pp", huge), ("dp", huge), ("cp", "8192"), ("n_gpus", "8")];
    assert_eq!(reason(&wrapping), Unmapped::Layout);
}
