//! Vocabulary-parallel cross-entropy, in the pieces between which ranks reduce.

use quadrille_tensor::LogitsShape;

use super::activation::check_vector;
use super::indices::fields;
use crate::array::{Array, Element, Format};
use crate::queue::{Done, Queue};
use crate::words::{Argument, words};

/// Rows of a partial sum of the loss (`LOSS_BLOCK` of `cross_entropy.cu`).
const LOSS_BLOCK: usize = 1024;

/// Bytes of scratch that the loss of so many rows needs.
pub fn loss_scratch(rows: usize) -> usize {
    2 * rows.div_ceil(LOSS_BLOCK) * Element::F64.bytes()
}

fields! {
    LogitsShape: rows cols valid start;
}

fn check(shape: LogitsShape, logits: Array, max: Array) -> Format {
    assert!(logits.len == shape.rows * shape.cols && shape.valid <= shape.cols, "{shape:?} of {logits:?}");
    check_vector(max, shape.rows, logits);
    logits.element.format()
}

impl Queue<'_> {
    /// See [`quadrille_tensor::cap`].
    pub fn cap(&self, x: Array, cap: f64) -> Done {
        self.each("cap", x.element.format(), x.len, &words![x, cap, x.len])
    }

    /// See [`quadrille_tensor::cross_entropy_max`].
    pub fn cross_entropy_max(&self, shape: LogitsShape, logits: Array, max: Array) -> Done {
        let format = check(shape, logits, max);
        self.each_by_warp("cross_entropy_max", format, shape.rows, &words![shape, logits, max])
    }

    /// See [`quadrille_tensor::cross_entropy_sums`].
    pub fn cross_entropy_sums(
        &self,
        shape: LogitsShape,
        logits: Array,
        max: Array,
        targets: Array,
        sums: Array,
    ) -> Done {
        let format = check(shape, logits, max);
        check_vector(sums, 2 * shape.rows, logits);
        assert_eq!((targets.len, targets.element), (shape.rows, Element::U32));
        self.each_by_warp("cross_entropy_sums", format, shape.rows, &words![shape, logits, max, targets, sums])
    }

    /// See [`quadrille_tensor::cross_entropy_gradient`]; the loss is [`Self::cross_entropy_loss`]'s.
    pub fn cross_entropy_gradient(
        &self,
        shape: LogitsShape,
        logits: Array,
        max: Array,
        sums: Array,
        targets: Array,
        scale: f64,
        cap: Option<f64>,
    ) -> Done {
        let format = check(shape, logits, max);
        check_vector(sums, 2 * shape.rows, logits);
        assert_eq!((targets.len, targets.element), (shape.rows, Element::U32));
        let words = words![shape, logits, max, sums, targets, scale, cap.unwrap_or(0.0)];
        self.each_by_warp("cross_entropy_gradient", format, shape.rows, &words)
    }

    /// Adds [`quadrille_tensor::cross_entropy_loss`] to `loss` `[1]` and the number of targets that count to `targets_counted`
    /// `[1]`, both `f64`.
    pub fn cross_entropy_loss(&self, sums: Array, targets: Array, loss: Array, targets_counted: Array) -> Done {
        let rows = targets.len;
        assert_eq!((sums.len, targets.element), (2 * rows, Element::U32));
        let blocks = rows.div_ceil(LOSS_BLOCK);
        let partials = self.scratch(2 * blocks, Element::F64);
        let losses = partials.part(0..blocks);
        let counts = partials.part(blocks..2 * blocks);
        let words = words![sums, targets, losses, counts, rows];
        self.each_by_warp("cross_entropy_loss", sums.element.format(), blocks, &words)?;
        self.add_partials(loss, losses)?;
        self.add_partials(targets_counted, counts)
    }
}
