//! Products, as they are stored or as tuning found them faster.

use quadrille_step::{GemmPass, GemmStorage, Product, Purpose, ValueId, kind};
use quadrille_tensor::{FEW_ROWS, GroupedShape, ProductShape, Segments, Transpose};

use super::Done;
use crate::backend::{View, ViewMut};
use crate::{Backend, RankEngine};

impl<B: Backend> RankEngine<'_, B> {
    pub(super) fn gemm(&mut self, op: &kind::Gemm) -> Done {
        let kind::Gemm { pass, left, right, output, write, .. } = op;
        let product = op.product(self.program);
        let groups = op.groups(self.program);
        if groups > 1 || self.value(*left).counts.is_some() {
            return self.grouped_gemm(op, product, groups);
        }
        let run_as = transpose(self.matmuls.choice(&product));
        // Passes of single tokens read weights and hardly use them. Training keeps to one kernel, and so to its rounding.
        let few_rows = product.m < FEW_ROWS && matches!(self.program.purpose, Purpose::Generation(_));
        let flops = self.write(*output, |rank, c| {
            let a = rank.read(*left)?;
            let b = rank.read(*right)?;
            let add = rank.accumulates(*write);
            if few_rows {
                rank.backend.matmul_few_rows(shape(&product), a, b, c)?;
            } else {
                rank.backend.matmul(shape(&product), run_as, a, b, c, add)?;
            }
            Ok(flops(c.elements(), a.elements(), product.m))
        })?;
        self.count_flops(*pass, flops);
        Ok(())
    }

    /// A product, and the bias that the next operation adds to it where it is one kernel's.
    pub(crate) fn biased_gemm(&mut self, op: &kind::Gemm, bias: ValueId) -> Done {
        let kind::Gemm { pass, left, right, output, .. } = *op;
        let product = op.product(self.program);
        let groups = op.groups(self.program);
        let is_generation = matches!(self.program.purpose, Purpose::Generation(_));
        if groups > 1 || self.value(left).counts.is_some() || is_generation {
            return self.gemm(op);
        }
        let run_as = transpose(self.matmuls.choice(&product));
        let flops = self.write(output, |rank, c| {
            let a = rank.read(left)?;
            let b = rank.read(right)?;
            let bias = rank.read(bias)?;
            rank.backend.matmul_with_bias(shape(&product), run_as, a, b, bias, c)?;
            Ok(flops(c.elements(), a.elements(), product.m))
        })?;
        self.biased.push(self.storage(output));
        self.count_flops(pass, flops);
        Ok(())
    }

    /// The products of several experts, whose rows lie in as many segments as ranks they have come from.
    fn grouped_gemm(&mut self, op: &kind::Gemm, product: Product, groups: usize) -> Done {
        let kind::Gemm { pass, left, right, output, write, .. } = *op;
        let segments = self.segments(left, groups);
        let Product { storage, m, n, k } = product;
        // Of a weight's gradient the rows of both operands are contracted, and those of the result are the left one's columns.
        let k = if storage == GemmStorage::Tn { m } else { k };
        let shape = GroupedShape { stored: transpose(storage), n, k };
        self.write(output, |rank, c| {
            let a = rank.read(left)?;
            let b = rank.read(right)?;
            let add = rank.accumulates(write);
            rank.backend.grouped_matmul(shape, &segments, a, b, c, add)
        })?;
        self.count_flops(pass, 2 * (segments.rows() * n * k) as u64);
        Ok(())
    }

    /// Where the rows of so many experts lie in a value.
    fn segments(&self, value: ValueId, experts: usize) -> Segments {
        let (place, value, queues) = (self.place, self.value(value), self.queues_of(value));
        if let Some(queues) = queues {
            return Segments::new(experts, &queues.runs(value, &self.program.layout, place));
        }
        let chunk = value.extents[0].places_of_rank(&self.program.layout);
        Segments::equal(experts, value.local_rows / (experts * chunk), chunk)
    }

    pub(super) fn count_flops(&mut self, pass: GemmPass, flops: u64) {
        match pass {
            GemmPass::Forward => self.flops.gemm_forward += flops,
            GemmPass::InputGradient => self.flops.gemm_input_gradient += flops,
            GemmPass::WeightGradient => self.flops.gemm_weight_gradient += flops,
        }
    }
}

/// What a kernel is told of a product.
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

/// FLOPs of a product that gives `c` elements of `a` in so many rows: a multiplication and an addition for each that is summed.
fn flops(c: usize, a: usize, rows: usize) -> u64 {
    2 * c as u64 * (a / rows) as u64
}
