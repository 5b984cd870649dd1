//! The search over grids: all of them, the legal ones, the best of those.

use std::cmp::Ordering;

use quadrille_cost::axonn::{self, Price};
use quadrille_spec::{Axis, Change, Cluster, Field, FieldValue, Grid, Layout, LayoutRequest, Model, Remedy, SpecError};

use crate::memory::{fits, state_bytes, too_large};
use crate::refusal::nearest;
use crate::{PlanError, Refusals};

/// A legal layout and the price of its communication.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    /// The layout.
    pub layout: Layout,
    /// Bytes and seconds by linear layer, equation and axis.
    pub price: Price,
    /// Bytes of the states of training on a rank ([`state_bytes`]).
    pub state_bytes: u64,
    /// Whether a device of the cluster holds them; true where the cluster does not say how much it has.
    pub fits: bool,
}

/// The result of a search.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// How many grids have the wanted number of ranks.
    pub grids: usize,
    /// How many of them are legal for the model and batch.
    pub feasible: usize,
    /// Why the others are not.
    pub refusals: Refusals,
    /// The best legal layouts, best first.
    pub ranked: Vec<Candidate>,
}

/// Ranks the legal grids of `ranks` ranks by seconds of communication in a step and keeps the best `top`.
///
/// `template` holds all else that a layout needs; of its grid only the order of the axes counts, and without
/// `per_node` nodes are as large as the cluster's. `element_bytes` is the size of a value on the wire.
///
/// Prices equal to seven digits are ordered by the larger data axis, then the larger z, then the larger x. Often z and
/// data cost the same; then data comes first, because the model leaves out that the weights are gathered over z once
/// more in the backward pass.
///
/// The communication model knows nothing of memory: a candidate whose states alone exceed the cluster's device memory is
/// ranked as well, and marked.
///
/// # Errors
/// A fault that does not depend on the grid: a number of ranks that no grid has, nodes that the cluster does not have, a
/// batch or sequence length that no layout takes. No legal grid: the message says which rule refuses most and which rank
/// counts would do.
pub fn plan(
    model: &Model,
    cluster: &Cluster,
    ranks: usize,
    template: &LayoutRequest,
    element_bytes: u64,
    top: usize,
) -> Result<Plan, PlanError> {
    let grids = grids(ranks, template)?;
    check_without_grid(model, cluster, ranks, template)?;
    let mut refusals = Refusals::default();
    let mut ranked = Vec::new();
    for grid in &grids {
        match legal(model, cluster, *grid, template) {
            Ok(layout) => {
                let price = axonn::price(model, &layout, cluster, element_bytes)?;
                // Single precision: sums that differ by rounding only are equal prices.
                let (state_bytes, fits) = (state_bytes(model, grid), fits(model, cluster, grid));
                ranked.push((price.seconds() as f32, Candidate { layout, price, state_bytes, fits }));
            }
            Err(refusal) => refusals.count(refusal),
        }
    }
    if ranked.is_empty() {
        let nearest = nearest(model, ranks, template, |count| is_possible(model, cluster, count, template));
        return Err(PlanError::none_legal(model, ranks, &refusals, nearest));
    }
    ranked.sort_by(|(a, this), (b, other)| a.total_cmp(b).then_with(|| less_tensor_parallel(this, other)));
    let feasible = ranked.len();
    ranked.truncate(top);
    let ranked = ranked.into_iter().map(|(_, candidate)| candidate).collect();
    Ok(Plan { grids: grids.len(), feasible, refusals, ranked })
}

/// The first of [`plan`]'s ranking whose states fit.
///
/// # Errors
/// Those of [`plan`]; no legal grid shards the states enough for the cluster's devices.
pub fn best(
    model: &Model,
    cluster: &Cluster,
    ranks: usize,
    template: &LayoutRequest,
    element_bytes: u64,
) -> Result<Candidate, PlanError> {
    let plan = plan(model, cluster, ranks, template, element_bytes, usize::MAX)?;
    plan.ranked.into_iter().find(|candidate| candidate.fits).ok_or_else(|| too_large(model, cluster).into())
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
fn legal(model: &Model, cluster: &Cluster, grid: Grid, template: &LayoutRequest) -> Result<Layout, SpecError> {
    let per_node = Some(per_node(cluster, grid.ranks(), template));
    Layout::new(model, &LayoutRequest { grid, per_node, ..template.clone() })
}

fn is_possible(model: &Model, cluster: &Cluster, ranks: usize, template: &LayoutRequest) -> bool {
    check_without_grid(model, cluster, ranks, template).is_ok()
        && grids(ranks, template)
            .is_ok_and(|grids| grids.into_iter().any(|grid| legal(model, cluster, grid, template).is_ok()))
}

fn less_tensor_parallel(this: &Candidate, other: &Candidate) -> Ordering {
    let key = |candidate: &Candidate| [Axis::Data, Axis::Z, Axis::X].map(|axis| candidate.layout.grid.size(axis));
    key(other).cmp(&key(this))
}
