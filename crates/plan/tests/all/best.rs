//! The grid of a run that leaves it open.

use quadrille_cost::native::{Framework, Problem};
use quadrille_plan::best;
use quadrille_spec::{Cluster, LayoutRequest, LegalGrids, Model};

/// Of all legal grids none has a program of a lower price that fits.
#[test]
fn the_best_grid_is_that_of_the_cheapest_program() {
    let model = Model::preset("gpt2-124m").unwrap();
    let mut cluster = Cluster::preset("perlmutter").unwrap();
    let template = LayoutRequest::new("x=1".parse().unwrap(), 16);
    let problem = Problem::new(&model, &cluster, Framework::QUADRILLE, 16, model.seq_len).unwrap();
    let all = LegalGrids::new(&model, &cluster, 8, &template).unwrap().legal;
    let priced: Vec<_> = all.iter().map(|layout| problem.price_layout(layout).unwrap()).collect();
    let (_, price) = best(&model, &cluster, 8, &template).unwrap();
    let fastest = priced.iter().map(|price| price.seconds).fold(f64::INFINITY, f64::min);
    assert_eq!(price.seconds, fastest);
    let least = priced.iter().map(|price| price.memory.total()).min().unwrap();
    cluster.device_memory = Some(least);
    assert_eq!(best(&model, &cluster, 8, &template).unwrap().1.memory.total(), least);
    cluster.device_memory = Some(least - 1);
    let message = best(&model, &cluster, 8, &template).unwrap_err().to_string();
    assert!(message.contains(&format!("device_memory = {}", least - 1)) && message.contains("ZeRO"), "{message}");
}
