//! Squared error of predicted numbers.

use crate::array::{Array, Element};
use crate::ops::sum_scratch;
use crate::queue::{Done, Queue};
use crate::words::words;

impl Queue<'_> {
    /// See [`quadrille_tensor::rounded`].
    pub fn rounded(&self, x: Array, y: Array) -> Done {
        assert_eq!((x.len, x.element), (y.len, Element::F64));
        self.each("rounded", y.element.format(), y.len, &words![y, x, y.len])
    }

    /// See [`quadrille_tensor::squared_error`]; the loss is [`Self::squared_error_loss`]'s, which comes before.
    pub fn squared_error(&self, x: Array, targets: Array, scale: f64) -> Done {
        assert_eq!((x.len, targets.element), (targets.len, Element::F64));
        self.each("squared_error", x.element.format(), x.len, &words![x, targets, scale, x.len])
    }

    /// Adds [`quadrille_tensor::squared_error_loss`] to `loss` `[1]`, `f64`.
    pub fn squared_error_loss(&self, x: Array, targets: Array, loss: Array) -> Done {
        assert_eq!((x.len, targets.element), (targets.len, Element::F64));
        let partials = self.scratch(sum_scratch(x.len) / Element::F64.bytes(), Element::F64);
        let words = words![partials, x, targets, x.len];
        self.each_by_warp("squared_error_loss", x.element.format(), partials.len, &words)?;
        self.add_partials(loss, partials)
    }
}
