//! Latent attention: what is sent is what closed forms say; switches change no bit. That every layout equals the serial model is
//! proven on random blocks (`equality.rs`), that every sum matters in `controls.rs`.

use quadrille_proofs::{Trajectory, latent, program, prove, rebuilt, trajectory};
use quadrille_spec::{
    Activations, Axis, CollectiveKind, KeepWeights, Layout, Overlap, RankLedger, Recompute, Schedule,
};
use quadrille_step::{StepProgram, predict};

// Columns of [`latent`].
const HIDDEN: usize = 16;
const QUERY_LATENT: usize = 12;
const KEY_VALUE_LATENT: usize = 8;
/// Of the key that all heads share.
const SHARED: usize = 2;
const QUERIES: usize = 4 * 6;
/// Of the rest of all keys, and all values.
const PAIRS: usize = 4 * (6 - SHARED + 4);
/// Of what all heads give.
const RESULTS: usize = 4 * 4;
/// Of the first and of the second layer of the perceptron.
const UP: usize = 24;
const DOWN: usize = 12;

/// Elements that the first rank sends in the block for collectives of some kinds over an axis, in f64.
fn sent(program: &StepProgram, axis: &str, kinds: &[CollectiveKind]) -> usize {
    sent_by(&predict(program).ranks[0], axis, kinds)
}

/// Elements that all ranks together send in the block for sums over some axes.
fn summed(program: &StepProgram, axes: &str) -> usize {
    predict(program).ranks.iter().map(|rank| sent_by(rank, axes, &[CollectiveKind::AllReduce])).sum()
}

fn sent_by(rank: &RankLedger, axes: &str, kinds: &[CollectiveKind]) -> usize {
    let block = rank.layers.iter().find(|layer| layer.layer == "block 0").unwrap();
    let transfers = block.axes.get(axes).into_iter().flatten().filter(|(kind, _)| kinds.contains(kind));
    transfers.map(|(_, transfer)| transfer.wire_bytes as usize / 8).sum()
}

/// What [`summed`] says of `elements` on each rank, whose sums are over groups of so many ranks.
fn sums(program: &StepProgram, group: usize, elements: usize) -> usize {
    2 * program.layout.grid.ranks() / group * (group - 1) * elements
}

/// Elements of a rank's tiles before z cuts them: of weights that narrow the stream, which x does not cut, and of all others.
fn tiles(x: usize, y: usize) -> [usize; 2] {
    let narrow = HIDDEN / y * (QUERY_LATENT + KEY_VALUE_LATENT + SHARED);
    let wide = (QUERY_LATENT / y * QUERIES + KEY_VALUE_LATENT / y * PAIRS) / x;
    [narrow, wide + HIDDEN / y * (RESULTS + UP + DOWN) / x]
}

/// Elements of the gammas of two norms of the stream and two of narrow rows, which y cuts.
fn gammas(y: usize) -> usize {
    (2 * HIDDEN + QUERY_LATENT + KEY_VALUE_LATENT) / y
}

/// `r(G) n`, where that is whole.
fn part(ranks: usize, elements: usize) -> usize {
    assert!(elements.is_multiple_of(ranks));
    elements / ranks * (ranks - 1)
}

/// Scattered activations, `m` rows of a rank's part of a microbatch, letters as in the specification's tables: narrow rows are
/// reduced over y in columns and gathered over x before they are widened; the rows of the shared key are gathered over x and
/// reduced over y; backward goes the same ways back. Once a step, gradients of what narrows the stream are summed over x, too,
/// whose ranks have different rows of it.
#[test]
fn narrow_rows_travel_in_the_place_of_the_stream() {
    for grid in ["x=2,y=2", "x=4,y=2", "x=2,y=4", "x=4", "y=2", "x=2,y=2,z=2,data=2"] {
        let program = program(&latent(1), grid, Activations::Scattered, Overlap::NONE, 32, 8);
        let report = prove(&program, 1).unwrap();
        assert!(report.ok, "{grid}: {report:?}");
        let StepProgram { layout, .. } = &program;
        let [x, y, z, data] = Axis::AXONN.map(|axis| layout.grid.size(axis));
        let m = layout.rows();
        let microbatches = layout.microbatches();
        let both = [CollectiveKind::AllGather, CollectiveKind::ReduceScatter];
        let over_x = (QUERY_LATENT + KEY_VALUE_LATENT + 3 * HIDDEN) / y + SHARED;
        assert_eq!(sent(&program, "x", &both), microbatches * 2 * part(x, m * over_x), "{grid}");
        let over_y = (QUERY_LATENT + KEY_VALUE_LATENT + QUERIES + PAIRS + RESULTS + UP + DOWN) / x + SHARED;
        assert_eq!(sent(&program, "y", &both), microbatches * 2 * part(y, m * over_y), "{grid}");
        // A number of every row forward and one backward, of four norms.
        let statistics = microbatches * 8 * 2 * part(y, m / x);
        assert_eq!(sent(&program, "y", &[CollectiveKind::AllReduce]), statistics, "{grid}");
        let [narrow, others] = tiles(x, y);
        assert_eq!(sent(&program, "z", &both), microbatches * 3 * part(z, narrow + others), "{grid}");
        assert_eq!(summed(&program, "x+data"), sums(&program, x * data, narrow / z), "{grid}");
        assert_eq!(summed(&program, "data"), sums(&program, data, others / z), "{grid}");
        assert_eq!(summed(&program, "x+z+data"), sums(&program, x * z * data, gammas(y)), "{grid}");
    }
}

/// Replicated activations: sums in the place of gathering and reducing, but over y of narrow rows, whose columns are cut. All ranks
/// of x have the same rows, so that gradients are not summed over it.
#[test]
fn narrow_rows_are_summed_where_the_stream_is_replicated() {
    let program = program(&latent(1), "x=2,y=2,z=2,data=2", Activations::Replicated, Overlap::NONE, 32, 8);
    let report = prove(&program, 1).unwrap();
    assert!(report.ok, "{report:?}");
    let StepProgram { layout, .. } = &program;
    let [x, y, z, data] = Axis::AXONN.map(|axis| layout.grid.size(axis));
    let m = layout.rows();
    let microbatches = layout.microbatches();
    let [both, sum] = [&[CollectiveKind::AllGather, CollectiveKind::ReduceScatter][..], &[CollectiveKind::AllReduce]];
    let over_x = (QUERY_LATENT + KEY_VALUE_LATENT + 3 * HIDDEN) / y + SHARED;
    assert_eq!(sent(&program, "x", sum), microbatches * 2 * part(x, m * over_x));
    assert_eq!(sent(&program, "x", both), 0);
    // With the statistics of norms.
    let over_y = (QUERIES + PAIRS + RESULTS + UP + DOWN) / x + SHARED + 8;
    assert_eq!(sent(&program, "y", sum), microbatches * 2 * part(y, m * over_y));
    assert_eq!(sent(&program, "y", both), microbatches * 2 * part(y, m * (QUERY_LATENT + KEY_VALUE_LATENT)));
    let all = tiles(x, y).into_iter().sum();
    assert_eq!(sent(&program, "z", both), microbatches * 3 * part(z, all));
    assert_eq!(summed(&program, "data"), sums(&program, data, all / z));
    assert_eq!(summed(&program, "z+data"), sums(&program, z * data, gammas(y)));
}

#[test]
fn switches_change_no_bit() {
    let bits = |program: &StepProgram, threads| {
        let ranks = trajectory(program, 2, threads).unwrap();
        ranks.into_iter().map(|rank| Trajectory { ledger: None, ..rank }).collect::<Vec<_>>()
    };
    let base = program(&latent(2), "x=2,y=2,z=2", Activations::Scattered, Overlap::NONE, 16, 8);
    let reference = bits(&base, 1);
    assert!(bits(&base, 3) == reference, "threads");
    type Change = fn(&mut Layout);
    let changes: [(&str, Change); 6] = [
        ("overlap", |layout| layout.overlap = Overlap::ALL),
        ("selective", |layout| layout.recompute = Recompute::Selective),
        ("full", |layout| layout.recompute = Recompute::Full { every: 1 }),
        ("cac", |layout| (layout.recompute, layout.keep_communicated) = (Recompute::Full { every: 1 }, true)),
        ("weights", |layout| layout.keep_weights = KeepWeights::Step),
        ("zb-h1", |layout| layout.schedule = Schedule::ZeroBubble),
    ];
    for (what, change) in changes {
        assert!(bits(&rebuilt(&base, change), 1) == reference, "{what}");
    }
}
