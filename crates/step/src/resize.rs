//! The same program for other sizes.
//!
//! Layouts that cut the same values over the same axes have the same operations; only sizes differ. So one program serves
//! all of them: what is counted of it, it says of the layout that it was given last.

use quadrille_spec::{Axis, Layout};

use crate::value::Sized;
use crate::{Practice, StageProgram, Value};

impl Value {
    /// Sets the sizes that follow from its extents and sharding in a layout that may cut it so.
    fn resize(&mut self, layout: &Layout, imbalance: f64) {
        let parts = |axes: &[Axis]| axes.iter().map(|axis| layout.grid.size(*axis)).product::<usize>();
        [self.rows, self.cols] = self.extents.map(|extent| extent.of(layout));
        self.local_blocks = self.blocks / parts(&self.sharding.blocks);
        self.local_rows = self.equal_rows(&layout.grid);
        self.local_cols = self.cols / parts(&self.sharding.cols);
        self.hold(&layout.grid);
        self.crowd(layout, imbalance);
    }
}

impl Sized {
    /// Elements of a storage that is as large.
    pub(crate) fn elements(self, values: &[Value], layout: &Layout, practice: &Practice) -> usize {
        match self {
            Self::By(value) => values[value.0].allocated(layout, practice),
            Self::ByShards(shard) => {
                let Value { local_elements, sharding, .. } = &values[shard.0];
                let over = sharding.flat.iter().copied().filter(|axis| *axis != Axis::Z).collect();
                local_elements * layout.grid.size_of(over)
            }
        }
    }
}

impl StageProgram {
    /// Gives values and storages the sizes that they have in `layout`, a legal layout with the same operations: axes that
    /// are above 1 in both or neither, as many copies of keys, equal pieces and switches, with SUMMA as many panels. Where
    /// storages lie stays as it was: see [`StageProgram::place_storages`]. So do the roots of panels, which x and y decide
    /// and on which no size depends.
    pub fn resize(&mut self, layout: &Layout) {
        self.layout.clone_from(layout);
        let imbalance = self.practice.imbalance;
        self.values.iter_mut().for_each(|value| value.resize(layout, imbalance));
        for info in &mut self.storages {
            info.elements = info.sized.elements(&self.values, layout, &self.practice);
        }
    }
}
