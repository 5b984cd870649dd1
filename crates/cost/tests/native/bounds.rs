//! Bounds against the prices of programs: never above them, and seldom far below.

use quadrille_cost::native::{Bounds, Candidate, Framework};
use quadrille_spec::{
    Cluster, ElementType, EvenPieces, KeepWeights, Layout, LayoutRequest, Model, Recompute, Schedule, Zero,
};

use crate::case::{Case, fast_networks, fixed};

/// Bounds over the price: of the seconds by blocks alone, by the fastest passes, by passes, and in full; of the bytes by passes
/// and in full.
fn ratios(case: &Case) -> Option<[f64; 6]> {
    let problem = case.problem(Framework::QUADRILLE);
    if problem.check_placed(&case.layout).is_err() || !EvenPieces::are(&case.layout.stage_blocks) {
        return None;
    }
    let (candidate, mut bounds) = (case.candidate(), Bounds::new(&problem));
    let price = problem.price_layout(&case.layout).unwrap();
    let block = bounds.block_seconds(&candidate).unwrap();
    let (passes, pieces) = (bounds.passes(&candidate).unwrap(), bounds.pieces(&candidate).unwrap());
    // What a search takes for no slower than all other choices of recomputation and of how long weights are kept.
    let (recompute, keep_weights) = (Recompute::None, KeepWeights::Step);
    let fastest = Candidate { recompute, keep_communicated: false, keep_weights, ..candidate };
    let passes_of_fastest = bounds.passes(&fastest).unwrap();
    let seconds = [
        bounds.seconds_of_blocks(&candidate, block),
        bounds.seconds_of_passes(&fastest, &passes_of_fastest),
        bounds.seconds_of_passes(&candidate, &passes),
        bounds.seconds(&candidate, &pieces),
    ];
    let bytes = [&passes, &pieces].map(|pieces| bounds.bytes(&candidate, pieces) as f64 / price.memory.total() as f64);
    let [blocks, fastest, passes, seconds] = seconds.map(|seconds| seconds / price.seconds);
    Some([blocks, fastest, passes, seconds, bytes[0], bytes[1]])
}

/// Gradients that z cuts already are added in shorter shards where ZeRO scatters them too: on a fast network a step is faster
/// with it than without. Bounds that serve every stage are below both.
#[test]
fn bounds_of_every_zero_stage_hold_where_the_last_is_the_fastest() {
    let (model, cluster) = (Model::preset("gpt-demo").unwrap(), Cluster::preset("selene").unwrap());
    let request = LayoutRequest::new("z=2,data=4".parse().unwrap(), 4 * 2 * 512);
    let off = LayoutRequest { microbatch: Some(2), dtype: ElementType::F32, ..request };
    let case = |zero| Case {
        layout: Layout::new(&model, &LayoutRequest { zero, ..off.clone() }).unwrap(),
        model: model.clone(),
        cluster: fast_networks(&cluster),
    };
    let seconds = |case: &Case| case.problem(Framework::QUADRILLE).price_layout(&case.layout).unwrap().seconds;
    let [off, cut] = [Zero::Off, Zero::Gradients].map(case);
    assert!(seconds(&cut) < seconds(&off), "{} and {}", seconds(&cut), seconds(&off));
    for case in [off, cut] {
        let ratios = ratios(&case).unwrap();
        assert!(ratios.iter().all(|ratio| *ratio <= 1.0), "{ratios:?} of {:?}", case.layout.zero);
    }
}

fn median(ratios: &[[f64; 6]], which: usize) -> f64 {
    let mut sorted: Vec<f64> = ratios.iter().map(|ratios| ratios[which]).collect();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

/// On models of few blocks, where the first microbatch and the update weigh most.
#[test]
fn bounds_are_never_above_the_price() {
    for (name, schedule) in Schedule::ALL {
        let mut all = Vec::new();
        let on_fast = |case: Case| Case { cluster: fast_networks(&case.cluster), ..case };
        for case in fixed(schedule, 160).into_iter().flat_map(|case| [on_fast(case.clone()), case]) {
            let Some(ratios) = ratios(&case) else { continue };
            for (what, ratio) in
                ["blocks", "fastest", "passes", "seconds", "bytes of passes", "bytes"].into_iter().zip(ratios)
            {
                assert!(ratio <= 1.0, "{what} of {name} {ratio}: {:?} of {} layers", case.layout, case.model.layers());
            }
            all.push(ratios);
        }
        assert!(all.len() > 200);
        let medians = [3, 5].map(|which| median(&all, which));
        assert!(medians[0] > 0.93 && medians[1] > 0.9, "{name}: {medians:?}");
    }
}
