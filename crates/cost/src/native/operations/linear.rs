//! Linear layers by whole tiles (AxoNN SC24, Algorithm 1) or by SUMMA panels.

use quadrille_spec::CollectiveKind::{AllGather, AllReduce, ReduceScatter};

use super::pass::Pass;
use super::{Group, LinearSizes, Product, Sink, Slot};

/// Where the gradient of a linear layer's output comes from and what becomes of it.
#[derive(Clone, Copy)]
pub(super) struct Gradient {
    /// Its elements as they lie outside of the layer.
    pub elements: u64,
    /// Whether nothing else needs them.
    pub is_last_use: bool,
    /// Whether they lie in the place of something that the forward pass has kept.
    pub in_kept: bool,
}

/// Where the whole weight of a product comes from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Weight {
    /// Its shards are gathered.
    Gathered,
    /// The same, and it is left for a later product.
    Left,
    /// It is there from an earlier product.
    There,
}

/// A linear layer's input in the backward pass.
#[derive(Clone, Copy)]
pub(super) struct Input {
    /// Its elements as they lie outside of the layer.
    pub elements: u64,
    /// Whether it is there gathered.
    pub gathered: bool,
    /// Whether it is kept as it lies outside until this layer.
    pub local: bool,
    /// Whether the forward pass has kept it gathered, and as it lies outside.
    pub kept: [bool; 2],
}

impl<S: Sink> Pass<'_, S> {
    /// The rows of an input are gathered for its product.
    pub fn gather_rows(&mut self, group: Group, gathered: u64) {
        self.take(gathered);
        self.collective(AllGather, group, gathered);
    }

    /// The product and the reduction of its partial sums.
    pub(super) fn linear(&mut self, l: LinearSizes, weight: Weight) {
        if weight != Weight::There {
            self.weight();
        }
        if let Some(panels) = self.s.panels {
            self.summa_linear(l, panels);
            return self.weight_used(l, weight);
        }
        let output = self.s.rows * l.outputs;
        self.take(output);
        self.product(Product::Forward, [self.s.rows, l.outputs, l.inputs]);
        self.weight_used(l, weight);
        let members = self.s.members(l.contracted);
        if members > 1 && self.s.scattered {
            self.take(output / members);
            self.collective(ReduceScatter, l.contracted, output);
            self.give(output);
        } else {
            self.reduce_in_place(l.contracted, output);
        }
    }

    /// A weight that is gathered for one product is not needed any more after it.
    fn weight_used(&mut self, l: LinearSizes, weight: Weight) {
        if weight == Weight::Gathered {
            self.weight_done(l.tile());
        }
    }

    /// The gradients of input and weight. `again` makes what the weight's gradient needs.
    pub(super) fn linear_backward(
        &mut self,
        l: LinearSizes,
        gradient: Gradient,
        input: Input,
        weight: Weight,
        again: impl FnOnce(&mut Self),
    ) {
        if let Some(panels) = self.s.panels {
            if weight != Weight::There {
                self.weight();
            }
            return self.summa_backward(l, panels, gradient, input, again);
        }
        let rows = self.s.rows;
        let gathers = self.s.gathers(l.contracted);
        let mut output = gradient.elements;
        if gathers {
            output = rows * l.outputs;
            self.gather_rows(l.contracted, output);
            if gradient.is_last_use {
                self.give_of(gradient.in_kept, gradient.elements);
            }
        }
        if weight != Weight::There {
            self.weight();
        }
        let whole_input = rows * l.inputs;
        let regathers = self.s.gathers(l.produced) && !input.gathered;
        if regathers {
            self.take(whole_input);
            self.begin(Slot::Regather, AllGather, l.produced, whole_input);
        }
        self.take(whole_input);
        self.product(Product::InputGradient, [rows, l.inputs, l.outputs]);
        self.weight_done(l.tile());
        if regathers {
            self.sink.wait(Slot::Regather);
        }
        let members = self.s.members(l.produced);
        let scatters = members > 1 && self.s.scattered;
        if scatters {
            self.take(whole_input / members);
        }
        if members > 1 {
            let kind = if scatters { ReduceScatter } else { AllReduce };
            self.begin(Slot::Reduction, kind, l.produced, whole_input);
        }
        let hides = self.s.overlap.all_reduce;
        if members > 1 && !hides {
            self.sink.wait(Slot::Reduction);
            self.give_if(scatters, whole_input);
        }
        again(self);
        self.weight_gradient([l.inputs, l.outputs, rows]);
        if members > 1 && hides {
            self.sink.wait(Slot::Reduction);
            self.give_if(scatters, whole_input);
        }
        self.give_gradient(gathers || gradient.is_last_use, !gathers && gradient.in_kept, output);
        if self.s.gathers(l.produced) {
            self.give_needed(input.kept[0], whole_input);
            if input.local {
                self.give_of(input.kept[1], input.elements);
            }
        } else if input.local {
            self.give_needed(input.kept[1], input.elements);
        }
        self.sink.scatter(l.tile());
    }

    /// The product of a weight's gradient, into a buffer of its own where the stored gradient is a shard of it.
    pub fn weight_gradient(&mut self, shape: [u64; 3]) {
        self.take_tile(shape[0] * shape[1]);
        self.product(Product::WeightGradient, shape);
    }

    /// The buffer of a weight's gradient before its reduction.
    pub fn take_tile(&mut self, elements: u64) {
        if self.s.z > 1 {
            self.sink.take_gradient(elements * self.s.framework.states.sent_gradient);
        }
    }
}
