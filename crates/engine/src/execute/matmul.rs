//! Products, as they are stored or as tuning found them faster.

use quadrille_step::{GemmPass, GemmStorage, Operation};
use quadrille_tensor::{Transpose, matmul, matmul_as};

use super::Done;
use crate::{Product, RankEngine, Real};

impl<T: Real> RankEngine<'_, T> {
    pub(super) fn gemm(&mut self, operation: &Operation) -> Done {
        let Operation::Gemm { pass, left, right, output, write, .. } = *operation else { return Ok(()) };
        let product = self.product(operation);
        let run_as = self.matmuls.choice(&product);
        let mut scratch = std::mem::take(&mut self.scratch);
        let Product { stored, m, n, k } = product;
        let done = self.write(output, |rank, c| {
            let (a, b, add) = (rank.read(left)?, rank.read(right)?, rank.accumulates(write));
            if run_as == stored {
                matmul(&rank.pool, stored, m, n, k, a, b, c, add);
            } else {
                matmul_as(&rank.pool, run_as, stored, m, n, k, a, b, c, add, &mut scratch);
            }
            Ok(())
        });
        self.scratch = scratch;
        let flops = 2 * (m * n * k) as u64;
        match pass {
            GemmPass::Forward => self.flops.gemm_forward += flops,
            GemmPass::InputGradient => self.flops.gemm_input_gradient += flops,
            GemmPass::WeightGradient => self.flops.gemm_weight_gradient += flops,
        }
        done
    }

    /// The local shape of a product.
    fn product(&self, operation: &Operation) -> Product {
        Product::of(self.program, operation).unwrap_or(Product { stored: Transpose::Nn, m: 0, n: 0, k: 0 })
    }
}

/// The kernels' name of an operand storage.
pub(crate) fn transpose(storage: GemmStorage) -> Transpose {
    match storage {
        GemmStorage::Nn => Transpose::Nn,
        GemmStorage::Nt => Transpose::Nt,
        GemmStorage::Tn => Transpose::Tn,
    }
}
