//! A device's kernels of experts.

use std::ops::Range;

use quadrille_engine::{ExpertKernels, Values};
use quadrille_tensor::{RouterLosses, RouterRule, RouterShape, SpreadShape, TokenGroups};

use super::{Done, R, W};
use crate::array::Number;
use crate::backend::Cuda;
use crate::backend::convert::read;
use crate::backend::samples::DeviceSamples;
use crate::ops::{losses_scratch, route_scratch, spread_scratch};

impl<S: Values + Number> ExpertKernels for Cuda<S>
where
    S::Real: Number,
{
    fn router_forward(&self, shape: RouterShape, cols: usize, x: R<'_>, weight: R<'_>, logits: &mut W<'_>) -> Done {
        Ok(self.queue(0)?.router_forward(shape, cols, x.array, weight.array, logits.array)?)
    }

    fn router_input_gradient(
        &self,
        shape: RouterShape,
        cols: usize,
        dlogits: R<'_>,
        weight: R<'_>,
        dx: &mut W<'_>,
    ) -> Done {
        Ok(self.queue(0)?.router_input_gradient(shape, cols, dlogits.array, weight.array, dx.array)?)
    }

    fn router_weight_gradient(
        &self,
        shape: RouterShape,
        cols: usize,
        x: R<'_>,
        dlogits: R<'_>,
        dweight: &mut W<'_>,
        accumulate: bool,
    ) -> Done {
        Ok(self.queue(0)?.router_weight_gradient(shape, cols, x.array, dlogits.array, dweight.array, accumulate)?)
    }

    fn route(
        &self,
        shape: RouterShape,
        rule: RouterRule,
        groups: TokenGroups,
        samples: &DeviceSamples,
        of: Range<usize>,
        logits: R<'_>,
        bias: Option<R<'_>>,
        routes: &mut W<'_>,
    ) -> Done {
        let queue = self.queue(route_scratch(shape, routes.array.element))?;
        Ok(queue.route(shape, rule, groups, samples.present().part(of), logits.array, read(bias), routes.array)?)
    }

    fn count_choices(
        &self,
        shape: RouterShape,
        routes: R<'_>,
        scope: impl Fn(usize) -> usize,
        counts: &mut W<'_>,
        accumulate: bool,
    ) -> Done {
        let scopes = self.scopes(shape.rows, scope)?;
        Ok(self.queue(0)?.count_choices(shape, routes.array, scopes, counts.array, accumulate)?)
    }

    fn follow_loads(&self, rate: f64, choices: usize, experts: usize, loads: R<'_>, bias: &mut W<'_>) -> Done {
        let update = self.totals.update();
        Ok(self.queue(0)?.follow_loads(update, rate, choices, experts, loads.array, bias.array)?)
    }

    fn router_losses(
        &self,
        first: usize,
        shape: RouterShape,
        rule: RouterRule,
        losses: RouterLosses,
        logits: R<'_>,
        routes: R<'_>,
        counts: Option<R<'_>>,
        scope: impl Fn(usize) -> usize,
    ) -> Done {
        let counts = match counts {
            Some(counts) => Some((counts.array, self.scopes(shape.rows, scope)?)),
            None => None,
        };
        let loads = self.totals.loads_of(first, shape.experts)?;
        let queue = self.queue(losses_scratch(shape))?;
        queue.router_losses(shape, rule, losses, logits.array, routes.array, counts, self.totals.routers())?;
        Ok(queue.add_loads(shape, routes.array, loads)?)
    }

    fn route_backward(
        &self,
        shape: RouterShape,
        rule: RouterRule,
        losses: RouterLosses,
        factor: f64,
        logits: &mut W<'_>,
        routes: R<'_>,
        counts: Option<R<'_>>,
        dweights: R<'_>,
        scope: impl Fn(usize) -> usize + Sync,
    ) -> Done {
        let counts = match counts {
            Some(counts) => Some((counts.array, self.scopes(shape.rows, scope)?)),
            None => None,
        };
        Ok(self.queue(0)?.route_backward(
            shape,
            rule,
            losses,
            factor,
            logits.array,
            routes.array,
            counts,
            dweights.array,
        )?)
    }

    fn spread(&self, shape: SpreadShape<'_>, x: R<'_>, routes: R<'_>, y: &mut W<'_>) -> Done {
        let starts = self.starts(shape)?;
        Ok(self.queue(spread_scratch(Self::places(shape)))?.spread(shape, starts, x.array, routes.array, y.array)?)
    }

    fn spread_backward(&self, shape: SpreadShape<'_>, dy: R<'_>, routes: R<'_>, dx: &mut W<'_>) -> Done {
        let starts = self.starts(shape)?;
        Ok(self.queue(0)?.spread_backward(shape, starts, dy.array, routes.array, dx.array)?)
    }

    fn combine(&self, shape: SpreadShape<'_>, x: R<'_>, routes: R<'_>, y: &mut W<'_>) -> Done {
        let starts = self.starts(shape)?;
        Ok(self.queue(0)?.combine(shape, starts, x.array, routes.array, y.array)?)
    }

    fn combine_backward(
        &self,
        shape: SpreadShape<'_>,
        dy: R<'_>,
        x: R<'_>,
        routes: R<'_>,
        dx: &mut W<'_>,
        dweights: &mut W<'_>,
    ) -> Done {
        let starts = self.starts(shape)?;
        let queue = self.queue(spread_scratch(Self::places(shape)))?;
        Ok(queue.combine_backward(shape, starts, dy.array, x.array, routes.array, dx.array, dweights.array)?)
    }
}
