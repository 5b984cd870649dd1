//! Searches whose results are known: the paper's cases, and properties of every ranking.

use proptest::prelude::*;
use quadrille_papers::axonn::{Plan, plan};
use quadrille_spec::{Activations, Axis, Cluster, Grid, LayoutRequest, Model, SpecError};

fn template(global_batch: usize, activations: Activations) -> LayoutRequest {
    LayoutRequest { activations, ..LayoutRequest::new("x=1".parse().unwrap(), global_batch) }
}

fn search(model: &str, cluster: &str, ranks: usize, template: &LayoutRequest) -> Result<Plan, SpecError> {
    let model = Model::preset(model).unwrap();
    let cluster = Cluster::preset(cluster).unwrap();
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
    let h = 7168.0;
    let layers = 32.0;
    let rows = 16.0 * 1024.0 / 2.0;
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
fn grids_that_do_not_hold_the_states_are_marked() {
    // 16 * 20.1e9 bytes fill 7.5 devices of 40 GiB: 8 shards at least.
    let model = Model::preset("gpt-20b").unwrap();
    let cluster = Cluster::preset("perlmutter").unwrap();
    let template = template(512, Activations::Replicated);
    let found = plan(&model, &cluster, 32, &template, 2, usize::MAX).unwrap();
    assert_eq!(found.feasible, 56 - 4, "16 and 32 do not divide the heads");
    for candidate in &found.ranked {
        assert_eq!(candidate.fits, candidate.layout.grid.size(Axis::Data) <= 4, "{}", candidate.layout.grid);
    }
    assert!(!found.ranked[0].fits);
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
