//! Two small steps counted by hand; prediction and run give the same numbers.
//!
//! The model: hidden 8 in 4 heads, perceptron 12, vocabulary 13, 4 positions, one layer, biases, tied head, f32.

use std::collections::BTreeMap;

use quadrille_proofs::{layout, model, trajectory};
use quadrille_spec::CollectiveKind::{AllGather, AllReduce, ReduceScatter};
use quadrille_spec::{
    Activations, AxesLedger, CollectiveKind, ElementType, MemoryClass, Overlap, RankLedger, Transfer,
};
use quadrille_step::{StepProgram, predict};

/// Rank 0's ledger, predicted and counted.
fn both(program: &StepProgram) -> RankLedger {
    let predicted = predict(program).ranks.swap_remove(0);
    let counted = trajectory(program, 1, 1).unwrap().swap_remove(0).ledger.unwrap();
    assert_eq!(counted, predicted);
    counted
}

fn single_precision(grid: &str, global_batch: usize, microbatch: usize) -> StepProgram {
    let layout = layout(&model(1), grid, Activations::Scattered, Overlap::NONE, global_batch, microbatch);
    StepProgram::new(&model(1), &layout.stored_in(ElementType::F32)).unwrap()
}

/// Rows of key, kind, calls, payload, wire, both in bytes.
fn axes<const N: usize>(rows: [(&str, CollectiveKind, u64, u64, u64); N]) -> AxesLedger {
    let mut ledger = AxesLedger::new();
    for (key, kind, calls, payload_bytes, wire_bytes) in rows {
        let transfer = Transfer { calls, payload_bytes, wire_bytes };
        ledger.entry(key.to_owned()).or_default().insert(kind, transfer);
    }
    ledger
}

/// Two ranks on every axis, scattered, two microbatches of 4 sequences per data rank: 2 sequences of 4 tokens on each z,
/// so `m` = 8 rows; cut over x or y 4. Vocabulary padded to 16, 4 ids a rank. Widths: h/x = h/y = 4, 3h/x = 12, f/x = 6.
///
/// Elements of buffers in a microbatch, in the order of the program (RS, AG, AR: reduce-scatter, all-gather, all-reduce):
///
/// | | y | x | z | x+y |
/// |---|---|---|---|---|
/// | embedding | RS `[8,8]` 64 | RS `[8,4]` 32 | AG table `[4,8]` 32 | |
/// | norm1 | AR 4, AR 4 | | | |
/// | qkv | RS `[8,12]` 96 | AG `[8,4]` 32 | AG `[4,12]` 48 | |
/// | projection | AG `[8,4]` 32 | RS `[8,4]` 32 | AG `[4,4]` 16 | |
/// | norm2 | AR 4, AR 4 | | | |
/// | up | RS `[8,6]` 48 | AG `[8,4]` 32 | AG `[4,6]` 24 | |
/// | down | AG `[8,6]` 48 | RS `[8,4]` 32 | AG `[6,4]` 24 | |
/// | final norm | AR 4, AR 4 | | | |
/// | head, loss | AG `[8,8]` 64 | AG `[8,4]` 32 | AG table 32 | AR 8, AR 16 |
/// | head' | RS `[8,8]` 64 | RS `[8,4]` 32 | AG table 32 (its gradient waits for the embedding's) | |
/// | final norm' | AR `[4,2]` 8 | | | |
/// | down' | RS `[8,6]` 48 | AG `[8,4]` 32 | AG 24, RS 24 | |
/// | up' | AG `[8,6]` 48 | RS `[8,4]` 32 | AG 24, RS 24 | |
/// | norm2' | AR 8 | | | |
/// | projection' | RS `[8,4]` 32 | AG `[8,4]` 32 | AG 16, RS 16 | |
/// | qkv' | AG `[8,12]` 96 | RS `[8,4]` 32 | AG 48, RS 48 | |
/// | norm1' | AR 8 | | | |
/// | embedding' | AG `[8,8]` 64 | AG `[8,4]` 32 | RS table 32 | |
/// | **AR** | 9 calls, 48 | | | 2 calls, 24 |
/// | **RS** | 6 calls, 352 | 6 calls, 192 | 5 calls, 144 | |
/// | **AG** | 6 calls, 352 | 6 calls, 192 | 11 calls, 320 | |
///
/// A ring of 2 sends half of an AG or RS and the whole of an AR; a ring of 4 sends 2 * 3/4 of an AR: 36 of 24.
///
/// Once per step: data sums the shards, half a tile each: 16 + 24 + 8 + 12 + 12 = 72 in 5 calls. Over x+z+data go the
/// positions, 16, and eight vectors of 4 (three norms' gamma and beta, biases of projection and down): 48 in 9 calls; a
/// ring of 8 sends 2 * 7/8: 28 of 16, 7 of 4. Over y+z+data go the biases of qkv, 12, and up, 6: of 12 it sends 21; 6
/// elements make the chunks 0 1 1 1 0 1 1 1, and member 0 sends all but chunk 0, then all but chunk 1: 11. The loss and
/// its count (z+data) are two f64, chunks 0 1 0 1: it sends 2, then 1. The norm (world) is one f64; the only non-empty chunk
/// is the last, so member 0 sends it twice.
#[test]
fn a_step_on_a_4d_grid() {
    let ledger = both(&single_precision("x=2,y=2,z=2,data=2", 16, 4));
    // Passes count twice, elements four bytes.
    let expected = axes([
        ("x", ReduceScatter, 2 * 6, 8 * 192, 8 * 96),
        ("x", AllGather, 2 * 6, 8 * 192, 8 * 96),
        ("y", AllReduce, 2 * 9, 8 * 48, 8 * 48),
        ("y", ReduceScatter, 2 * 6, 8 * 352, 8 * 176),
        ("y", AllGather, 2 * 6, 8 * 352, 8 * 176),
        ("z", ReduceScatter, 2 * 5, 8 * 144, 8 * 72),
        ("z", AllGather, 2 * 11, 8 * 320, 8 * 160),
        ("data", AllReduce, 5, 4 * 72, 4 * 72),
        ("x+y", AllReduce, 2 * 2, 8 * 24, 8 * 36),
        ("x+z+data", AllReduce, 9, 4 * 48, 4 * (28 + 8 * 7)),
        ("y+z+data", AllReduce, 2, 4 * 18, 4 * (21 + 11)),
        ("z+data", AllReduce, 1, 16, 3 * 8),
        ("world", AllReduce, 1, 8, 2 * 8),
    ]);
    assert_eq!(ledger.axes, expected);

    // Products: 2 * 8 rows * (tiles of 48 + 16 + 24 + 24, and 4 ids * 8 for the head) = 2304, in two passes.
    let products = [ledger.flops.gemm_forward, ledger.flops.gemm_input_gradient, ledger.flops.gemm_weight_gradient];
    assert_eq!(products, [2 * 2304; 3]);
    // Attention: a rank has one sequence and two heads of width 2: 2 heads * 2 products * 2 * 4 * 4 * 2 = 256.
    assert_eq!((ledger.flops.attention_forward, ledger.flops.attention_backward), (2 * 256, 2 * 512));

    // Shards: table 16, positions 16, qkv 24 + 12, projection 8 + 4, up 12 + 6, down 12 + 4, three norms of 8: 138.
    let peak = |class| ledger.memory.peak_of[&class];
    let states = [MemoryClass::Parameters, MemoryClass::Gradients, MemoryClass::Optimizer].map(peak);
    assert_eq!(states, [4 * 138, 4 * 138, 4 * 2 * 138]);
    // One gathered weight at a time; the largest is qkv.
    assert_eq!(peak(MemoryClass::GatheredWeights), 4 * 48);
}

/// One rank, 2 sequences: 8 rows. Live activations in elements:
///
/// | after | kept | with |
/// |---|---|---|
/// | forward | embedded 64, norm1 64, qkv 192, attention 64, its statistics 32, residual 64, norm2 64, up 96, gelu 96, residual 64, final norm 64, logits 104 | 968 |
/// | the head's two products | and the final norm's gradient 64 | **1032** |
/// | the final norm's gradient | without final norm and logits; and the residual's gradient 64 | 928 |
/// | down's input gradient | without residual and the final norm's gradient; and gelu's gradient 96 | 896 |
///
/// and less from there on. Buffers: sum and squares of 8 rows for three norms, 48; the loss adds 8 maxima and 16 sums: 72.
/// A norm's backward adds 16 to 48. Both together are most at the head's products: 1032 + 48.
#[test]
fn memory_of_a_serial_step() {
    let ledger = both(&single_precision("x=1", 2, 2));
    // Table 104, positions 32, qkv 192 + 24, projection 64 + 8, up 96 + 12, down 96 + 8, three norms of 16: 684.
    let expected = [
        (MemoryClass::Parameters, 684),
        (MemoryClass::Gradients, 684),
        (MemoryClass::Optimizer, 2 * 684),
        (MemoryClass::Activations, 1032),
        (MemoryClass::GatheredWeights, 0),
        (MemoryClass::Buffers, 72),
    ];
    assert_eq!(ledger.memory.peak_of, expected.map(|(class, elements)| (class, 4 * elements)).into());
    assert_eq!(ledger.memory.peak, 4 * (4 * 684 + 1032 + 48));
    let after = |class| ledger.memory.now[&class];
    assert_eq!((after(MemoryClass::Activations), after(MemoryClass::Buffers)), (0, 0));
    assert!(ledger.axes.values().all(BTreeMap::is_empty), "one rank sends nothing");
}
