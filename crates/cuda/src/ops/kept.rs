//! Kept elements of a pruned weight.

use crate::array::{Array, Element};
use crate::queue::{Done, Queue};
use crate::words::words;

impl Queue<'_> {
    /// See [`quadrille_tensor::compress`].
    pub fn compress(&self, x: Array, indices: Array, y: Array, accumulate: bool) -> Done {
        assert_eq!((x.element, indices.element), (y.element, Element::U32));
        assert!(indices.len <= y.len, "{} indices for {} elements", indices.len, y.len);
        self.each("compress", y.element.format(), y.len, &words![x, indices, y, indices.len, y.len, accumulate])
    }

    /// See [`quadrille_tensor::expand`].
    pub fn expand(&self, x: Array, indices: Array, y: Array) -> Done {
        assert_eq!((x.element, indices.element), (y.element, Element::U32));
        assert!(indices.len <= x.len, "{} indices for {} elements", indices.len, x.len);
        self.each("expand", y.element.format(), indices.len, &words![x, indices, y, indices.len])
    }
}
