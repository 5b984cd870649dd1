//! The ends of a model of patches: products on the rows and columns of the residual stream, so that the embedding sends
//! no activations, and the head sums the numbers that it predicts.

use super::pass::Pass;
use super::{Product, Sink, Sweep};

impl<S: Sink> Pass<'_, S> {
    /// Numbers of the rank's patches, as they are read and predicted.
    fn patch_numbers(&self) -> u64 {
        self.s.stream_rows * self.s.logits
    }

    /// The numbers, their product with the weight, and its bias.
    pub(super) fn patch_embedding(&mut self) {
        let (s, numbers, stream) = (self.s, self.patch_numbers(), self.s.stream());
        self.take(numbers);
        self.sweep(Sweep::Patches, numbers, 2 * numbers);
        self.weight();
        self.take(stream);
        self.product(Product::Forward, [s.stream_rows, s.stream_cols, s.logits]);
        self.weight_done(s.table);
        if s.biases {
            self.sweep(Sweep::Bias, stream, 2 * stream + s.stream_cols);
        }
    }

    /// Nobody asks for the gradient of the numbers.
    pub(super) fn patch_embedding_backward(&mut self) {
        let (s, stream) = (self.s, self.s.stream());
        if s.biases {
            self.sweep(Sweep::BiasBackward, stream, stream + s.stream_cols);
        }
        self.weight_gradient([s.logits, s.stream_cols, s.stream_rows]);
        self.give_needed(true, self.patch_numbers());
        self.give_needed(false, stream);
        self.sink.scatter(s.table);
    }

    /// The product of the final norm's output, summed over the ranks that cut the stream's columns, and the squared
    /// error.
    pub(super) fn patch_head(&mut self) {
        let (s, numbers) = (self.s, self.patch_numbers());
        self.weight();
        self.sink.take(numbers * s.framework.logit_bytes * s.chunks);
        self.product(Product::Forward, [s.stream_rows, s.logits, s.stream_cols]);
        self.weight_done(s.table);
        self.reduce_in_place(s.column_group, numbers);
        if s.biases {
            self.sweep_logits(Sweep::Bias, numbers, 2 * numbers + s.logits);
        }
        // The targets are read, too.
        self.sweep_logits(Sweep::SquaredError, numbers, 3 * numbers);
        self.done();
    }

    /// Both gradients, and the backward pass of the final norm.
    pub(super) fn patch_head_backward(&mut self) {
        let (s, numbers, stream) = (self.s, self.patch_numbers(), self.s.stream());
        if s.biases {
            self.sweep_logits(Sweep::BiasBackward, numbers, numbers + s.logits);
        }
        self.weight();
        self.take(stream);
        self.product(Product::InputGradient, [s.stream_rows, s.stream_cols, s.logits]);
        self.weight_done(s.table);
        self.weight_gradient([s.stream_cols, s.logits, s.stream_rows]);
        self.sink.give_needed(true, numbers * s.framework.logit_bytes * s.chunks);
        self.give_needed(true, stream);
        self.sink.scatter(s.table);
        self.norm_backward(true, true);
        self.done();
    }
}
