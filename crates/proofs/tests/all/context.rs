//! The attention over parts of sequences: what ranks send each other, how evenly causal work is dealt, and that the result
//! is that of whole sequences.
//!
//! Letters: `b` sequences of a rank in a pass, `s` tokens of a sequence, `h` hidden, `x` the axis that cuts heads.

use quadrille_proofs::{
    Traffic, assert_caught, edited_at, is_collective, model, operations, program_with, prove, rebuilt, replaced,
    trajectory,
};
use quadrille_spec::CollectiveKind::{AllGather, ReduceScatter};
use quadrille_spec::{Activations, Axis, FlopsLedger, Model};
use quadrille_step::{Operation, StepProgram, kind, predict};
use quadrille_tensor::ContextPart;

/// Sequences of 12 tokens, which 2, 3 and 6 context ranks cut; two microbatches of eight per data rank.
fn cut(grid: &str, activations: Activations) -> StepProgram {
    let model = Model { seq_len: 12, dropout: 0.1, ..model(2) };
    program_with(&model, grid, if grid.contains("data") { 32 } else { 16 }, |request| {
        (request.activations, request.microbatch) = (activations, Some(8));
    })
}

const GRIDS: [&str; 6] =
    ["context=2", "context=3", "context=6", "x=2,context=3", "y=2,z=2,context=2", "x=2,context=2,data=2"];
const BOTH: [Activations; 2] = [Activations::Replicated, Activations::Scattered];

/// LBNL's fused attention (5.8): keys and values of whole sequences, `2 b (h/x) s` elements, gathered once forward and
/// once backward, and their gradients scattered once.
#[test]
fn keys_and_values_travel_as_published() {
    for (grid, activations) in GRIDS.iter().flat_map(|grid| [(grid, BOTH[0]), (grid, BOTH[1])]) {
        let program = cut(grid, activations);
        let StepProgram { model, layout, .. } = &program;
        let size = |axis| layout.grid.size(axis);
        let cut_rows = if activations == Activations::Scattered { size(Axis::Y) } else { 1 };
        let b = layout.microbatch / size(Axis::Z) / cut_rows;
        let whole = 2 * b * (model.hidden / size(Axis::X)) * layout.seq_len;
        let passes = layout.microbatches();
        let mut expected = Traffic::default();
        expected.add(&layout.grid, Axis::Context, AllGather, 2 * passes, 2 * passes * whole);
        expected.add(&layout.grid, Axis::Context, ReduceScatter, passes, passes * whole);
        for rank in predict(&program).ranks {
            for block in ["block 0", "block 1"] {
                assert_eq!(Traffic::of_layer(&rank, block, 8).over(Axis::Context), expected, "{grid}, {activations}");
            }
            for layer in ["embedding", "head"] {
                assert!(Traffic::of_layer(&rank, layer, 8).over(Axis::Context).is_empty());
            }
        }
    }
}

/// A ring sends the share `(c-1)/c` of each.
#[test]
fn a_ring_sends_all_but_its_own_share() {
    for (grid, c) in [("context=2", 2), ("context=3", 3), ("context=6", 6)] {
        for rank in predict(&cut(grid, BOTH[1])).ranks {
            for transfer in rank.axes["context"].values() {
                assert_eq!(transfer.wire_bytes * c, transfer.payload_bytes * (c - 1), "{grid}");
            }
        }
    }
}

/// A query at position `i` sees `i + 1` keys: every rank has the same number of pairs, and every token one rank.
#[test]
fn causal_work_is_dealt_evenly() {
    for (parts, seq_len) in [(1, 5), (2, 4), (2, 12), (3, 12), (6, 12), (4, 64)] {
        let mut owners = vec![0; seq_len];
        for part in 0..parts {
            let part = ContextPart { part, parts };
            let positions: Vec<usize> = (0..part.tokens(seq_len)).map(|token| part.position(token, seq_len)).collect();
            positions.iter().for_each(|position| owners[*position] += 1);
            let pairs: usize = positions.iter().map(|position| position + 1).sum();
            assert_eq!(pairs * parts, seq_len * (seq_len + 1) / 2, "{part:?}");
        }
        assert_eq!(owners, vec![1; seq_len]);
    }
}

#[test]
fn attention_work_is_divided_and_nothing_else_is_added() {
    let flops = |grid| predict(&cut(grid, BOTH[1])).ranks.swap_remove(0).flops;
    let whole = flops("x=1");
    for (grid, c) in [("context=2", 2), ("context=3", 3), ("context=6", 6)] {
        let part = flops(grid);
        assert_eq!(part.attention_forward * c, whole.attention_forward);
        assert_eq!(part.total() * c, whole.total());
    }
}

/// `4 h` for a query and each of its `min(w, s)` keys, over all ranks: so it is predicted, and so a step counts it.
#[test]
fn windows_count_their_keys_however_sequences_are_cut() {
    for (window, keys) in [(Some(1), 1), (Some(5), 5), (Some(12), 12), (Some(40), 12), (None, 12)] {
        let usual = model(2);
        let blocks = usual.blocks.each(|block| block.attention.window = window);
        let windows = Model { seq_len: 12, blocks, ..usual };
        for grid in ["x=1", "context=2", "x=2,context=3", "x=2,y=2"] {
            let program = program_with(&windows, grid, 16, |request| request.microbatch = Some(8));
            let ranks = predict(&program).ranks;
            let sum = |of: fn(&FlopsLedger) -> u64| ranks.iter().map(|rank| of(&rank.flops)).sum::<u64>();
            let forward = (2 * 4 * windows.hidden * keys * 16 * 12) as u64;
            assert_eq!(sum(|flops| flops.attention_forward), forward, "{grid}, {window:?}");
            assert_eq!(sum(|flops| flops.attention_backward), 2 * forward, "{grid}, {window:?}");
            let report = prove(&program, 1).unwrap();
            assert!(report.ok, "{grid}, {window:?}: {report:?}");
        }
    }
}

#[test]
fn parts_of_sequences_equal_whole_sequences() {
    for (grid, activations) in GRIDS.iter().flat_map(|grid| [(grid, BOTH[0]), (grid, BOTH[1])]) {
        let program = cut(grid, activations);
        let report = prove(&program, 2).unwrap();
        assert!(report.ok, "{grid}, {activations}: {report:?}");
        // The same grid without context: the same loss but for rounding.
        let whole = rebuilt(&program, |layout| layout.grid = layout.grid.with(Axis::Context, 1).unwrap());
        let losses = [&program, &whole].map(|program| {
            let outcomes = trajectory(program, 2, 1).unwrap().swap_remove(0).outcomes;
            outcomes.into_iter().map(|outcome| f64::from_bits(outcome.loss)).collect::<Vec<_>>()
        });
        for (part, whole) in losses[0].iter().zip(&losses[1]) {
            assert!((part - whole).abs() <= 1e-11 * whole, "{grid}: {part} and {whole}");
        }
    }
}

/// Each collective over context, left out or over another axis.
#[test]
fn every_collective_over_context_matters() {
    let program = cut("context=2,data=2", BOTH[1]);
    let issues = operations(&program).into_iter().filter_map(|(place, op)| {
        let collective = is_collective(op).filter(|each| op.operation == Operation::Issue(*each))?;
        (collective.axes == Axis::Context.only()).then_some((place, collective))
    });
    let issues: Vec<_> = issues.collect();
    // Two blocks: a gather forward, a gather and a scatter backward.
    assert_eq!(issues.len(), 2 * 3);
    for (place, old) in issues {
        let over_data = replaced(&program, |op| {
            let mut op = *op;
            if let Operation::Issue(collective) | Operation::Wait(collective) = &mut op.operation
                && *collective == old
            {
                collective.axes = Axis::Data.only();
            }
            vec![op]
        });
        assert_caught(&over_data, 1, &format!("{} at {place:?} over data", old.kind.name()));
        if old.kind == ReduceScatter {
            let input = old.input;
            let output = old.output;
            let slice = Operation::SliceRows(kind::SliceRows { axis: Axis::Context, input, output });
            let alone = edited_at(&program, place, |ops, at| {
                ops[at].operation = slice;
                ops.retain(|op| op.operation != Operation::Wait(old));
            });
            assert_caught(&alone, 1, &format!("the gradients at {place:?} are not summed"));
        }
    }
}
