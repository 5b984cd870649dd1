//! SUMMA products over the x-y mesh (LBNL appendix, Algorithm 1): rows of activations lie over y and columns over x,
//! weights likewise, and the contraction is done panel by panel.
//!
//! Forward, for each panel: the input's columns are broadcast along x, the weight's rows along y, and their product
//! is added. Backward the panels of one operand are broadcast and those of the result reduced to the rank that holds
//! them. The next panel travels under this panel's product.

use quadrille_spec::{Axis, CollectiveKind};

use crate::builder::Builder;
use crate::operation::{Collective, GemmPass, GemmStorage, Members, Operation, Panel, Reduction, Write};
use crate::value::Home;
use crate::{Extent, Sharding, StepError, ValueId, kind};

type Built<T> = Result<T, StepError>;

/// How weights and activations lie: rows over y, columns over x.
pub(crate) const WEIGHT: [Axis; 2] = [Axis::Y, Axis::X];

impl Builder<'_> {
    /// `output = input weight`; `weight` is a rank's whole tile.
    pub fn summa_forward(&mut self, input: ValueId, weight: ValueId, output: ValueId) -> Built<()> {
        let left = |b: &mut Self, index| b.broadcast_panel(input, index, true);
        let right = |b: &mut Self, index| b.broadcast_panel(weight, index, false);
        let mut next = [left(self, 0)?, right(self, 0)?];
        for index in 0..self.layout.summa_panels {
            let [a, b] = next;
            self.wait(a);
            self.wait(b);
            if index + 1 < self.layout.summa_panels {
                next = [left(self, index + 1)?, right(self, index + 1)?];
            }
            self.push(kind::Gemm {
                pass: GemmPass::Forward,
                storage: GemmStorage::Nn,
                left: a.output,
                right: b.output,
                output,
                write: if index == 0 { Write::Overwrite } else { Write::Accumulate },
            });
        }
        Ok(())
    }

    /// `input_gradient = gradient weight^T`: panels of the weight are broadcast along y, those of the result reduced
    /// along x.
    pub fn summa_input_gradient(&mut self, gradient: ValueId, weight: ValueId, input_gradient: ValueId) -> Built<()> {
        let write = Write::Overwrite;
        self.summa_gradient(weight, false, input_gradient, true, write, |part, panel| {
            Operation::Gemm(kind::Gemm {
                pass: GemmPass::InputGradient,
                storage: GemmStorage::Nt,
                left: gradient,
                right: panel,
                output: part,
                write: Write::Overwrite,
            })
        })
    }

    /// `tile (+)= input^T gradient`: panels of the input are broadcast along x, those of the result reduced along y.
    pub fn summa_weight_gradient(
        &mut self,
        input: ValueId,
        gradient: ValueId,
        tile: ValueId,
        write: Write,
    ) -> Built<()> {
        self.summa_gradient(input, true, tile, false, write, |part, panel| {
            Operation::Gemm(kind::Gemm {
                pass: GemmPass::WeightGradient,
                storage: GemmStorage::Tn,
                left: panel,
                right: gradient,
                output: part,
                write: Write::Overwrite,
            })
        })
    }

    /// Broadcasts the panels of `operand`, multiplies each, and reduces the products into the panels of `result`. A
    /// reduction is waited for after the next product.
    fn summa_gradient(
        &mut self,
        operand: ValueId,
        operand_columns: bool,
        result: ValueId,
        result_columns: bool,
        write: Write,
        product: impl Fn(ValueId, ValueId) -> Operation,
    ) -> Built<()> {
        let mut next = self.broadcast_panel(operand, 0, operand_columns)?;
        let mut reducing: Option<(Collective, Panel)> = None;
        for index in 0..self.layout.summa_panels {
            let broadcast = next;
            self.wait(broadcast);
            if index + 1 < self.layout.summa_panels {
                next = self.broadcast_panel(operand, index + 1, operand_columns)?;
            }
            let panel = self.panel(index, result_columns);
            let part = self.panel_value(result, panel, "product panel")?;
            self.push(product(part, broadcast.output));
            let reduce = self.panel_collective(CollectiveKind::Reduce, panel, part);
            self.issue(reduce);
            if let Some(before) = reducing.replace((reduce, panel)) {
                self.store_panel(before, result, write);
            }
        }
        if let Some(last) = reducing {
            self.store_panel(last, result, write);
        }
        Ok(())
    }

    /// Takes panel `index` out of `tile` where it lies, and starts to broadcast it.
    fn broadcast_panel(&mut self, tile: ValueId, index: usize, of_columns: bool) -> Built<Collective> {
        let panel = self.panel(index, of_columns);
        let value = self.panel_value(tile, panel, "panel")?;
        self.push(kind::CopyPanel { panel, input: tile, output: value });
        let broadcast = self.panel_collective(CollectiveKind::Broadcast, panel, value);
        self.issue(broadcast);
        Ok(broadcast)
    }

    fn store_panel(&mut self, (reduce, panel): (Collective, Panel), output: ValueId, write: Write) {
        self.wait(reduce);
        self.push(kind::StorePanel { panel, input: reduce.output, output, write });
    }

    fn panel(&self, index: usize, of_columns: bool) -> Panel {
        let axis = if of_columns { Axis::X } else { Axis::Y };
        Panel { index, count: self.layout.summa_panels, axis, of_columns }
    }

    /// A panel of `tile`, whole on every rank of its axis.
    fn panel_value(&mut self, tile: ValueId, panel: Panel, name: &str) -> Built<ValueId> {
        let [rows, cols] = self.shape(tile);
        let cut = *self.sharding(tile);
        let chunk = self.values[tile.0].chunk;
        // No layout changes the dimensions that panels cut.
        let part = |extent: Extent| Extent::Fixed(extent.of(self.layout) / panel.count);
        let name = format!("{} {name}", self.values[tile.0].name);
        let (shape, sharding) = if panel.of_columns {
            ([rows, part(cols)], Sharding::new(&cut.rows, &[]))
        } else {
            ([part(rows), cols], Sharding::new(&[], &cut.cols))
        };
        let value = self.weight_value(name, shape, sharding, Home::buffer(self.home(tile).format))?;
        self.values[value.0].chunk = chunk;
        Ok(value)
    }

    fn panel_collective(&self, kind: CollectiveKind, panel: Panel, value: ValueId) -> Collective {
        let root = panel.holder(self.axis_size(panel.axis));
        let axes = panel.axis.only();
        let members = Members::Root(root);
        Collective { kind, axes, members, reduction: Reduction::Sum, input: value, output: value }
    }

    fn issue(&mut self, collective: Collective) {
        self.push(Operation::Issue(collective));
    }

    fn wait(&mut self, collective: Collective) {
        self.push(Operation::Wait(collective));
    }
}
