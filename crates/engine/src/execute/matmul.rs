//! Products, as they are stored or as tuning found them faster.

use quadrille_step::{GemmPass, GemmStorage, Product, Purpose, kind};
use quadrille_tensor::{FEW_ROWS, ProductShape, Transpose};

use super::Done;
use crate::backend::{View, ViewMut};
use crate::{Backend, RankEngine};

impl<B: Backend> RankEngine<'_, B> {
    pub(super) fn gemm(&mut self, op: &kind::Gemm) -> Done {
        let kind::Gemm { pass, left, right, output, write, .. } = op;
        let product = op.product(self.program);
        let run_as = transpose(self.matmuls.choice(&product));
        // Passes of single tokens read weights and hardly use them. Training keeps to one kernel, and so to its rounding.
        let few_rows = product.m < FEW_ROWS && matches!(self.program.purpose, Purpose::Generation(_));
        let flops = self.write(*output, |rank, c| {
            let (a, b, add) = (rank.read(*left)?, rank.read(*right)?, rank.accumulates(*write));
            if few_rows {
                rank.backend.matmul_few_rows(shape(&product), a, b, c)?;
            } else {
                rank.backend.matmul(shape(&product), run_as, a, b, c, add)?;
            }
            Ok(2 * c.elements() as u64 * (a.elements() / product.m) as u64)
        })?;
        match pass {
            GemmPass::Forward => self.flops.gemm_forward += flops,
            GemmPass::InputGradient => self.flops.gemm_input_gradient += flops,
            GemmPass::WeightGradient => self.flops.gemm_weight_gradient += flops,
        }
        Ok(())
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
