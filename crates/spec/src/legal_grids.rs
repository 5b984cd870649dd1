//! The legal grids of a number of ranks.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use crate::{
    Axis, Change, Cluster, Field, FieldValue, Grid, Layout, LayoutRequest, Model, Refusals, Remedy, SpecError,
};

/// Every grid of x, y, z and data of a number of ranks, held against the rules of layouts.
#[derive(Debug, Clone, PartialEq)]
pub struct LegalGrids {
    /// How many there are.
    pub all: usize,
    /// The layouts of those that are legal: at least one.
    pub legal: Vec<Layout>,
    /// Why the others are not.
    pub refusals: Refusals,
}

impl LegalGrids {
    /// `template` holds all else that a layout needs; of its grid only the order of the axes counts, and without `per_node`
    /// nodes are as large as the cluster's.
    ///
    /// # Errors
    /// A fault that does not depend on the grid; no legal grid.
    pub fn new(model: &Model, cluster: &Cluster, ranks: usize, template: &LayoutRequest) -> Result<Self, SpecError> {
        let grids = grids(ranks, template)?;
        check_without_grid(model, cluster, ranks, template)?;
        let mut legal = Vec::new();
        let mut refusals = Refusals::default();
        for grid in &grids {
            match layout(model, cluster, *grid, template) {
                Ok(layout) => legal.push(layout),
                Err(refusal) => refusals.count(refusal),
            }
        }
        if legal.is_empty() {
            let nearest = nearest(model, ranks, template, |count| is_possible(model, cluster, count, template));
            return Err(refusals.none_legal(model, ranks, nearest));
        }
        Ok(Self { all: grids.len(), legal, refusals })
    }

    /// Orders layouts that are equally good: smaller for what has more data parallelism, then a larger z, then a larger x.
    pub fn tensor_parallelism(layout: &Layout) -> [Reverse<usize>; 3] {
        [Axis::Data, Axis::Z, Axis::X].map(|axis| Reverse(layout.grid.size(axis)))
    }
}

/// Every grid of `ranks` ranks in the template's order of axes.
fn grids(ranks: usize, template: &LayoutRequest) -> Result<Vec<Grid>, SpecError> {
    // The grid of one axis is refused exactly if all of them would be: no rank, or too many.
    Grid::new(1, 1, 1, ranks).map_err(|_| {
        SpecError::invalid("ranks", ranks, "a grid has 1 to 2^24 ranks", "give the number of devices to plan for")
    })?;
    Ok(Grid::all(ranks).into_iter().map(|grid| grid.with_order(template.grid.order())).collect())
}

fn per_node(cluster: &Cluster, ranks: usize, template: &LayoutRequest) -> usize {
    template.per_node.unwrap_or_else(|| cluster.per_node(ranks))
}

/// The rules that every grid of `ranks` ranks would break alike.
fn check_without_grid(
    model: &Model,
    cluster: &Cluster,
    ranks: usize,
    template: &LayoutRequest,
) -> Result<(), SpecError> {
    let per_node = per_node(cluster, ranks, template);
    let request = LayoutRequest { per_node: Some(per_node), ..template.clone() };
    let in_nodes = |remedy: &Remedy| match remedy.change {
        Change::Set(Field::PerNode, FieldValue::Size(size)) => cluster.network_for(ranks, size).is_ok(),
        _ => true,
    };
    match request.check_without_grid(model, ranks) {
        // Sizes that the cluster's nodes do not have are no remedy.
        Err(SpecError::Refused(mut refusal)) => {
            if refusal.remedies.iter().any(in_nodes) {
                refusal.remedies.retain(in_nodes);
            }
            Err(SpecError::Refused(refusal))
        }
        checked => checked.and_then(|()| cluster.network_for(ranks, per_node).map(|_| ())),
    }
}

/// The layout of `grid`, if it keeps the rules of layouts.
fn layout(model: &Model, cluster: &Cluster, grid: Grid, template: &LayoutRequest) -> Result<Layout, SpecError> {
    let per_node = Some(per_node(cluster, grid.ranks(), template));
    Layout::new(model, &LayoutRequest { grid, per_node, ..template.clone() })
}

fn is_possible(model: &Model, cluster: &Cluster, ranks: usize, template: &LayoutRequest) -> bool {
    check_without_grid(model, cluster, ranks, template).is_ok()
        && grids(ranks, template)
            .is_ok_and(|grids| grids.into_iter().any(|grid| layout(model, cluster, grid, template).is_ok()))
}

/// How many rank counts on either side of the wanted one are tried as remedies.
const REMEDIES_TRIED: usize = 50;

/// The rank counts next below and above `ranks` that are possible. Only products of a divisor of the heads (x), of
/// hidden (y) and of the batch (z times data) can be, which leaves few to try.
fn nearest(model: &Model, ranks: usize, template: &LayoutRequest, is_possible: impl Fn(usize) -> bool) -> Vec<usize> {
    // Far larger counts are no remedy.
    let most = ranks.saturating_mul(4);
    let mut counts = BTreeSet::from([1]);
    for dimension in [model.blocks.first().attention.heads, model.hidden, template.global_batch] {
        let divisors: Vec<_> = (1..=dimension.min(most)).filter(|d| dimension.is_multiple_of(*d)).collect();
        let products = counts.iter().flat_map(|count| divisors.iter().map(move |d| count * d));
        counts = products.filter(|count| *count <= most).collect();
    }
    let below = counts.range(..ranks).rev().take(REMEDIES_TRIED);
    let above = counts.range(ranks + 1..).take(REMEDIES_TRIED);
    let possible = |count: &usize| is_possible(*count);
    below.copied().find(possible).into_iter().chain(above.copied().find(possible)).collect()
}
