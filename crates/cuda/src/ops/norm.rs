//! Layer norm and RMS norm, in the pieces between which ranks reduce.

use quadrille_tensor::{NormShape, Shape};

use super::activation::{COLUMN_BLOCKS, check_vector};
use super::indices::fields;
use crate::array::{Array, Format};
use crate::queue::{Done, Queue};
use crate::words::{Argument, words};

/// What columns are multiplied with in a norm: `stored`, or 1 + `stored` where it is a distance from one (`offset`).
#[derive(Debug, Clone, Copy)]
pub struct Gamma {
    /// `[cols]`
    pub stored: Array,
    /// Whether it is a distance from one.
    pub offset: bool,
}

/// A row's reduced statistics, each `[rows]`: sums of a layer norm, none of an RMS norm, and squares.
#[derive(Debug, Clone, Copy)]
pub struct Statistics {
    /// The sum over all columns; with it the norm takes off the mean.
    pub sums: Option<Array>,
    /// The sum of the squares over all columns, of a layer norm of what is left of the mean.
    pub squares: Array,
}

fields! {
    Gamma: stored offset;
    NormShape: rows cols width eps;
}

/// Asserts that x is the matrix and that its statistics fit it.
#[track_caller]
fn check(shape: NormShape, x: Array, statistics: Statistics) -> Format {
    assert_eq!(x.len, shape.rows * shape.cols);
    [statistics.sums, Some(statistics.squares)].into_iter().flatten().for_each(|of| check_vector(of, shape.rows, x));
    x.element.format()
}

impl Queue<'_> {
    /// See [`quadrille_tensor::norm_row_sums`].
    pub fn norm_row_sums(&self, shape: Shape, x: Array, sums: Array) -> Done {
        assert_eq!(x.len, shape.rows * shape.cols);
        check_vector(sums, shape.rows, x);
        self.each_by_warp("norm_row_sums", x.element.format(), shape.rows, &words![x, sums, shape.rows, shape.cols])
    }

    /// See [`quadrille_tensor::norm_centered_squares`].
    pub fn norm_centered_squares(&self, shape: NormShape, x: Array, sums: Array, squares: Array) -> Done {
        let format = check(shape, x, Statistics { sums: Some(sums), squares });
        self.each_by_warp("norm_centered_squares", format, shape.rows, &words![shape, x, sums, squares])
    }

    /// See [`quadrille_tensor::rms_norm_squares`].
    pub fn rms_norm_squares(&self, shape: Shape, x: Array, squares: Array) -> Done {
        assert_eq!(x.len, shape.rows * shape.cols);
        check_vector(squares, shape.rows, x);
        let words = words![x, squares, shape.rows, shape.cols];
        self.each_by_warp("rms_norm_squares", x.element.format(), shape.rows, &words)
    }

    /// See [`quadrille_tensor::norm_forward`]; without sums and `beta` [`quadrille_tensor::rms_norm_forward`].
    pub fn norm_forward(
        &self,
        shape: NormShape,
        x: Array,
        of: Statistics,
        gamma: Gamma,
        beta: Option<Array>,
        y: Array,
    ) -> Done {
        let format = check(shape, x, of);
        assert_eq!((y.len, y.element, of.sums.is_some()), (x.len, x.element, beta.is_some()));
        [Some(gamma.stored), beta].into_iter().flatten().for_each(|vector| check_vector(vector, shape.cols, x));
        let words = match of.sums {
            Some(sums) => words![shape, x, sums, of.squares, gamma, beta, y],
            None => words![shape, x, of.squares, gamma, y],
        };
        let kernel = if of.sums.is_some() { "norm_forward" } else { "rms_norm_forward" };
        self.each_by_warp(kernel, format, shape.rows, &words)
    }

    /// [`norm_row_sums`](Self::norm_row_sums), [`norm_centered_squares`](Self::norm_centered_squares) and
    /// [`norm_forward`](Self::norm_forward) by one kernel, to the same bits; without sums and `beta`
    /// [`rms_norm_squares`](Self::rms_norm_squares) and the norm.
    pub fn whole_norm(
        &self,
        shape: NormShape,
        x: Array,
        of: Statistics,
        gamma: Gamma,
        beta: Option<Array>,
        y: Array,
    ) -> Done {
        let format = check(shape, x, of);
        assert_eq!((y.len, y.element, of.sums.is_some()), (x.len, x.element, beta.is_some()));
        [Some(gamma.stored), beta].into_iter().flatten().for_each(|vector| check_vector(vector, shape.cols, x));
        let (kernel, words) = match of.sums {
            Some(sums) => ("whole_norm", words![shape, x, sums, of.squares, gamma, beta, y]),
            None => ("whole_rms_norm", words![shape, x, of.squares, gamma, y]),
        };
        self.each_by_warp(kernel, format, shape.rows, &words)
    }

    /// See [`quadrille_tensor::norm_backward_sums`]; without sums and `dbeta` [`quadrille_tensor::rms_norm_backward_sums`].
    pub fn norm_backward_sums(
        &self,
        shape: NormShape,
        x: Array,
        of: Statistics,
        gamma: Gamma,
        dy: Array,
        out: Array,
        dgamma: Array,
        dbeta: Option<Array>,
        accumulate: bool,
    ) -> Done {
        let format = check(shape, x, of);
        assert_eq!((dy.len, dy.element, of.sums.is_some()), (x.len, x.element, dbeta.is_some()));
        check_vector(gamma.stored, shape.cols, x);
        check_vector(out, shape.rows * if of.sums.is_some() { 2 } else { 1 }, x);
        let (kernel, words) = match of.sums {
            Some(sums) => ("norm_backward_sums", words![shape, x, sums, of.squares, gamma, dy, out]),
            None => ("rms_norm_backward_sums", words![shape, x, of.squares, gamma, dy, out]),
        };
        self.each_by_warp(kernel, format, shape.rows, &words)?;
        self.norm_columns(shape, x, of, dy, [Some(dgamma), dbeta], accumulate)
    }

    /// The gradients of gamma and beta.
    fn norm_columns(
        &self,
        shape: NormShape,
        x: Array,
        of: Statistics,
        dy: Array,
        outs: [Option<Array>; 2],
        accumulate: bool,
    ) -> Done {
        let outs: Vec<Array> = outs.into_iter().flatten().collect();
        outs.iter().for_each(|vector| check_vector(*vector, shape.cols, x));
        let partials = self.partials(outs.len() * shape.cols, x.element);
        let (kernel, words) = match of.sums {
            Some(sums) => ("norm_backward_columns", words![shape, x, sums, of.squares, dy, partials]),
            None => ("rms_norm_backward_columns", words![shape, x, of.squares, dy, partials]),
        };
        self.each_by_warp(kernel, x.element.format(), COLUMN_BLOCKS * shape.cols.div_ceil(32), &words)?;
        self.add_columns(&outs, partials, accumulate)
    }

    /// [`norm_backward_sums`](Self::norm_backward_sums) and [`norm_backward`](Self::norm_backward), rows by one kernel, to the same
    /// bits; `add` says of the gradients of gamma and beta, and of dx, whether they are added.
    pub fn whole_norm_backward(
        &self,
        shape: NormShape,
        x: Array,
        of: Statistics,
        gamma: Gamma,
        dy: Array,
        out: Array,
        dgamma: Array,
        dbeta: Option<Array>,
        dx: Array,
        add: [bool; 2],
    ) -> Done {
        let format = check(shape, x, of);
        assert_eq!([(dy.len, dy.element), (dx.len, dx.element)], [(x.len, x.element); 2]);
        assert_eq!(of.sums.is_some(), dbeta.is_some());
        check_vector(gamma.stored, shape.cols, x);
        check_vector(out, shape.rows * if of.sums.is_some() { 2 } else { 1 }, x);
        let (kernel, words) = match of.sums {
            Some(sums) => ("whole_norm_backward", words![shape, x, sums, of.squares, gamma, dy, out, dx, add[1]]),
            None => ("whole_rms_norm_backward", words![shape, x, of.squares, gamma, dy, out, dx, add[1]]),
        };
        self.each_by_warp(kernel, format, shape.rows, &words)?;
        self.norm_columns(shape, x, of, dy, [Some(dgamma), dbeta], add[0])
    }

    /// See [`quadrille_tensor::norm_backward`]; without sums [`quadrille_tensor::rms_norm_backward`].
    pub fn norm_backward(
        &self,
        shape: NormShape,
        x: Array,
        of: Statistics,
        gamma: Gamma,
        dy: Array,
        reduced: Array,
        dx: Array,
        accumulate: bool,
    ) -> Done {
        let format = check(shape, x, of);
        assert_eq!([(dy.len, dy.element), (dx.len, dx.element)], [(x.len, x.element); 2]);
        check_vector(gamma.stored, shape.cols, x);
        check_vector(reduced, shape.rows * if of.sums.is_some() { 2 } else { 1 }, x);
        let (kernel, words) = match of.sums {
            Some(sums) => ("norm_backward", words![shape, x, sums, of.squares, gamma, dy, reduced, dx, accumulate]),
            None => ("rms_norm_backward", words![shape, x, of.squares, gamma, dy, reduced, dx, accumulate]),
        };
        self.each_by_warp(kernel, format, shape.rows, &words)
    }
}
