//! Kernels of experts.

use std::ops::Range;

use quadrille_tensor::{RouterLosses, RouterRule, RouterShape, SpreadShape, TokenGroups};

use super::{Done, RankMemory};

/// Kernels of experts and of their routers, which compute in the real type; rows that are spread are values.
pub trait ExpertKernels: RankMemory {
    /// See [`quadrille_tensor::router_forward`].
    fn router_forward(
        &self,
        shape: RouterShape,
        cols: usize,
        x: Self::View<'_>,
        weight: Self::View<'_>,
        logits: &mut Self::ViewMut<'_>,
    ) -> Done;

    /// See [`quadrille_tensor::router_input_gradient`].
    fn router_input_gradient(
        &self,
        shape: RouterShape,
        cols: usize,
        dlogits: Self::View<'_>,
        weight: Self::View<'_>,
        dx: &mut Self::ViewMut<'_>,
    ) -> Done;

    /// See [`quadrille_tensor::router_weight_gradient`].
    fn router_weight_gradient(
        &self,
        shape: RouterShape,
        cols: usize,
        x: Self::View<'_>,
        dlogits: Self::View<'_>,
        dweight: &mut Self::ViewMut<'_>,
        accumulate: bool,
    ) -> Done;

    /// See [`quadrille_tensor::route`], for the rows `of` of the samples.
    fn route(
        &self,
        shape: RouterShape,
        rule: RouterRule,
        groups: TokenGroups,
        samples: &Self::Samples,
        of: Range<usize>,
        logits: Self::View<'_>,
        bias: Option<Self::View<'_>>,
        routes: &mut Self::ViewMut<'_>,
    ) -> Done;

    /// See [`quadrille_tensor::count_choices`].
    fn count_choices(
        &self,
        shape: RouterShape,
        routes: Self::View<'_>,
        scope: impl Fn(usize) -> usize,
        counts: &mut Self::ViewMut<'_>,
        accumulate: bool,
    ) -> Done;

    /// See [`quadrille_tensor::follow_loads`]: only if [`prepare_update`](RankMemory::prepare_update) has said that the
    /// step is applied.
    fn follow_loads(
        &self,
        rate: f64,
        choices: usize,
        experts: usize,
        loads: Self::View<'_>,
        bias: &mut Self::ViewMut<'_>,
    ) -> Done;

    /// See [`quadrille_tensor::router_losses`] and [`quadrille_tensor::dropped_choices`]; they are added to the totals,
    /// and choices to the loads from the block's `first` expert on. Where there are no counts loads are not balanced.
    fn router_losses(
        &self,
        first: usize,
        shape: RouterShape,
        rule: RouterRule,
        losses: RouterLosses,
        logits: Self::View<'_>,
        routes: Self::View<'_>,
        counts: Option<Self::View<'_>>,
        scope: impl Fn(usize) -> usize,
    ) -> Done;

    /// See [`quadrille_tensor::route_backward`].
    fn route_backward(
        &self,
        shape: RouterShape,
        rule: RouterRule,
        losses: RouterLosses,
        factor: f64,
        logits: &mut Self::ViewMut<'_>,
        routes: Self::View<'_>,
        counts: Option<Self::View<'_>>,
        dweights: Self::View<'_>,
        scope: impl Fn(usize) -> usize + Sync,
    ) -> Done;

    /// See [`quadrille_tensor::spread`].
    fn spread(
        &self,
        shape: SpreadShape<'_>,
        x: Self::View<'_>,
        routes: Self::View<'_>,
        y: &mut Self::ViewMut<'_>,
    ) -> Done;

    /// See [`quadrille_tensor::spread_backward`].
    fn spread_backward(
        &self,
        shape: SpreadShape<'_>,
        dy: Self::View<'_>,
        routes: Self::View<'_>,
        dx: &mut Self::ViewMut<'_>,
    ) -> Done;

    /// See [`quadrille_tensor::combine`].
    fn combine(
        &self,
        shape: SpreadShape<'_>,
        x: Self::View<'_>,
        routes: Self::View<'_>,
        y: &mut Self::ViewMut<'_>,
    ) -> Done;

    /// See [`quadrille_tensor::combine_backward`].
    fn combine_backward(
        &self,
        shape: SpreadShape<'_>,
        dy: Self::View<'_>,
        x: Self::View<'_>,
        routes: Self::View<'_>,
        dx: &mut Self::ViewMut<'_>,
        dweights: &mut Self::ViewMut<'_>,
    ) -> Done;
}
