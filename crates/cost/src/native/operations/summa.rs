//! SUMMA products over the x-y mesh, panel by panel (LBNL appendix, Algorithm 1), as the step program runs them: the
//! next panel travels under this panel's product.

use super::linear::{Gradient, Input};
use super::pass::Pass;
use super::{Group, LinearSizes, Product, Sink};

/// A panel that is broadcast, or a product's panel that is reduced.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::native) struct Travel {
    pub group: Group,
    /// Elements of a panel.
    pub elements: u64,
    /// Whether it is a weight's: one for all overlap chunks.
    pub once: bool,
}

/// A product with all its panels.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::native) struct Panels {
    pub product: Product,
    /// Of the product with a panel: `[m, n, k]`.
    pub shape: [u64; 3],
    pub count: u64,
    /// What is broadcast before each product.
    pub broadcasts: [Option<Travel>; 2],
    /// What is reduced after each.
    pub reduce: Option<Travel>,
}

/// The panels of tokens of a product that recomputation may repeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TokenPanels {
    /// They are broadcast.
    Travel,
    /// They are broadcast, and kept for recomputation.
    Kept,
    /// They are there.
    There,
}

impl<S: Sink> Pass<'_, S> {
    /// Panels of a layer's input and of its weight.
    fn travels(&self, l: LinearSizes, panels: u64) -> (Travel, Travel) {
        let width = l.inputs * self.s.y / panels;
        let tokens = Travel { group: Group::X, elements: self.s.inner_rows * width, once: false };
        (tokens, Travel { group: Group::Y, elements: width * l.outputs, once: true })
    }

    pub fn summa_linear(&mut self, l: LinearSizes, count: u64) {
        let (tokens, weight) = self.travels(l, count);
        let all = tokens.elements * count;
        let (kept, there) = (self.tokens == TokenPanels::Kept, self.tokens == TokenPanels::There);
        let travelling = if there { None } else { Some(tokens) };
        let in_flight = self.in_flight(travelling, count) + self.in_flight(Some(weight), count);
        self.sink.take(in_flight);
        if kept {
            self.take(all);
        }
        self.take(self.s.inner_rows * l.outputs);
        let width = l.inputs * self.s.y / count;
        self.sink.panels(&Panels {
            product: Product::Forward,
            shape: [self.s.inner_rows, l.outputs, width],
            count,
            broadcasts: [travelling, Some(weight)],
            reduce: None,
        });
        self.sink.give(in_flight);
        self.give_if(there, all);
    }

    pub(super) fn summa_backward(
        &mut self,
        l: LinearSizes,
        count: u64,
        gradient: Gradient,
        input: Input,
        again: impl FnOnce(&mut Self),
    ) {
        let (tokens, weight) = self.travels(l, count);
        let (rows, width) = (self.s.inner_rows, l.inputs * self.s.y / count);
        // With OAR the products' panels are all under way when the weight's gradient begins.
        let reducing = if self.s.overlap.all_reduce { count } else { 2.min(count) };
        let of_tokens = self.panel_bytes(tokens);
        let broadcast = self.in_flight(Some(weight), count);
        self.sink.take(broadcast);
        self.take(input.elements);
        self.sink.take(reducing * of_tokens);
        self.sink.panels(&Panels {
            product: Product::InputGradient,
            shape: [rows, width, l.outputs],
            count,
            broadcasts: [Some(weight), None],
            reduce: Some(tokens),
        });
        self.sink.give(broadcast);
        self.weight_done(l.tile());
        again(self);
        self.take_tile(l.tile());
        let of_weight = match self.s.chunks {
            1 => self.in_flight(Some(weight), count),
            // The reductions of all panels follow the last overlap chunk.
            _ => count * self.panel_bytes(weight),
        };
        self.sink.take(of_weight);
        let moving = self.in_flight(Some(tokens), count);
        self.sink.take(moving);
        self.sink.panels(&Panels {
            product: Product::WeightGradient,
            shape: [width, l.outputs, rows],
            count,
            broadcasts: [Some(tokens), None],
            reduce: Some(weight),
        });
        self.sink.give(moving + reducing * of_tokens);
        // With OAR and several overlap chunks they are waited for at the end of the backward pass.
        if !self.s.overlap.all_reduce || self.s.chunks == 1 {
            self.sink.give(of_weight);
        }
        self.give_gradient(gradient.is_last_use, gradient.in_kept, gradient.elements);
        if input.local {
            self.give_needed(input.kept[1], input.elements);
        }
        self.sink.scatter(l.tile());
    }

    /// Bytes of a panel, of all overlap chunks.
    fn panel_bytes(&self, travel: Travel) -> u64 {
        let chunks = if travel.once { 1 } else { self.s.chunks };
        travel.elements * self.s.framework.activation_bytes * chunks
    }

    /// Bytes of this panel and the next; a weight's panel stays until the last overlap chunk has used it.
    fn in_flight(&self, travel: Option<Travel>, count: u64) -> u64 {
        travel.map_or(0, |travel| {
            let there = if travel.once && self.s.chunks > 1 { 3 } else { 2 };
            there.min(count) * self.panel_bytes(travel)
        })
    }
}
