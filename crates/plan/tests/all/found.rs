//! Layouts that a request finds.

use quadrille_cost::native::{Learned, Price};
use quadrille_plan::native::{Answer, Cancel, Nothing, PlanRequest, Resolved};
use quadrille_spec::Layout;

/// Layouts with their prices, fastest first.
pub fn found(request: &PlanRequest) -> Result<Vec<(Layout, Price)>, Nothing> {
    let Resolved { question, wanted } = request.resolve(&Cancel::default(), &Learned::default())?;
    let answer = Answer::new(&question, &wanted)?;
    let priced = answer.found.ranked.iter().map(|ranked| Ok((question.layout(ranked)?, ranked.price)));
    priced.collect()
}
