//! The published search over grids: ranked by AxoNN's communication model ([`price`]), which looks at no
//! computation, and of memory at the states of training alone ([`state_bytes`]).

use quadrille_spec::{Cluster, Layout, LayoutRequest, LegalGrids, Model, Refusals, SpecError};

use super::memory::{fits, state_bytes};
use super::model::{Price, price};

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
) -> Result<Plan, SpecError> {
    let LegalGrids { all, legal, refusals } = LegalGrids::new(model, cluster, ranks, template)?;
    let priced = legal.into_iter().map(|layout| {
        let price = price(model, &layout, cluster, element_bytes)?;
        let state_bytes = state_bytes(model, &layout.grid);
        let fits = fits(model, cluster, &layout.grid);
        Ok(Candidate { layout, price, state_bytes, fits })
    });
    let mut ranked = priced.collect::<Result<Vec<_>, SpecError>>()?;
    // Single precision: sums that differ by rounding only are equal prices.
    let seconds = |candidate: &Candidate| candidate.price.seconds() as f32;
    ranked.sort_by(|a, b| {
        let fewer = || LegalGrids::tensor_parallelism(&a.layout).cmp(&LegalGrids::tensor_parallelism(&b.layout));
        seconds(a).total_cmp(&seconds(b)).then_with(fewer)
    });
    let feasible = ranked.len();
    ranked.truncate(top);
    Ok(Plan { grids: all, feasible, refusals, ranked })
}
