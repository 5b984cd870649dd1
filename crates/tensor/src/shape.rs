//! What kernels work on, by name: local sizes of row-major, contiguous matrices, in elements.

use crate::matmul::Transpose;

/// A matrix [rows, cols].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Shape {
    /// Rows: of activations, the rank's tokens.
    pub rows: usize,
    /// Local columns.
    pub cols: usize,
}

/// A matrix [rows, cols] whose rows are normed, each over its columns on all ranks that share it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct NormShape {
    /// Rows.
    pub rows: usize,
    /// Local columns.
    pub cols: usize,
    /// Columns of all ranks: what sums over a row are divided by.
    pub width: usize,
    /// Added to the mean square.
    pub eps: f64,
}

/// Logits [rows, cols] of the vocabulary ids `start..start + cols`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogitsShape {
    /// Rows: one for each target.
    pub rows: usize,
    /// Local columns: ids, with padding.
    pub cols: usize,
    /// The first of these columns that are ids; the rest is padding.
    pub valid: usize,
    /// The id of the first column.
    pub start: usize,
}

/// The rank's rows of a token table [_, cols], looked up for `rows` tokens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TableShape {
    /// Tokens.
    pub rows: usize,
    /// Local columns.
    pub cols: usize,
    /// The token of the table's first local row.
    pub start: usize,
}

/// The columns `first..first + count` of a matrix [rows, cols].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PanelShape {
    /// Rows of both.
    pub rows: usize,
    /// Columns of the matrix.
    pub cols: usize,
    /// The panel's first column in it.
    pub first: usize,
    /// Columns of the panel.
    pub count: usize,
}

/// Queries, keys and values [rows, groups * ((heads + 1) * head_dim + value_dim)]: of each group the
/// queries of `heads` heads, then the key and the value that they share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupShape {
    /// Rows.
    pub rows: usize,
    /// Groups on this rank.
    pub groups: usize,
    /// Queries of a group.
    pub heads: usize,
    /// Columns of a query and of a key.
    pub head_dim: usize,
    /// Columns of a value.
    pub value_dim: usize,
}

impl GroupShape {
    /// Columns of the queries of a group.
    pub fn queries(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Columns of a key and its value.
    pub fn pair(&self) -> usize {
        self.head_dim + self.value_dim
    }

    /// Columns of a group.
    pub fn group(&self) -> usize {
        self.queries() + self.pair()
    }
}

/// A product C [m, n] = op(A) op(B), contracted over k: 2 m n k FLOPs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ProductShape {
    /// How A and B are stored.
    pub stored: Transpose,
    /// Rows of C.
    pub m: usize,
    /// Columns of C.
    pub n: usize,
    /// What is summed over.
    pub k: usize,
}

impl ProductShape {
    /// Asserts that A, B and C have these lengths.
    #[track_caller]
    pub(crate) fn check(self, a: usize, b: usize, c: usize) {
        let ProductShape { m, n, k, .. } = self;
        assert_eq!((a, b, c), (m * k, k * n, m * n), "{self:?}");
    }
}
