//! Biases, and functions of a perceptron without gates.

use quadrille_tensor::{Curve, Shape};

use crate::array::{Array, Element};
use crate::queue::{Done, Queue};
use crate::words::words;

/// Blocks of rows whose column sums are formed apart (`COLUMN_BLOCKS` of `column_sums.cuh`).
pub(super) const COLUMN_BLOCKS: usize = 64;

/// Bytes of scratch that sums of so many columns need: of a layer norm twice its columns, of a gated function twice its
/// results'.
pub fn column_scratch(cols: usize, element: Element) -> usize {
    COLUMN_BLOCKS * cols * element.real().bytes()
}

/// The number of a curve (`curves.cuh`).
pub(super) fn number(curve: Curve) -> usize {
    match curve {
        Curve::Gelu => 0,
        Curve::Silu => 1,
        Curve::Relu => 2,
        Curve::Relu2 => 3,
        Curve::GeluErf => 4,
    }
}

/// Asserts that a vector has one element, as computed with, for each column.
#[track_caller]
pub(super) fn check_vector(vector: Array, cols: usize, values: Array) {
    assert_eq!((vector.len, vector.element), (cols, values.element.real()), "a vector beside {values:?}");
}

impl Queue<'_> {
    /// See [`quadrille_tensor::bias_forward`].
    pub fn bias_forward(&self, shape: Shape, x: Array, bias: Array) -> Done {
        assert_eq!(x.len, shape.rows * shape.cols);
        check_vector(bias, shape.cols, x);
        self.each("bias_forward", x.element.format(), x.len, &words![x, bias, x.len, shape.cols])
    }

    /// See [`quadrille_tensor::bias_backward`].
    pub fn bias_backward(&self, shape: Shape, dy: Array, dbias: Array, accumulate: bool) -> Done {
        let Shape { rows, cols } = shape;
        assert_eq!(dy.len, rows * cols);
        check_vector(dbias, cols, dy);
        let partials = self.partials(cols, dy.element);
        self.each("bias_backward", dy.element.format(), partials.len, &words![partials, dy, rows, cols])?;
        self.add_columns(&[dbias], partials, accumulate)
    }

    /// Scratch for the partial sums of so many columns.
    pub(super) fn partials(&self, cols: usize, element: Element) -> Array {
        self.scratch(COLUMN_BLOCKS * cols, element.real())
    }

    /// outs, beside each other, = (or +=) the partial sums of their columns over all blocks.
    pub(super) fn add_columns(&self, outs: &[Array], partials: Array, accumulate: bool) -> Done {
        let format = partials.element.format();
        let width = partials.len / COLUMN_BLOCKS;
        let mut first = 0;
        for out in outs {
            let of_out = partials.part(first..partials.len);
            self.each("add_columns", format, out.len, &words![*out, of_out, out.len, width, accumulate])?;
            first += out.len;
        }
        Ok(())
    }

    /// See [`quadrille_tensor::bias_curve_forward`].
    pub fn bias_curve_forward(&self, curve: Curve, shape: Shape, pre: Array, bias: Option<Array>, y: Array) -> Done {
        assert_eq!((pre.len, y.len, y.element), (shape.rows * shape.cols, pre.len, pre.element));
        bias.into_iter().for_each(|bias| check_vector(bias, shape.cols, pre));
        let words = words![number(curve), pre, bias, y, y.len, shape.cols];
        self.each("bias_curve_forward", y.element.format(), y.len, &words)
    }

    /// See [`quadrille_tensor::activate_curve`].
    pub fn activate_curve(&self, curve: Curve, pre: Array, y: Array) -> Done {
        assert_eq!((pre.len, pre.element), (y.len, y.element));
        self.each("activate_curve", y.element.format(), y.len, &words![number(curve), pre, y, y.len])
    }

    /// See [`quadrille_tensor::bias_curve_backward`].
    pub fn bias_curve_backward(
        &self,
        curve: Curve,
        shape: Shape,
        pre: Array,
        dy: Array,
        dbias: Option<Array>,
        accumulate: bool,
    ) -> Done {
        assert_eq!((pre.len, dy.len, dy.element), (shape.rows * shape.cols, pre.len, pre.element));
        self.each("curve_backward", dy.element.format(), dy.len, &words![number(curve), pre, dy, dy.len])?;
        dbias.map_or(Ok(()), |dbias| self.bias_backward(shape, dy, dbias, accumulate))
    }
}
