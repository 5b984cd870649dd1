//! The legal grids of a number of ranks, and what is told where there are none.

use quadrille_spec::{Activations, Axis, Cluster, Grid, LayoutRequest, LegalGrids, Model, SpecError};

fn template(global_batch: usize, activations: Activations) -> LayoutRequest {
    LayoutRequest { activations, ..LayoutRequest::new("x=1".parse().unwrap(), global_batch) }
}

fn search(model: &str, cluster: &str, ranks: usize, template: &LayoutRequest) -> Result<LegalGrids, SpecError> {
    LegalGrids::new(&Model::preset(model).unwrap(), &Cluster::preset(cluster).unwrap(), ranks, template)
}

fn sizes(grid: &Grid) -> [usize; 4] {
    Axis::AXONN.map(|axis| grid.size(axis))
}

fn gpt_20b_on_perlmutter() -> LegalGrids {
    search("gpt-20b", "perlmutter", 32, &template(512, Activations::Replicated)).unwrap()
}

#[test]
fn tiny_has_grids_of_several_axes_on_twelve_ranks() {
    let found = search("gpt-tiny", "local", 12, &template(12, Activations::Scattered)).unwrap();
    let grids: Vec<_> = found.legal.iter().map(|layout| sizes(&layout.grid)).collect();
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
         12: it must be a multiple of data=7; try `layout.global_batch` 7 or 14; the nearest numbers of ranks with a legal grid are 6 and 8"
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
    assert_eq!(three, "per-node=3 does not divide the number of ranks = 8; try `layout.per_node` 2 or 4");
    // 6 divides as well, but no node has as many devices.
    let four = message("perlmutter", 6, |_| ());
    assert_eq!(four, "per-node=4 does not divide the number of ranks = 6; try `layout.per_node` 3");
}

#[test]
fn nodes_are_those_of_the_cluster() {
    let found = gpt_20b_on_perlmutter();
    assert!(found.legal.iter().all(|layout| layout.per_node == 4));
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
    let found = search("gpt-320b", "frontier", 65_536, &template(65_536, Activations::Scattered)).unwrap();
    assert_eq!(found.all, 969);
    assert!(found.legal.len() > 500);
}
