//! Norms of the queries or the keys of all heads, each over its own columns.

use quadrille_tensor::HeadNorm;

use super::activation::{check_vector, column_scratch};
use super::norm::Gamma;
use crate::array::{Array, Element};
use crate::queue::{Done, Queue};
use crate::words::words;

/// Bytes of scratch that the backward pass of a norm over so many rows needs.
pub fn head_norm_scratch(norm: HeadNorm, rows: usize, element: Element) -> usize {
    column_scratch(2 * norm.head_dim, element) + 2 * heads(norm, rows) * element.real().bytes()
}

/// Normed heads of all rows.
fn heads(norm: HeadNorm, rows: usize) -> usize {
    rows * norm.groups * if norm.keys { 1 } else { norm.heads }
}

/// Columns of a group.
fn group(norm: HeadNorm) -> usize {
    (norm.heads + 1) * norm.head_dim + norm.value_dim
}

/// The kernels' `HeadNorm`, and how many heads are normed.
fn describe(norm: HeadNorm, x: Array, gamma: Gamma) -> (Vec<u64>, usize) {
    check_vector(gamma.stored, norm.head_dim, x);
    let cols = norm.groups * group(norm);
    assert!(cols > 0 && x.len.is_multiple_of(cols), "{} elements are no rows of {norm:?}", x.len);
    let rows = x.len / cols;
    let (first, of_group) = if norm.keys { (norm.heads * norm.head_dim, 1) } else { (0, norm.heads) };
    let words = words![rows, norm.groups, group(norm), first, of_group, norm.head_dim, norm.centered, norm.eps];
    (words, heads(norm, rows))
}

impl Queue<'_> {
    /// See [`quadrille_tensor::head_norm_forward`].
    pub fn head_norm_forward(&self, norm: HeadNorm, gamma: Gamma, beta: Option<Array>, x: Array) -> Done {
        let (mut words, heads) = describe(norm, x, gamma);
        beta.into_iter().for_each(|beta| check_vector(beta, norm.head_dim, x));
        words.extend(words![gamma, beta, x]);
        self.each_by_warp("head_norm_forward", x.element.format(), heads, &words)
    }

    /// See [`quadrille_tensor::head_norm_backward`].
    pub fn head_norm_backward(
        &self,
        norm: HeadNorm,
        x: Array,
        gamma: Gamma,
        dy: Array,
        dgamma: Array,
        dbeta: Option<Array>,
        accumulate: bool,
    ) -> Done {
        let (shape, heads) = describe(norm, x, gamma);
        let d = norm.head_dim;
        assert_eq!((dy.len, dy.element), (x.len, x.element));
        let outs: Vec<Array> = [Some(dgamma), dbeta].into_iter().flatten().collect();
        outs.iter().for_each(|out| check_vector(*out, d, x));
        let format = x.element.format();
        let partials = self.partials(2 * d, x.element);
        let found =
            self.scratch(partials.len + 2 * heads, partials.element).part(partials.len..partials.len + 2 * heads);
        let with = |rest: Vec<u64>| [shape.clone(), rest].concat();
        self.each_by_warp("head_norm_statistics", format, heads, &with(words![x, found]))?;
        let words = with(words![x, found, dy, partials]);
        self.each("head_norm_backward_columns", format, partials.len / 2, &words)?;
        self.add_columns(&outs, partials, accumulate)?;
        self.each_by_warp("head_norm_backward", format, heads, &with(words![x, found, gamma, dy]))
    }
}
