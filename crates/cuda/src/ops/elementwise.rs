//! Whole arrays.

use crate::array::{Array, Element};
use crate::driver::Place;
use crate::queue::{Done, Queue};
use crate::words::words;

/// Elements of a partial sum (`SUM_BLOCK` of `elementwise.cu`).
const SUM_BLOCK: usize = 4096;

/// Bytes of scratch that a sum over so many elements needs.
pub fn sum_scratch(elements: usize) -> usize {
    elements.div_ceil(SUM_BLOCK) * Element::F64.bytes()
}

/// The table of arrays that [`Queue::sum_squares_of_all`] reads, in words of 4 bytes, and how many blocks of elements they have.
pub fn squares_table(arrays: &[Array]) -> (Vec<u32>, usize) {
    let mut words = Vec::new();
    let mut blocks = 0;
    for x in arrays {
        let is_stored = x.element != x.element.real();
        words.extend(words![*x, x.len, is_stored, blocks]);
        blocks += x.len.div_ceil(SUM_BLOCK);
    }
    (words.into_iter().flat_map(|word| [word as u32, (word >> 32) as u32]).collect(), blocks)
}

/// Bytes of scratch that [`Queue::sum_squares_of_all`] needs.
pub fn squares_scratch(count: usize, blocks: usize) -> usize {
    (count + blocks) * Element::F64.bytes()
}

impl Queue<'_> {
    /// y = x, of one kind.
    pub fn copy(&self, y: Array, x: Array) -> Done {
        assert_eq!((y.len, y.element), (x.len, x.element));
        // SAFETY: the queue's promise.
        unsafe { self.driver().copy(self.stream(), Place::Device(x.at), Place::Device(y.at), x.bytes()) }
    }

    /// See [`quadrille_tensor::add_assign`]; each as it is stored or as computed with.
    pub fn add_assign(&self, y: Array, x: Array) -> Done {
        assert_eq!((y.len, y.element.real()), (x.len, x.element.real()));
        let (kernel, element) = if y.element == x.element {
            ("add_assign", y.element)
        } else if x.element == x.element.real() {
            ("add_assign_reals", y.element)
        } else {
            ("add_assign_to_reals", x.element)
        };
        self.each(kernel, element.format(), y.len, &words![y, x, y.len])
    }

    /// See [`quadrille_tensor::round`].
    pub fn round(&self, y: Array, x: Array) -> Done {
        assert_eq!((y.len, y.element.real()), (x.len, x.element));
        self.each("round", y.element.format(), y.len, &words![y, x, y.len])
    }

    /// See [`quadrille_tensor::scale`].
    pub fn scale(&self, x: Array, factor: f64) -> Done {
        self.each("scale", x.element.format(), x.len, &words![x, factor, x.len])
    }

    /// Adds the squares of some elements to `total` `[1]`, `f64`: see [`quadrille_tensor::sum_of_squares`].
    pub fn sum_squares(&self, total: Array, x: Array) -> Done {
        let partials = self.scratch(x.len.div_ceil(SUM_BLOCK), Element::F64);
        self.each_by_warp("sum_of_squares", x.element.format(), partials.len, &words![partials, x, x.len])?;
        self.add_partials(total, partials)
    }

    /// [`sum_squares`](Self::sum_squares) of several arrays by three kernels, to the same bits: of the `count` that a table has,
    /// of [`squares_table`]; values are stored as `stored`.
    pub fn sum_squares_of_all(&self, stored: Element, table: Array, count: usize, blocks: usize, total: Array) -> Done {
        assert_eq!((total.len, total.element), (1, Element::F64));
        let scratch = self.scratch(blocks + count, Element::F64);
        let partials = scratch.part(0..blocks);
        let sums = scratch.part(blocks..blocks + count);
        let format = stored.format();
        let plain = Element::F64.format();
        self.each_by_warp("sum_of_squares_of_all", format, blocks, &words![partials, table, count, blocks])?;
        self.each_by_warp("add_partials_of_all", plain, count, &words![sums, partials, table, count, blocks])?;
        self.each("add_sums", plain, count.min(1), &words![total, sums, count])
    }

    /// Adds partial sums to `total` `[1]`, both `f64`.
    pub(crate) fn add_partials(&self, total: Array, partials: Array) -> Done {
        assert_eq!((total.len, total.element, partials.element), (1, Element::F64, Element::F64));
        self.each_by_warp("add_partials", Element::F64.format(), 1, &words![total, partials, partials.len])
    }
}
