//! The best grid of a number of ranks, by the prices of programs.

use quadrille_cost::native::{Framework, Price, PriceError, Problem};
use quadrille_spec::{Cluster, ElementType, Layout, LayoutRequest, Model, SpecError};
use rayon::prelude::*;

use crate::PlanError;
use crate::grids::{Grids, tensor_parallelism};

/// So many grids at a time are priced by their programs, those first that are fastest in closed form.
const PRICED: usize = 16;

/// The layout among the legal grids of x, y, z and data of `ranks` ranks that this program's engine steps through fastest,
/// with its price; of equal seconds the one that needs less memory, then the one of more data parallelism. It fits into a
/// device of the cluster. Where there are many grids, the closed form says which are priced: sixteen at a time, until
/// one fits.
///
/// `template` holds all else that a layout needs; of its grid only the order of the axes counts, and without `per_node`
/// nodes are as large as the cluster's. Steps are priced in f32, whatever the template's type.
///
/// # Errors
/// A fault that does not depend on the grid; no legal grid, or none that fits or can be priced.
pub fn best(
    model: &Model,
    cluster: &Cluster,
    ranks: usize,
    template: &LayoutRequest,
) -> Result<(Layout, Price), PlanError> {
    let priced = LayoutRequest { dtype: ElementType::F32, ..template.clone() };
    let mut legal = Grids::new(model, cluster, ranks, &priced)?.legal;
    let seq_len = template.seq_len.unwrap_or(model.seq_len);
    let problem = Problem::new(model, cluster, Framework::QUADRILLE, template.global_batch, seq_len)?;
    problem.check_devices(ranks)?;
    let closed = |layout: &Layout| {
        let candidate = problem.candidate(layout);
        problem.price(&candidate, &problem.block(&candidate)).seconds
    };
    legal.sort_by_cached_key(|layout| ((closed(layout) as f32).to_bits(), tensor_parallelism(layout)));
    let (mut smallest, mut refused) = (None, None);
    for layouts in legal.chunks(PRICED) {
        let price = |layout: &Layout| Ok((layout.clone(), problem.price_layout(layout)?));
        let results: Vec<Result<(Layout, Price), PriceError>> = layouts.par_iter().map(price).collect();
        let mut prices = Vec::new();
        for result in results {
            match result {
                Ok(priced) => prices.push(priced),
                Err(error) => refused = refused.or(Some(error)),
            }
        }
        // All that a rank allocates is of the layout's type.
        let needed =
            |(_, price): &(Layout, Price)| price.memory.total() / ElementType::F32.bytes() * template.dtype.bytes();
        smallest = prices.iter().map(needed).chain(smallest).min();
        let fitting = prices.into_iter().filter(|one| cluster.device_memory.is_none_or(|memory| needed(one) <= memory));
        let key = |one: &(Layout, Price)| ((one.1.seconds as f32).to_bits(), needed(one), tensor_parallelism(&one.0));
        if let Some((layout, price)) = fitting.min_by_key(key) {
            return Ok((Layout { dtype: template.dtype, ..layout }, price));
        }
    }
    let (None, Some(error)) = (smallest, refused) else {
        let least = smallest.unwrap_or(0);
        let rule = format!("every legal grid of {ranks} ranks needs more, the smallest {least} bytes");
        let memory = cluster.device_memory.unwrap_or(u64::MAX);
        let remedy = "use more ranks, or see plan for recomputation and ZeRO";
        return Err(SpecError::invalid("device_memory", memory, rule, remedy).into());
    };
    Err(error.into())
}
