//! Searches whose results are known: the paper's cases, refusals, and properties of every ranking.

use proptest::prelude::*;
use quadrille_papers::axonn::{Plan, plan};
use quadrille_spec::{Activations, Axis, Cluster, Grid, LayoutRequest, Model, SpecError};

fn template(global_batch: usize, activations: Activations) -> LayoutRequest {
    LayoutRequest { activations, ..LayoutRequest::new("x=1".parse().unwrap(), global_batch) }
}

fn search(model: &str, cluster: &str, ranks: usize, template: &LayoutRequest) -> Result<Plan, SpecError> {
    let (model, cluster) = (Model::preset(model).unwrap(), Cluster::preset(cluster).unwrap());
    plan(&model, &cluster, ranks, template, 2, usize::MAX)
}

fn sizes(grid: &Grid) -> [usize; 4] {
    Axis::AXONN.map(|axis| grid.size(axis))
}

fn search_by_volume(ranks: usize, template: &LayoutRequest) -> Plan {
    let cluster = Cluster::preset("perlmutter").unwrap();
    plan(&Model::preset("gpt-20b").unwrap(), &cluster, ranks, template, 2, usize::MAX).unwrap()
}

/// The validation case of the AxoNN paper (figure 2, left), with a batch of a million tokens.
fn gpt_20b_on_perlmutter() -> Plan {
    search_by_volume(32, &template(512, Activations::Replicated))
}

#[test]
fn gpt_20b_prefers_what_its_volumes_say() {
    let plan = gpt_20b_on_perlmutter();
    assert_eq!(plan.grids, 56);
    // 56 heads: x = 16 and x = 32 do not divide them, and no other rule refuses a grid.
    assert_eq!(plan.feasible, 52);
    assert_eq!(plan.ranked.len(), 52);
    // A million tokens outweigh the weights: no tensor parallelism at all comes first ...
    let grids: Vec<_> = plan.ranked.iter().map(|candidate| sizes(&candidate.layout.grid)).collect();
    assert_eq!(grids[..2], [[1, 1, 1, 32], [1, 1, 32, 1]]);
    assert!(grids[..6].iter().all(|[x, y, ..]| x * y == 1), "{grids:?}");
    // ... and y, which carries three times the volume of x, last.
    assert_eq!(grids.last(), Some(&[1, 32, 1, 1]));
    for ([x, y, z, data], place) in grids.iter().zip(0..).filter(|([x, y, ..], _)| x > y) {
        let mirrored = grids.iter().position(|grid| grid == &[*y, *x, *z, *data]);
        assert!(mirrored.is_some_and(|other| place < other), "x={x},y={y} against its mirror image");
    }
}

#[test]
fn small_batches_favour_x_over_the_weights_collectives() {
    // 32,768 tokens, and at least 16 ranks, so that 20 GB of each are left for activations.
    let template = LayoutRequest { seq_len: Some(1024), ..template(32, Activations::Replicated) };
    let plan = search("gpt-20b", "perlmutter", 32, &template).unwrap();
    let holds_states = |[x, y, z, _]: [usize; 4]| x * y * z >= 16;
    let best = plan.ranked.iter().find(|candidate| holds_states(sizes(&candidate.layout.grid))).unwrap();
    assert_eq!(sizes(&best.layout.grid), [8, 1, 2, 2]);
    // By hand: x is one ring over the network, z and data share it among the four devices of a node.
    let (h, layers, rows) = (7168.0, 32.0, 16.0 * 1024.0 / 2.0);
    let weights = 12.0 * h * h * layers;
    let x = 2.0 * (7.0 / 8.0) * rows * 4.0 * h * layers / 100e9;
    let z = 2.0 * (1.0 / 2.0) * weights / 8.0 / 25e9;
    let data = 2.0 * (1.0 / 2.0) * weights / 16.0 / 25e9;
    assert!((best.price.seconds() / (2.0 * (x + z + data)) - 1.0).abs() < 1e-12);
}

#[test]
fn the_best_price_is_the_one_worked_out_by_hand() {
    // data=32: equation 5 alone, 2 * 31/32 * 12 h^2 * 32 layers elements of 2 bytes, one ring over the network.
    let plan = gpt_20b_on_perlmutter();
    let seconds = 2.0 * (31.0 / 32.0) * 12.0 * 7168.0_f64.powi(2) * 32.0 * 2.0 / 100e9;
    assert!((plan.ranked[0].price.seconds() / seconds - 1.0).abs() < 1e-12);
}

/// Nodes and the bandwidth between them, given or derived from the tiers: data parallelism alone is one ring over the
/// outermost network, whose time is worked out by hand.
#[test]
fn every_cluster_of_several_nodes_is_planned_for() {
    let template = template(144, Activations::Replicated);
    let bytes = 2.0 * (143.0 / 144.0) * 12.0 * 5120.0_f64.powi(2) * 32.0 * 2.0;
    for name in Cluster::preset_names().filter(|name| *name != "local") {
        let outermost = Cluster::preset(name).unwrap().tiers.pop().unwrap();
        let plan = search("gpt-10b", name, 144, &template).unwrap();
        let data = plan.ranked.iter().find(|candidate| sizes(&candidate.layout.grid) == [1, 1, 1, 144]).unwrap();
        let by_hand = bytes / (outermost.links as f64 * outermost.bandwidth);
        assert!((data.price.seconds() / by_hand - 1.0).abs() < 1e-12, "{name}");
    }
}

#[test]
fn the_order_of_axes_is_the_templates() {
    let mut template = template(512, Activations::Replicated);
    template.grid = template.grid.with_order("data,z,x,y".parse().unwrap());
    let other = search_by_volume(32, &template);
    assert!(other.ranked.iter().all(|candidate| candidate.layout.grid.order() == template.grid.order()));
    let price = |plan: &Plan| {
        let find = |wanted| plan.ranked.iter().find(|candidate| sizes(&candidate.layout.grid) == wanted);
        find([4, 1, 1, 8]).map(|candidate| candidate.price.bandwidths[Axis::Data as usize])
    };
    // data=8 before x=4: one ring leaves each node instead of four.
    assert_eq!((price(&gpt_20b_on_perlmutter()), price(&other)), (Some(25e9), Some(100e9)));
}

#[test]
fn tiny_has_grids_of_several_axes_on_twelve_ranks() {
    let plan = search("gpt-tiny", "local", 12, &template(12, Activations::Scattered)).unwrap();
    let grids: Vec<_> = plan.ranked.iter().map(|candidate| sizes(&candidate.layout.grid)).collect();
    for wanted in [[3, 2, 2, 1], [2, 3, 2, 1], [2, 2, 3, 1], [3, 1, 2, 2], [12, 1, 1, 1], [1, 12, 1, 1]] {
        assert!(grids.contains(&wanted), "{wanted:?} is missing in {grids:?}");
    }
}

#[test]
fn no_legal_grid_names_the_rule_and_possible_numbers() {
    let message = |model, ranks, batch| {
        search(model, "local", ranks, &template(batch, Activations::Scattered)).unwrap_err().to_string()
    };
    assert_eq!(
        message("gpt-tiny", 7, 12),
        "no legal grid of 7 ranks for gpt-tiny: of 4 grids, 1 refused for 'global-batch', e.g. global-batch = \
         12: it must be a multiple of data=7; try --global-batch 7 or 14; the nearest numbers of ranks with a legal grid are 6 and 8"
    );
    assert!(message("gpt-tiny", 65_536, 8).contains("'x does not divide heads'"));
    assert!(message("gpt-tiny", 0, 8).starts_with("ranks = 0: a grid has 1 to 2^24 ranks"));
    assert!(message("gpt-tiny", usize::MAX, 8).starts_with("ranks = "));
}

#[test]
fn faults_of_every_grid_are_told_without_a_search() {
    let message = |cluster, ranks, change: fn(&mut LayoutRequest)| {
        let mut template = template(64, Activations::Scattered);
        change(&mut template);
        search("gpt-tiny", cluster, ranks, &template).unwrap_err().to_string()
    };
    assert!(
        message("local", 8, |template| template.global_batch = 0)
            .starts_with("global-batch = 0: it must be 1 to 16777216")
    );
    assert!(
        message("local", 8, |template| template.seq_len = Some(17))
            .starts_with("seq-len = 17: it must be 1 to 16: the model has 16")
    );
    let three = message("local", 8, |template| template.per_node = Some(3));
    assert_eq!(three, "per-node=3 does not divide the number of ranks = 8; try --per-node 2 or 4");
    // 6 divides as well, but no node has as many devices.
    let four = message("perlmutter", 6, |_| ());
    assert_eq!(four, "per-node=4 does not divide the number of ranks = 6; try --per-node 3");
}

#[test]
fn grids_that_do_not_hold_the_states_are_marked() {
    // 16 * 20.1e9 bytes fill 7.5 devices of 40 GiB: 8 shards at least.
    let (model, cluster) = (Model::preset("gpt-20b").unwrap(), Cluster::preset("perlmutter").unwrap());
    let template = template(512, Activations::Replicated);
    let found = plan(&model, &cluster, 32, &template, 2, usize::MAX).unwrap();
    assert_eq!(found.feasible, 56 - 4, "16 and 32 do not divide the heads");
    for candidate in &found.ranked {
        assert_eq!(candidate.fits, candidate.layout.grid.size(Axis::Data) <= 4, "{}", candidate.layout.grid);
    }
    assert!(!found.ranked[0].fits);
}

#[test]
fn nodes_are_those_of_the_cluster() {
    let plan = gpt_20b_on_perlmutter();
    assert!(plan.ranked.iter().all(|candidate| candidate.layout.per_node == 4));
    let larger = LayoutRequest { per_node: Some(8), ..template(512, Activations::Replicated) };
    let message = search("gpt-20b", "perlmutter", 32, &larger).unwrap_err().to_string();
    assert!(message.contains("a node of perlmutter has 4 devices"), "{message}");
}

#[test]
fn refused_grids_are_counted_by_rule() {
    let refusals = gpt_20b_on_perlmutter().refusals;
    let [(count, rule, example)] = refusals.by_frequency()[..] else { panic!("one rule only: {refusals:?}") };
    assert_eq!((count, rule), (4, "x does not divide heads"));
    assert!(example.to_string().starts_with("x=32 does not divide heads = 56"), "{example}");
}

#[test]
fn the_largest_searches_are_complete() {
    // 2^16 splits over four axes in (16 + 3 choose 3) ways.
    let plan = search("gpt-320b", "frontier", 65_536, &template(65_536, Activations::Scattered)).unwrap();
    assert_eq!(plan.grids, 969);
    assert!(plan.feasible > 500);
}

proptest! {
    #[test]
    fn every_ranking_is_sorted_complete_and_repeatable(
        ranks in 0_usize..200,
        batch in 0_usize..64,
        scattered in any::<bool>(),
        cluster in prop::sample::select(Cluster::preset_names().collect::<Vec<_>>()),
    ) {
        let activations = if scattered { Activations::Scattered } else { Activations::Replicated };
        let first = search("gpt-tiny", cluster, ranks, &template(batch, activations));
        prop_assert_eq!(&first, &search("gpt-tiny", cluster, ranks, &template(batch, activations)));
        match first {
            Ok(plan) => {
                let refused: usize = plan.refusals.by_frequency().iter().map(|(count, ..)| count).sum();
                prop_assert_eq!(plan.feasible + refused, plan.grids);
                prop_assert_eq!(plan.feasible, plan.ranked.len());
                let seconds = plan.ranked.iter().map(|candidate| candidate.price.seconds() as f32);
                prop_assert!(seconds.is_sorted());
                prop_assert!(plan.ranked.iter().all(|candidate| candidate.layout.grid.ranks() == ranks));
            }
            Err(SpecError::NoLegalGrid { nearest, .. }) => {
                for possible in nearest {
                    prop_assert!(search("gpt-tiny", cluster, possible, &template(batch, activations)).is_ok());
                }
            }
            Err(_) => {
                let nodes = Cluster::preset(cluster).unwrap().per_node(ranks);
                prop_assert!(ranks == 0 || batch == 0 || !ranks.is_multiple_of(nodes));
            }
        }
    }
}
