//! Overlap passes, the number of threads and repetition change no bit of losses, gradients, norms or weights; and each
//! pass really moves something.

use proptest::prelude::*;
use quadrille_proofs::{
    Trajectory, cases, combined_cases, for_random, is_collective, layout, model, pass_operations, program, rebuilt,
    trajectory,
};
use quadrille_spec::{Activations, Axis, CollectiveKind, ElementType, Overlap};
use quadrille_step::{Collective, GemmPass, Op, Operation, StepProgram, kind};

const OAR: Overlap = Overlap { all_reduce: true, ..Overlap::NONE };
const ORS: Overlap = Overlap { reduce_scatter: true, ..Overlap::NONE };
const OAG: Overlap = Overlap { all_gather: true, ..Overlap::NONE };

/// What a run computed, without what it counted: prefetching holds more memory.
fn bits(program: &StepProgram, threads: usize) -> Vec<Trajectory> {
    let ranks = trajectory(program, 3, threads).unwrap();
    ranks.into_iter().map(|rank| Trajectory { ledger: None, ..rank }).collect()
}

fn with(program: &StepProgram, overlap: Overlap) -> StepProgram {
    rebuilt(program, |layout| layout.overlap = overlap)
}

/// Every type of values.
fn types() -> impl Strategy<Value = ElementType> {
    prop::sample::select(ElementType::ALL.map(|(_, dtype)| dtype).to_vec())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 30, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn overlap_changes_no_bit(case in cases(), dtype in types()) {
        let plain = with(&case.program(dtype), Overlap::NONE);
        let reference = bits(&plain, 1);
        for overlap in [OAR, ORS, OAG, Overlap::ALL] {
            prop_assert_eq!(&bits(&with(&plain, overlap), 1), &reference, "{}", overlap);
        }
    }

    #[test]
    fn threads_and_repetition_change_no_bit(case in cases(), dtype in types()) {
        let program = case.program(dtype);
        let reference = bits(&program, 1);
        for threads in [1, 2, 3] {
            prop_assert_eq!(&bits(&program, threads), &reference, "{} threads", threads);
        }
    }
}

/// With pipelines, SUMMA, recomputation, ZeRO and overlap chunks.
#[test]
fn combined_layouts_change_no_bit() {
    for_random(8, combined_cases(), |case| {
        let program = case.program(case.layout.dtype);
        let reference = bits(&with(&program, Overlap::NONE), 1);
        for (overlap, threads) in [(OAR, 1), (ORS, 2), (OAG, 1), (Overlap::ALL, 3)] {
            prop_assert!(bits(&with(&program, overlap), threads) == reference, "{}, {} threads", overlap, threads);
        }
        Ok(())
    });
}

/// The random cases are too small for most kernels to share their work among threads: this one is not.
#[test]
fn threads_that_share_kernels_change_no_bit() {
    let wide = model(1).reshaped(|m| {
        m.hidden = 128;
        m.ffn = 512;
        m.vocab = 1021;
        m.seq_len = 64;
        m.dropout = 0.1;
    });
    for (grid, dtype) in [("x=1", ElementType::F32), ("y=2", ElementType::F32), ("x=1", ElementType::F64)] {
        let layout = layout(&wide, grid, Activations::Scattered, Overlap::ALL, 8, 8);
        let program = StepProgram::new(&wide, &layout.stored_in(dtype)).unwrap();
        let reference = bits(&program, 1);
        for threads in [2, 3] {
            assert!(bits(&program, threads) == reference, "{grid}, {dtype}, {threads} threads");
        }
    }
}

/// Two layers on two ranks of every tensor axis.
fn overlapped(activations: Activations, overlap: Overlap) -> StepProgram {
    program(&model(2), "x=2,y=2,z=2", activations, overlap, 4, 4)
}

/// The operations of the passes over a microbatch.
fn passes(program: &StepProgram) -> Vec<Op> {
    pass_operations(program).into_iter().map(|(_, op)| *op).collect()
}

/// The operations between issue and wait of every collective of a section, in order of issue.
fn flights(ops: &[Op]) -> Vec<(Collective, &[Op])> {
    let at_wait = |collective| ops.iter().position(|op| op.operation == Operation::Wait(collective)).unwrap();
    let flight = |(at, op): (usize, &Op)| {
        let collective = is_collective(op).filter(|collective| op.operation == Operation::Issue(*collective))?;
        Some((collective, &ops[at + 1..at_wait(collective)]))
    };
    ops.iter().enumerate().filter_map(flight).collect()
}

fn is_product(op: &Op) -> bool {
    matches!(op.operation, Operation::Gemm(_))
}

/// How many collectives that `wanted` names fly over operations that `work` names.
fn hidden(program: &StepProgram, wanted: impl Fn(&Collective) -> bool, work: impl Fn(&Op) -> bool) -> usize {
    let over_work = |(collective, ops): &(Collective, &[Op])| wanted(collective) && ops.iter().any(&work);
    flights(&passes(program)).iter().filter(|flight| over_work(flight)).count()
}

fn over_z(collective: &Collective, kind: CollectiveKind) -> bool {
    collective.kind == kind && collective.axes == Axis::Z.only()
}

/// Collectives hidden by (OAR, ORS, OAG): reductions of input gradients under weight-gradient products, z
/// reduce-scatters and z all-gathers under any product.
fn hidden_by_pass(program: &StepProgram) -> [usize; 3] {
    let weight_gradient =
        |op: &Op| matches!(op.operation, Operation::Gemm(kind::Gemm { pass: GemmPass::WeightGradient, .. }));
    [
        hidden(program, |collective| !collective.axes.contains(Axis::Z), weight_gradient),
        hidden(program, |collective| over_z(collective, CollectiveKind::ReduceScatter), is_product),
        hidden(program, |collective| over_z(collective, CollectiveKind::AllGather), is_product),
    ]
}

#[test]
fn each_pass_hides_its_own_collectives() {
    for activations in [Activations::Replicated, Activations::Scattered] {
        let hidden = |overlap| hidden_by_pass(&overlapped(activations, overlap));
        assert_eq!(hidden(Overlap::NONE), [0, 0, 0]);
        // The reduction of each of the nine layers' input gradients flies over that layer's weight-gradient product.
        assert_eq!(hidden(OAR), [9, 0, 0], "{activations}");
        // Of nine reduce-scatters (the tied table has one) all but the last two are followed by products; the last two
        // are those of the first qkv weight and of the table.
        assert_eq!(hidden(ORS), [0, 7, 0], "{activations}");
        // Forward, the gathers of four weights a layer and of the head fly over the product before; the table's and the
        // first qkv weight's come before any product. Backward, all but the head's do.
        assert_eq!(hidden(OAG), [0, 0, 8 + 8], "{activations}");
    }
}

#[test]
fn each_pass_lengthens_flights_and_shortens_none() {
    for activations in [Activations::Replicated, Activations::Scattered] {
        let flown = |overlap| -> usize {
            flights(&passes(&overlapped(activations, overlap))).iter().map(|(_, ops)| ops.len()).sum()
        };
        let plain = flown(Overlap::NONE);
        assert_eq!(plain, 0, "without overlap every wait follows its issue");
        let alone = [OAR, ORS, OAG].map(flown);
        assert!(alone.iter().all(|flown| *flown > 0), "{alone:?}");
        assert!(flown(Overlap::ALL) > *alone.iter().max().unwrap());
    }
}

#[test]
fn passes_only_move_operations() {
    for activations in [Activations::Replicated, Activations::Scattered] {
        let sorted = |overlap| {
            let ops = passes(&overlapped(activations, overlap));
            let mut ops: Vec<String> = ops.iter().map(|op| format!("{op:?}")).collect();
            ops.sort();
            ops
        };
        let plain = sorted(Overlap::NONE);
        for overlap in [OAR, ORS, OAG, Overlap::ALL] {
            assert_eq!(sorted(overlap), plain, "{overlap}");
        }
    }
}
