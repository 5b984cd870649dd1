//! The processor's kernels of experts.

use std::ops::Range;

use quadrille_tensor as kernels;
use quadrille_tensor::{RouterLosses, RouterRule, RouterShape, SpreadShape, TokenGroups};

use super::Cpu;
use crate::backend::memory::{Numbers, NumbersMut};
use crate::backend::{Done, ExpertKernels};
use crate::state::samples::OwnSamples;

for_each_element! {
impl ExpertKernels for Cpu<S> {
    fn router_forward(
        &self,
        shape: RouterShape,
        cols: usize,
        x: Numbers<'_, S>,
        weight: Numbers<'_, S>,
        logits: &mut NumbersMut<'_, S>,
    ) -> Done {
        kernels::router_forward(&self.pool, shape, cols, x.stored(), weight.real(), logits.real());
        Ok(())
    }

    fn router_input_gradient(
        &self,
        shape: RouterShape,
        cols: usize,
        dlogits: Numbers<'_, S>,
        weight: Numbers<'_, S>,
        dx: &mut NumbersMut<'_, S>,
    ) -> Done {
        kernels::router_input_gradient(&self.pool, shape, cols, dlogits.real(), weight.real(), dx.stored());
        Ok(())
    }

    fn router_weight_gradient(
        &self,
        shape: RouterShape,
        cols: usize,
        x: Numbers<'_, S>,
        dlogits: Numbers<'_, S>,
        dweight: &mut NumbersMut<'_, S>,
        accumulate: bool,
    ) -> Done {
        kernels::router_weight_gradient(
            &self.pool,
            shape,
            cols,
            x.stored(),
            dlogits.real(),
            dweight.real(),
            accumulate,
        );
        Ok(())
    }

    fn route(
        &self,
        shape: RouterShape,
        rule: RouterRule,
        groups: TokenGroups,
        samples: &OwnSamples,
        of: Range<usize>,
        logits: Numbers<'_, S>,
        bias: Option<Numbers<'_, S>>,
        routes: &mut NumbersMut<'_, S>,
    ) -> Done {
        kernels::route(
            &self.pool,
            shape,
            rule,
            groups,
            &samples.present[of],
            logits.real(),
            bias.map(Numbers::real),
            routes.real(),
        );
        Ok(())
    }

    fn count_choices(
        &self,
        shape: RouterShape,
        routes: Numbers<'_, S>,
        scope: impl Fn(usize) -> usize,
        counts: &mut NumbersMut<'_, S>,
        accumulate: bool,
    ) -> Done {
        kernels::count_choices(shape, routes.real(), scope, counts.real(), accumulate);
        Ok(())
    }

    fn follow_loads(
        &self,
        rate: f64,
        choices: usize,
        experts: usize,
        loads: Numbers<'_, S>,
        bias: &mut NumbersMut<'_, S>,
    ) -> Done {
        if self.update.get().applied {
            kernels::follow_loads(rate, choices, experts, loads.real(), bias.real());
        }
        Ok(())
    }

    fn router_losses(
        &self,
        first: usize,
        shape: RouterShape,
        rule: RouterRule,
        losses: RouterLosses,
        logits: Numbers<'_, S>,
        routes: Numbers<'_, S>,
        counts: Option<Numbers<'_, S>>,
        scope: impl Fn(usize) -> usize,
    ) -> Done {
        let counts = counts.map(Numbers::real).unwrap_or_default();
        let (balance, z) = kernels::router_losses(shape, rule, losses, logits.real(), routes.real(), counts, scope);
        let dropped = kernels::dropped_choices(shape, routes.real());
        self.loads.add(first, shape, routes.real());
        let mut totals = self.totals.get();
        (totals.balance, totals.router_z) = (totals.balance + balance, totals.router_z + z);
        totals.dropped += dropped;
        self.totals.set(totals);
        Ok(())
    }

    fn route_backward(
        &self,
        shape: RouterShape,
        rule: RouterRule,
        losses: RouterLosses,
        factor: f64,
        logits: &mut NumbersMut<'_, S>,
        routes: Numbers<'_, S>,
        counts: Option<Numbers<'_, S>>,
        dweights: Numbers<'_, S>,
        scope: impl Fn(usize) -> usize + Sync,
    ) -> Done {
        let counts = counts.map(Numbers::real).unwrap_or_default();
        kernels::route_backward(
            &self.pool,
            shape,
            rule,
            losses,
            factor,
            logits.real(),
            routes.real(),
            counts,
            dweights.real(),
            scope,
        );
        Ok(())
    }

    fn spread(
        &self,
        shape: SpreadShape<'_>,
        x: Numbers<'_, S>,
        routes: Numbers<'_, S>,
        y: &mut NumbersMut<'_, S>,
    ) -> Done {
        kernels::spread(&self.pool, shape, x.stored(), routes.real(), y.stored());
        Ok(())
    }

    fn spread_backward(
        &self,
        shape: SpreadShape<'_>,
        dy: Numbers<'_, S>,
        routes: Numbers<'_, S>,
        dx: &mut NumbersMut<'_, S>,
    ) -> Done {
        kernels::spread_backward(&self.pool, shape, dy.stored(), routes.real(), dx.stored());
        Ok(())
    }

    fn combine(
        &self,
        shape: SpreadShape<'_>,
        x: Numbers<'_, S>,
        routes: Numbers<'_, S>,
        y: &mut NumbersMut<'_, S>,
    ) -> Done {
        kernels::combine(&self.pool, shape, x.stored(), routes.real(), y.stored());
        Ok(())
    }

    fn combine_backward(
        &self,
        shape: SpreadShape<'_>,
        dy: Numbers<'_, S>,
        x: Numbers<'_, S>,
        routes: Numbers<'_, S>,
        dx: &mut NumbersMut<'_, S>,
        dweights: &mut NumbersMut<'_, S>,
    ) -> Done {
        kernels::combine_backward(
            &self.pool,
            shape,
            dy.stored(),
            x.stored(),
            routes.real(),
            dx.stored(),
            dweights.real(),
        );
        Ok(())
    }
}
}
