//! Column blocks, and keys and values apart from the queries.

use quadrille_tensor::{GroupShape, PanelShape, Shape};

use crate::array::Array;
use crate::queue::{Done, Queue};
use crate::words::words;

/// Asserts that both have these lengths and one kind of elements.
#[track_caller]
fn check(x: Array, y: Array, lens: (usize, usize)) {
    assert_eq!(((x.len, y.len), x.element), (lens, y.element));
}

impl Queue<'_> {
    /// See [`quadrille_tensor::pack_columns`].
    pub fn pack_columns(&self, shape: Shape, parts: usize, x: Array, y: Array) -> Done {
        self.repack("pack_columns", shape, parts, x, y)
    }

    /// See [`quadrille_tensor::unpack_columns`].
    pub fn unpack_columns(&self, shape: Shape, parts: usize, x: Array, y: Array) -> Done {
        self.repack("unpack_columns", shape, parts, x, y)
    }

    fn repack(&self, kernel: &'static str, shape: Shape, parts: usize, x: Array, y: Array) -> Done {
        let Shape { rows, cols } = shape;
        check(x, y, (rows * cols, rows * cols));
        assert!(parts > 0 && cols.is_multiple_of(parts), "{cols} columns in {parts} parts");
        self.each(kernel, x.element.format(), x.len, &words![x, y, rows, cols, cols / parts])
    }

    /// See [`quadrille_tensor::slice_columns`].
    pub fn slice_columns(&self, shape: Shape, part: usize, parts: usize, x: Array, y: Array) -> Done {
        let Shape { rows, cols } = shape;
        assert!(parts > 0 && cols.is_multiple_of(parts), "{cols} columns in {parts} parts");
        let count = cols / parts;
        self.copy_panel_columns(PanelShape { rows, cols, first: part * count, count }, x, y)
    }

    /// See [`quadrille_tensor::copy_panel_columns`].
    pub fn copy_panel_columns(&self, shape: PanelShape, x: Array, y: Array) -> Done {
        self.panel("copy_panel_columns", shape, x, y, &words![x, y])
    }

    /// See [`quadrille_tensor::store_panel_columns`].
    pub fn store_panel_columns(&self, shape: PanelShape, y: Array, x: Array) -> Done {
        self.panel("store_panel_columns", shape, x, y, &words![y, x])
    }

    fn panel(&self, kernel: &'static str, shape: PanelShape, x: Array, y: Array, operands: &[u64]) -> Done {
        let PanelShape { rows, cols, first, count } = shape;
        assert!(first + count <= cols, "columns {first}..{} of {cols}", first + count);
        check(x, y, (rows * cols, rows * count));
        let words = [operands, &words![rows, cols, first, count]].concat();
        self.each(kernel, y.element.format(), y.len, &words)
    }

    /// See [`quadrille_tensor::pack_keys_values`].
    pub fn pack_keys_values(&self, shape: GroupShape, qkv: Array, kv: Array) -> Done {
        self.keys_values("pack_keys_values", shape, qkv, kv, &words![qkv, kv])
    }

    /// See [`quadrille_tensor::unpack_keys_values`].
    pub fn unpack_keys_values(&self, shape: GroupShape, kv: Array, qkv: Array) -> Done {
        self.keys_values("unpack_keys_values", shape, qkv, kv, &words![kv, qkv])
    }

    fn keys_values(&self, kernel: &'static str, shape: GroupShape, qkv: Array, kv: Array, operands: &[u64]) -> Done {
        let units = shape.rows * shape.groups;
        check(qkv, kv, (units * shape.group(), units * shape.pair()));
        let words = [operands, &words![units, shape.queries(), shape.pair()]].concat();
        self.each(kernel, kv.element.format(), kv.len, &words)
    }
}
