//! Products, as they are stored or as tuning found them faster.

use quadrille_step::{GemmPass, GemmStorage, Product, Purpose, kind};
use quadrille_tensor::{FEW_ROWS, Transpose, matmul, matmul_as, matmul_few_rows};

use super::Done;
use crate::{RankEngine, Real};

impl<T: Real> RankEngine<'_, T> {
    pub(super) fn gemm(&mut self, op: &kind::Gemm) -> Done {
        let kind::Gemm { pass, left, right, output, write, .. } = op;
        let product = op.product(self.program);
        let Product { storage, m, n, k } = product;
        let (stored, run_as) = (transpose(storage), transpose(self.matmuls.choice(&product)));
        // Passes of single tokens read weights and hardly use them. Training keeps to one kernel, and so to its rounding.
        let few_rows = m < FEW_ROWS && matches!(self.program.purpose, Purpose::Generation(_));
        let mut scratch = std::mem::take(&mut self.scratch);
        let flops = self.write(*output, |rank, c| {
            let (a, b, add) = (rank.read(*left)?, rank.read(*right)?, rank.accumulates(*write));
            if few_rows {
                matmul_few_rows(&rank.pool, stored, m, n, k, a, b, c);
            } else if run_as == stored {
                matmul(&rank.pool, stored, m, n, k, a, b, c, add);
            } else {
                matmul_as(&rank.pool, run_as, stored, m, n, k, a, b, c, add, &mut scratch);
            }
            Ok(2 * c.len() as u64 * (a.len() / m) as u64)
        });
        self.scratch = scratch;
        match pass {
            GemmPass::Forward => self.flops.gemm_forward += flops?,
            GemmPass::InputGradient => self.flops.gemm_input_gradient += flops?,
            GemmPass::WeightGradient => self.flops.gemm_weight_gradient += flops?,
        }
        Ok(())
    }
}

/// The kernels' name of an operand storage.
pub fn transpose(storage: GemmStorage) -> Transpose {
    match storage {
        GemmStorage::Nn => Transpose::Nn,
        GemmStorage::Nt => Transpose::Nt,
        GemmStorage::Tn => Transpose::Tn,
    }
}
