//! Functions of a perceptron with gates.

use quadrille_tensor::{Curve, Shape};

use super::activation::{check_vector, number};
use crate::array::Array;
use crate::queue::{Done, Queue};
use crate::words::words;

impl Queue<'_> {
    /// See [`quadrille_tensor::bias_gated_forward`].
    pub fn bias_gated_forward(&self, curve: Curve, shape: Shape, pre: Array, bias: Option<Array>, y: Array) -> Done {
        assert_eq!((pre.len, y.len, y.element), (2 * y.len, shape.rows * shape.cols, pre.element));
        bias.into_iter().for_each(|bias| check_vector(bias, 2 * shape.cols, pre));
        let words = words![number(curve), pre, bias, y, y.len, shape.cols];
        self.each("bias_gated_forward", y.element.format(), y.len, &words)
    }

    /// See [`quadrille_tensor::activate_gated`].
    pub fn activate_gated(&self, curve: Curve, pre: Array, y: Array) -> Done {
        assert_eq!((pre.len, pre.element), (2 * y.len, y.element));
        self.each("activate_gated", y.element.format(), y.len, &words![number(curve), pre, y, y.len])
    }

    /// See [`quadrille_tensor::bias_gated_backward`].
    pub fn bias_gated_backward(
        &self,
        curve: Curve,
        shape: Shape,
        pre: Array,
        dy: Array,
        dbias: Option<Array>,
        accumulate: bool,
    ) -> Done {
        assert_eq!((pre.len, dy.len, dy.element), (2 * dy.len, shape.rows * shape.cols, pre.element));
        self.each("gated_backward", dy.element.format(), dy.len, &words![number(curve), pre, dy, dy.len])?;
        let pairs = Shape { rows: shape.rows, cols: 2 * shape.cols };
        dbias.map_or(Ok(()), |dbias| self.bias_backward(pairs, pre, dbias, accumulate))
    }
}
