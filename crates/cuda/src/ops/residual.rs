//! Dropout and the residual stream.

use quadrille_tensor::Shape;

use super::activation::check_vector;
use super::indices::ElementMask;
use crate::array::Array;
use crate::queue::{Done, Queue};
use crate::words::words;

impl Queue<'_> {
    /// See [`quadrille_tensor::dropout`].
    pub fn dropout(&self, shape: Shape, x: Array, mask: &ElementMask) -> Done {
        assert_eq!(x.len, shape.rows * shape.cols);
        self.each("dropout", x.element.format(), x.len, &words![*mask, x, x.len, shape.cols])
    }

    /// See [`quadrille_tensor::residual_forward`].
    pub fn residual_forward(
        &self,
        shape: Shape,
        x: Array,
        bias: Option<Array>,
        residual: Array,
        mask: Option<&ElementMask>,
    ) -> Done {
        assert_eq!((x.len, residual.len, residual.element), (shape.rows * shape.cols, x.len, x.element));
        bias.into_iter().for_each(|bias| check_vector(bias, shape.cols, x));
        let mask = mask.copied().unwrap_or_else(ElementMask::none);
        let words = words![mask, x, bias, residual, x.len, shape.cols];
        self.each("residual_forward", x.element.format(), x.len, &words)
    }
}
