//! The best grid of a number of ranks, by the prices of programs.

use quadrille_cost::native::{Bounds, Framework, Price, PriceError, Problem};
use quadrille_spec::{Cluster, Layout, LayoutRequest, LegalGrids, Model, SpecError};
use rayon::prelude::*;

/// So many grids at a time are priced by their programs, those first that may be fastest.
const PRICED: usize = 16;

/// The layout among the legal grids of x, y, z and data of `ranks` ranks that this program's engine steps through fastest,
/// with its price; of equal seconds the one that needs less memory, then the one of more data parallelism. It fits into a
/// device of the cluster. Grids are priced by their programs until no other can be faster by its bound.
///
/// `template` holds all else that a layout needs; of its grid only the order of the axes counts, and without `per_node`
/// nodes are as large as the cluster's.
///
/// # Errors
/// A fault that does not depend on the grid; no legal grid, or none that fits or can be priced.
pub fn best(
    model: &Model,
    cluster: &Cluster,
    ranks: usize,
    template: &LayoutRequest,
) -> Result<(Layout, Price), PriceError> {
    let legal = LegalGrids::new(model, cluster, ranks, template)?.legal;
    let seq_len = template.seq_len.unwrap_or(model.seq_len);
    let framework = Framework::own(template.dtype, template.gradient_type());
    let problem = Problem::new(model, cluster, framework, template.global_batch, seq_len)?;
    problem.check_devices(ranks)?;
    let open = bounded(&problem, legal)?;
    let mut found = Vec::new();
    let mut smallest = None;
    let mut refused = None;
    for part in open.chunks(PRICED) {
        let fastest = found.iter().map(|(_, price): &(Layout, Price)| price.seconds).fold(f64::INFINITY, f64::min);
        if part.first().is_some_and(|(seconds, _)| *seconds as f32 > fastest as f32) {
            break;
        }
        let price = |(_, layout): &(f64, Layout)| Ok((layout.clone(), problem.price_layout(layout)?));
        let results: Vec<Result<(Layout, Price), PriceError>> = part.par_iter().map(price).collect();
        let mut prices = Vec::new();
        for result in results {
            match result {
                Ok(priced) => prices.push(priced),
                Err(error) => refused = refused.or(Some(error)),
            }
        }
        smallest = prices.iter().map(|one| one.1.memory.total()).chain(smallest).min();
        let fits = |one: &(Layout, Price)| cluster.device_memory.is_none_or(|memory| one.1.memory.total() <= memory);
        found.extend(prices.into_iter().filter(fits));
    }
    let key = |one: &(Layout, Price)| {
        ((one.1.seconds as f32).to_bits(), one.1.memory.total(), LegalGrids::tensor_parallelism(&one.0))
    };
    if let Some((layout, price)) = found.into_iter().min_by_key(key) {
        return Ok((layout, price));
    }
    let (None, Some(error)) = (smallest, refused) else {
        let least = smallest.unwrap_or(0);
        let rule = format!("every legal grid of {ranks} ranks needs more, the smallest {least} bytes");
        let memory = cluster.device_memory.unwrap_or(u64::MAX);
        let remedy = "use more ranks, or see plan for recomputation and ZeRO";
        return Err(SpecError::invalid("device_memory", memory, rule, remedy).into());
    };
    Err(error)
}

/// The layouts with lower bounds of their seconds, those first that may be fastest. What bounds do not know, uneven pieces
/// and groups of microbatches, may be.
fn bounded(problem: &Problem, layouts: Vec<Layout>) -> Result<Vec<(f64, Layout)>, PriceError> {
    let mut bounds = Bounds::new(problem);
    let mut open = Vec::new();
    for layout in layouts {
        let candidate = problem.candidate(&layout);
        let seconds = if problem.is_candidate(&layout) {
            bounds.pieces(&candidate).map(|pieces| bounds.seconds(&candidate, &pieces))?
        } else {
            0.0
        };
        open.push((seconds, layout));
    }
    open.sort_by(|(a, one), (b, other)| {
        (*a as f32)
            .total_cmp(&(*b as f32))
            .then_with(|| LegalGrids::tensor_parallelism(one).cmp(&LegalGrids::tensor_parallelism(other)))
    });
    Ok(open)
}
