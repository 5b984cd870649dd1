//! Products, as they are stored or as tuning found them faster.

use quadrille_step::{GemmStorage, Product, Purpose, ValueId, kind};
use quadrille_tensor::{FEW_ROWS, GroupedShape, ProductShape, Segments, Transpose};

use super::{Done, Interpreter};
use crate::Backend;
use crate::backend::{FusedKernels, View, ViewMut};

impl<B: Backend> Interpreter<'_, B> {
    pub(super) fn gemm(&mut self, op: &kind::Gemm) -> Done {
        let kind::Gemm { pass, left, right, output, write, .. } = op;
        let product = op.product(self.rank.program);
        let groups = op.groups(self.rank.program);
        if groups > 1 || self.rank.value(*left).counts.is_some() {
            return self.grouped_gemm(op, product, groups);
        }
        let run_as = transpose(self.products.choice(&product));
        // Passes of single tokens read weights and hardly use them. Training keeps to one kernel, and so to its
        // rounding.
        let few_rows = product.m < FEW_ROWS && matches!(self.rank.program.purpose, Purpose::Generation(_));
        let flops = self.write(*output, |this, c| {
            let a = this.read(*left)?;
            let b = this.read(*right)?;
            let add = this.step.accumulates(*write);
            if few_rows {
                this.backend.matmul_few_rows(shape(&product), a, b, c)?;
            } else {
                this.backend.matmul(shape(&product), run_as, a, b, c, add)?;
            }
            Ok(flops(c.elements(), a.elements(), product.m))
        })?;
        self.observers.ledger.add_product(*pass, flops);
        Ok(())
    }

    /// A product, and the bias that the next operation adds to it where it is one kernel's.
    pub(super) fn biased_gemm(&mut self, fused: &B::Fused, op: &kind::Gemm, bias: ValueId) -> Done {
        let kind::Gemm { pass, left, right, output, .. } = *op;
        let product = op.product(self.rank.program);
        let groups = op.groups(self.rank.program);
        let is_generation = matches!(self.rank.program.purpose, Purpose::Generation(_));
        if groups > 1 || self.rank.value(left).counts.is_some() || is_generation {
            return self.gemm(op);
        }
        let flops = self.write(output, |this, c| {
            let a = this.read(left)?;
            let b = this.read(right)?;
            let bias = this.read(bias)?;
            fused.matmul_with_bias(shape(&product), a, b, bias, c)?;
            Ok(flops(c.elements(), a.elements(), product.m))
        })?;
        self.fusion.biased.push(self.rank.storage(output));
        self.observers.ledger.add_product(pass, flops);
        Ok(())
    }

    /// The products of several experts, whose rows lie in as many segments as ranks they have come from.
    fn grouped_gemm(&mut self, op: &kind::Gemm, product: Product, groups: usize) -> Done {
        let kind::Gemm { pass, left, right, output, write, .. } = *op;
        let segments = self.segments(left, groups);
        let Product { storage, m, n, k } = product;
        // Of a weight's gradient the rows of both operands are contracted, and those of the result are the left one's
        // columns.
        let k = if storage == GemmStorage::Tn { m } else { k };
        let shape = GroupedShape { stored: transpose(storage), n, k };
        self.write(output, |this, c| {
            let a = this.read(left)?;
            let b = this.read(right)?;
            let add = this.step.accumulates(write);
            this.backend.grouped_matmul(shape, &segments, a, b, c, add)
        })?;
        self.observers.ledger.add_product(pass, 2 * (segments.rows() * n * k) as u64);
        Ok(())
    }

    /// Position of the rows of `experts` experts in a value.
    fn segments(&self, value: ValueId, experts: usize) -> Segments {
        let queues = self.step.queues_of(value);
        let value = self.rank.value(value);
        if let Some(queues) = queues {
            return Segments::new(experts, &queues.runs(value, &self.rank.program.layout, self.rank.place));
        }
        let chunk = value.extents[0].places_of_rank(&self.rank.program.layout);
        Segments::equal(experts, value.local_rows / (experts * chunk), chunk)
    }
}

/// The shape of a product for kernels.
pub(crate) fn shape(product: &Product) -> ProductShape {
    let Product { storage, m, n, k } = *product;
    ProductShape { stored: transpose(storage), m, n, k }
}

/// The kernels' name of an operand storage.
pub fn transpose(storage: GemmStorage) -> Transpose {
    match storage {
        GemmStorage::Nn => Transpose::Nn,
        GemmStorage::Nt => Transpose::Nt,
        GemmStorage::Tn => Transpose::Tn,
    }
}

/// FLOPs of a product that gives `c` elements of `a` in so many rows: a multiplication and an addition for each that is
/// summed.
fn flops(c: usize, a: usize, rows: usize) -> u64 {
    2 * c as u64 * (a / rows) as u64
}
