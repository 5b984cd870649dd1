//! Token and position embeddings.

use quadrille_tensor::{Shape, TableShape};

use super::indices::Positions;
use crate::array::{Array, Element};
use crate::queue::{Done, Queue};
use crate::words::words;

/// Which rows belong to each row of a table, as the host sorts them: a stable counting sort.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Places {
    /// By row of the table the first of its rows in `order`; then how many rows there are.
    pub firsts: Vec<u32>,
    /// The rows, by row of the table, of one ascending; those that belong nowhere are left out.
    pub order: Vec<u32>,
}

impl Places {
    /// The places of rows in a table of `count` rows; those beyond it belong nowhere.
    pub fn new(count: usize, rows: usize, place: impl Fn(usize) -> usize) -> Self {
        let mut firsts = vec![0; count + 1];
        let places = || (0..rows).map(|row| (row, place(row))).filter(|(_, place)| *place < count);
        places().for_each(|(_, place)| firsts[place + 1] += 1);
        (0..count).for_each(|place| firsts[place + 1] += firsts[place]);
        let mut next = firsts.clone();
        let mut order = vec![0; firsts[count] as usize];
        for (row, place) in places() {
            order[next[place] as usize] = row as u32;
            next[place] += 1;
        }
        Self { firsts, order }
    }
}

impl Queue<'_> {
    /// See [`quadrille_tensor::embed_forward`].
    pub fn embed_forward(&self, shape: TableShape, tokens: Array, table: Array, y: Array) -> Done {
        let TableShape { rows, cols, start } = shape;
        assert_eq!((tokens.len, tokens.element), (rows, Element::U32));
        assert_eq!((y.len, y.element), (rows * cols, table.element));
        let count = table.len / cols.max(1);
        self.each("embed_forward", y.element.format(), y.len, &words![tokens, table, y, rows, cols, start, count])
    }

    /// dtable [count, cols] = (or += if `accumulate`) each row of dy [rows, cols] in the row of the table that [`Places`]
    /// `firsts` and `order` say: [`quadrille_tensor::embed_backward`] and [`quadrille_tensor::positions_backward`].
    pub fn add_rows(
        &self,
        cols: usize,
        firsts: Array,
        order: Array,
        dy: Array,
        dtable: Array,
        accumulate: bool,
    ) -> Done {
        let count = dtable.len / cols.max(1);
        assert_eq!((firsts.len, firsts.element, order.element), (count + 1, Element::U32, Element::U32));
        assert!(dtable.element.real() == dy.element.real() && order.len * cols <= dy.len, "{dy:?} {dtable:?}");
        let kernel = if dtable.element == dy.element { "add_rows" } else { "add_rows_to_reals" };
        let words = words![firsts, order, dy, dtable, count, cols, accumulate];
        self.each(kernel, dy.element.format(), dtable.len, &words)
    }

    /// See [`quadrille_tensor::add_positions`].
    pub fn add_positions(&self, shape: Shape, x: Array, table: Array, at: Positions) -> Done {
        assert_eq!((x.len, x.element), (shape.rows * shape.cols, table.element));
        self.each("add_positions", x.element.format(), x.len, &words![at, x, table, shape.rows, shape.cols])
    }
}
